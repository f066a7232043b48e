# SPDX-License-Identifier: Apache-2.0
"""``gpu job explain``: why a job waits and what would help, where it runs, why it failed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuservice.clients.osc.generic import ShowCommand
from gpuservice.clients.osc.job_progress import local
from gpuservice.clients.osc.values import compact


def story(explanation: Mapping[str, Any]) -> str:
    """An explanation as a person reads it."""
    return "\n".join(
        compact(line) if not line.startswith(" ") else line for line in _lines(explanation)
    )


def _lines(explanation: Mapping[str, Any]) -> Iterator[str]:
    if explanation.get("summary"):
        yield explanation["summary"]
    if explanation.get("position"):
        yield f"Position {explanation['position']} in line."
    if explanation.get("estimated_start_at"):
        basis = explanation.get("estimate_basis")
        yield (
            f"Expected start: {local(explanation['estimated_start_at'])}"
            + (f" (by {basis})." if basis else ".")
        )
    yield from _listed(
        "Reasons:",
        [
            f"{one.get('code')}: {one.get('detail') or ''}"
            for one in explanation.get("reasons") or ()
        ],
    )
    yield from _listed("Held by:", [_holder(one) for one in explanation.get("holders") or ()])
    yield from _listed(
        "It would start now with:",
        [_change(one.get("change") or {}) for one in explanation.get("would_start_now_if") or ()],
    )
    yield from _listed("It runs at:", [_place(one) for one in explanation.get("placement") or ()])
    failure = explanation.get("failure")
    if failure:
        yield f"Failure class: {failure.get('class')}"
        evidence = failure.get("evidence")
        if evidence:
            yield f"Evidence: {compact(evidence)}"
        if failure.get("what_to_do"):
            yield f"What to do: {failure['what_to_do']}"


def _listed(title: str, entries: Sequence[str]) -> Iterator[str]:
    if entries:
        yield title
        for entry in entries:
            yield f"  - {compact(entry)}"


def _holder(holder: Mapping[str, Any]) -> str:
    who = f"job {holder['job_id']}" if holder.get("job_id") else "other projects"
    words = f"{who}: {holder.get('gpus')} GPUs"
    return words + (f", until {local(holder['ends_by'])}" if holder.get("ends_by") else "")


def _change(change: Mapping[str, Any]) -> str:
    """A change like ``tasks.count = 1``."""
    parts: list[str] = []

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for name, below in value.items():
                walk(f"{prefix}.{name}" if prefix else str(name), below)
        else:
            parts.append(f"{prefix} = {compact(value)}")

    walk("", change)
    return ", ".join(parts)


def _place(place: Mapping[str, Any]) -> str:
    devices = place.get("devices") or ()
    words = f"rank {place.get('rank')} on {place.get('node')}"
    return words + (f" with {len(devices)} devices" if devices else "")


class ExplainJob(ShowCommand):
    """Explain why a job waits and what would help, where it runs, or why it failed."""

    noun = "job"
    example = (
        "openstack gpu job explain resnet-sweep\nopenstack gpu job explain resnet-sweep -f json"
    )
    _told = False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Which."""
        parser = super().get_parser(prog_name)
        self.add_target(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Ask; a table would not be read, so a person gets the story."""
        explanation = self.gpu.explain_job(self.one(parsed_args.target))
        if parsed_args.formatter == "table" and not parsed_args.columns:
            self.app.stdout.write(story(explanation) + "\n")
            self._told = True
        return self.shown(parsed_args, explanation)

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]
    ) -> int:
        """What the story has not told."""
        if self._told:
            return 0
        code: int = super().produce_output(parsed_args, column_names, data)
        return code

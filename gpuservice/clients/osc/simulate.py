# SPDX-License-Identifier: Apache-2.0
"""Commands on what-if simulations."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuservice.clients.osc.generic import CreateNoun, DeleteNoun, ListNoun, ShowCommand, ShowNoun
from gpuservice.clients.osc.options import Option, add_all
from gpuservice.clients.osc.simulate_request import OPTIONS, OWNED, rows_of, with_owned
from gpuservice.clients.osc.values import compact

_SPREAD = ("mean", "p50", "p90", "p99", "max")


def story(result: Mapping[str, Any]) -> str:
    """Both runs side by side, as a person reads them."""
    return "\n".join(_lines(result))


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    base, changed = result["base"], result["changed"]
    yield f"{result['jobs']} jobs, of which {result['running_at_start']} run already."
    for reason, count in (result.get("left_out") or {}).items():
        yield f"Left out: {count} ({compact(reason)})."
    for sentence in result.get("assumptions") or ():
        yield compact(sentence)
    yield ""
    yield _row("", "now", "changed", "difference")
    yield _row("utilisation, %", *_three(100 * base["utilisation"], 100 * changed["utilisation"]))
    yield _row("preemptions", *_three(base["preemptions"], changed["preemptions"]))
    yield _row("never started", *_three(base["never_started"], changed["never_started"]))
    for name in _SPREAD:
        pair = base["wait_s"][name], changed["wait_s"][name]
        yield _row(f"wait, s: {name}", *_three(*pair))
    for by in ("project", "queue", "kind"):
        first, second = base[f"by_{by}"], changed[f"by_{by}"]
        for name in sorted(first.keys() & second.keys()):
            pair = first[name]["wait_s"]["p90"], second[name]["wait_s"]["p90"]
            yield _row(f"P90 wait, s: {by} {compact(name)}", *_three(*pair))


def _three(first: float, second: float) -> tuple[str, str, str]:
    return f"{first:.1f}", f"{second:.1f}", f"{second - first:+.1f}"


def _row(*cells: str) -> str:
    return f"{cells[0]:<44}" + "".join(f"{one:>14}" for one in cells[1:])


class _Shown(ShowCommand):
    """Shows a simulation; a person gets its result as a table of figures."""

    def simulation(
        self, parsed_args: argparse.Namespace, found: Any
    ) -> tuple[Sequence[str], Sequence[Any]]:
        """The columns; the result before them, where it would not be read in one."""
        body = found.to_dict(headers=False, computed=False, original_names=True)
        body.pop("workload", None)
        result = body.get("result")
        if result and parsed_args.formatter == "table" and not parsed_args.columns:
            self.app.stdout.write(story(result) + "\n\n")
            del body["result"]
        return self.shown(parsed_args, body)


class CreateSimulation(CreateNoun, _Shown):
    """Ask what a change would do to a workload: to each team's wait, to utilisation, to others.

    Without a change the workload is simulated as things are, twice the same.
    """

    noun = "simulation"
    fields = OPTIONS
    example = (
        "openstack gpu simulate create more --gpus a100-80gb=16 --wait\n"
        "openstack gpu simulate create fifo --from empty --workload week.csv --policy order=fifo"
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Its name, workload and change."""
        parser = super().get_parser(prog_name)
        add_all(parser, OWNED)
        parser.add_argument(
            "--workload",
            metavar="<file>",
            help="Jobs that come besides: the CSV of gpuservice-simulate",
        )
        parser.add_argument("--wait", action="store_true", help="Wait for its result")
        return parser

    def body(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """What is sent."""
        body = with_owned(super().body(parsed_args), parsed_args)
        if parsed_args.workload:
            body["workload"] = rows_of(parsed_args.workload)
        return body

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Ask, and wait if that is wanted."""
        body = self.body(parsed_args)
        self.sent = {self.noun: body}
        found = self.gpu.create_simulation(**body)
        if parsed_args.wait:
            found = self.gpu.wait_for_simulation(found.id)
        return self.simulation(parsed_args, found)


class ListSimulations(ListNoun):
    """List what-if simulations."""

    noun = "simulation"
    items = "simulations"
    columns = ("id", "name", "status", "progress", "created_at")
    long_columns = ("from", "history", "workload_rows", "change", "status_reason", "ended_at")
    scoped = False
    filters = (Option("--name", "With this name"), Option("--status", "In this status"))
    example = "openstack gpu simulate list --status running"


class ShowSimulation(ShowNoun, _Shown):
    """Show a what-if simulation: the run as things are beside the changed one."""

    noun = "simulation"
    example = "openstack gpu simulate show more\nopenstack gpu simulate show more -f json"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Find it and show it."""
        return self.simulation(parsed_args, self.one(parsed_args.target))


class DeleteSimulation(DeleteNoun):
    """Delete what-if simulations; one that runs is cancelled."""

    noun = "simulation"
    example = "openstack gpu simulate delete more"

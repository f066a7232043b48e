# SPDX-License-Identifier: Apache-2.0
"""Explanations as they are kept: rewritten only when they changed, and within a budget.

What is new or has another reason is written at once. Where only numbers moved (one job started,
and thousands behind it moved up by one place), the front of the line and those that were looked
at the longest ago are written, ``REFRESHED`` of them a pass: the cost of a pass does not grow with
the length of the line, and ``evaluated_at`` says how old an explanation is. Between such passes
only who has none, or has another reason, is written.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuservice.domain import moments
from gpuservice.domain.ports_store import Store, UnitOfWork
from gpuservice.domain.work import Explanation
from gpuservice.planner.plan_types import Waiting

#: Explanations written in one transaction.
_BATCH = 200
#: How many explanations are looked at a pass although their reason is the same.
REFRESHED = 100


def iso(seconds: float | None) -> str | None:
    """A planner's time as ISO 8601, to the second; None for never."""
    at = moments.reckoned(seconds)
    return None if at is None else at.replace(microsecond=0).isoformat().replace("+00:00", "Z")


def body_of(entry: Waiting) -> dict[str, Any]:
    """The body of ``explain`` for a waiting job; holders still carry their projects."""
    return {
        "summary": entry.reasons[0].detail,
        "position": entry.position,
        "reasons": [
            {"code": one.code, "detail": one.detail, "facts": dict(one.facts)}
            for one in entry.reasons
        ],
        "holders": [
            {
                "job_id": one.job_id,
                "project_id": one.project_id,
                "gpus": one.gpus_milli / 1000,
                "ends_by": iso(one.ends_by),
            }
            for one in entry.holders
        ],
        "estimated_start_at": iso(entry.estimated_start),
        "estimate_basis": entry.estimate_basis,
        "would_start_now_if": [dict(one) for one in entry.would_start_now_if],
    }


def digest_of(body: dict[str, Any]) -> str:
    """What tells whether an explanation has changed."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(slots=True)
class _Kept:
    """What this process knows of an explanation that it wrote."""

    code: str
    digest: str
    looked: int


class Explaining:
    """Writes the explanations of plans. What was written by this process is remembered.

    One thread saves; another may forget meanwhile.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: dict[str, _Kept] = {}
        self._forgotten: set[str] = set()
        self._pass = 0

    def lacks(self, waiting: int) -> bool:
        """Whether some of so many waiting jobs may have no explanation yet."""
        return waiting > len(self._known)

    def save(self, entries: Sequence[Waiting], refresh: bool = True) -> int:
        """Write what changed; how many.

        :param refresh: whether those whose reason is the same are looked at as well.
        """
        self._pass += 1
        entries = list(entries)  # each is worked out as it is looked at
        waiting = {entry.job_id for entry in entries}
        with self._lock:
            self._forgotten = set()
            known = {ident: old for ident, old in self._known.items() if ident in waiting}
        try:
            return self._save(_chosen(entries, known, refresh), known)
        finally:
            with self._lock:
                for ident in self._forgotten:
                    known.pop(ident, None)
                self._known = known

    def _save(self, chosen: Sequence[Waiting], known: dict[str, _Kept]) -> int:
        """Write these, as far as they changed; ``known`` is brought up to date."""
        bodies = {entry.job_id: body_of(entry) for entry in chosen}
        digests = {ident: digest_of(body) for ident, body in bodies.items()}
        changed: list[str] = []
        for ident, digest in digests.items():
            kept = known.get(ident)
            if kept is not None and kept.digest == digest:
                kept.looked = self._pass
            else:
                changed.append(ident)
        for at in range(0, len(changed), _BATCH):
            part = changed[at : at + _BATCH]
            written = self._store.write(
                lambda uow, part=part: self._write(  # type: ignore[misc]
                    uow, part, bodies, digests
                )
            )
            for ident in part:
                known.pop(ident, None)
            for ident in written:
                code = bodies[ident]["reasons"][0]["code"]
                known[ident] = _Kept(code, digests[ident], self._pass)
        return len(changed)

    def forget(self, job_ids: Sequence[str]) -> None:
        """Jobs that started: if they wait again, their explanation must be written again."""
        with self._lock:
            self._forgotten.update(job_ids)
            for ident in job_ids:
                self._known.pop(ident, None)

    @staticmethod
    def _write(
        uow: UnitOfWork,
        part: Sequence[str],
        bodies: dict[str, dict[str, Any]],
        digests: dict[str, str],
    ) -> list[str]:
        """Write those of the jobs that still wait; which they are."""
        still = uow.scheduling.lock_waiting(part)
        now = uow.now()
        kept = [ident for ident in part if ident in still]
        uow.save_explanations(
            [
                Explanation(
                    job_id=ident, digest=digests[ident], body=bodies[ident], evaluated_at=now
                )
                for ident in kept
            ]
        )
        # No change of the job: who keeps its row need not read it again.
        uow.jobs.change_each([(ident, _columns(bodies[ident])) for ident in kept], silent=True)
        return kept


def _chosen(entries: Sequence[Waiting], known: Mapping[str, _Kept], refresh: bool) -> list[Waiting]:
    """The entries to look at in this pass."""
    fresh: list[Waiting] = []
    others: list[Waiting] = []
    for entry in entries:
        kept = known.get(entry.job_id)
        moved = kept is None or kept.code != entry.reasons[0].code
        (fresh if moved else others).append(entry)
    if not refresh:
        return fresh
    if len(others) <= REFRESHED:
        return fresh + others
    front = heapq.nsmallest(REFRESHED // 2, others, key=_place)
    oldest = heapq.nsmallest(REFRESHED, others, key=lambda entry: known[entry.job_id].looked)
    chosen = {entry.job_id: entry for entry in (*front, *oldest)}
    return fresh + list(chosen.values())[:REFRESHED]


def _place(entry: Waiting) -> float:
    return float("inf") if entry.position is None else entry.position


def _columns(body: dict[str, Any]) -> dict[str, Any]:
    start = body["estimated_start_at"]
    return {
        "waiting_code": body["reasons"][0]["code"],
        "waiting_summary": body["summary"],
        "waiting_position": body["position"],
        "waiting_estimated_start_at": None if start is None else datetime.fromisoformat(start),
    }

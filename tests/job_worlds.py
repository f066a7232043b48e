# SPDX-License-Identifier: Apache-2.0
"""Requests and waiting jobs out of thrown dice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from gpuservice.planner.snapshot import PendingJob, Request
from tests.reference_planner import equal_jobs

PROJECTS = ("red", "blue", "green")
USERS = ("ann", "bob")
TYPES = (("a100-80gb", 81920), ("t4", 16384))
NOW = 1_000_000.0

Choice = TypeVar("Choice")

#: Bytes that one request and one job take.
REQUEST_BYTES, JOB_BYTES = 8, 16


class Dice:
    """Choices by bytes that someone else drew, one byte a choice; the first choice at the end.

    A whole thing is then one draw of a search that can still shrink it byte by byte.
    """

    def __init__(self, thrown: bytes) -> None:
        self._thrown = thrown
        self._next = 0

    def pick(self, choices: Sequence[Choice]) -> Choice:
        """One of the choices."""
        self._next += 1
        if self._next > len(self._thrown):
            return choices[0]
        return choices[self._thrown[self._next - 1] % len(choices)]

    def number(self, least: int, most: int) -> int:
        """A whole number from ``least`` to ``most``."""
        return self.pick(range(least, most + 1))


#: (milli-GPUs, MiB of GPU memory instead)
SIZES = (
    *[(1000, None)] * 4,
    *[(2000, None)] * 3,
    (3000, None),
    (4000, None),
    (300, None),
    (700, None),
    (0, 9000),
    (0, None),
)
NEAR = (
    *[(None, False)] * 9,
    ("link_group", True),
    ("node", True),
    ("link_domain", True),
    ("rack", True),
    ("zone", True),
    ("zone", False),
    ("node", False),
    ("link_group", False),
)


def request(dice: Dice) -> Request:
    """A shape of up to five tasks of up to four GPUs."""
    count = dice.pick([1, 1, 1, 2, 2, 3, 4, 5])
    milli, memory = dice.pick(SIZES)
    near, required = dice.pick(NEAR)
    vcpus = dice.pick([0, 0, 0, 0, 1, 2, 3, 5])
    if near == "link_group" and (milli, memory) == (0, None):
        near, required = None, False  # a link group is of GPUs: here is nothing to be near
    return Request(
        count=count,
        min_count=max(1, count - dice.pick([0, 0, 1, 2])),
        gpu_milli=milli,
        gpu_memory_mib=memory,
        gpu_types=dice.pick([*[()] * 6, ("a100-80gb",), ("t4",), ("a100-80gb", "t4")]),
        min_gpu_memory_mib=dice.pick([0] * 7 + [20000]),
        vcpus=vcpus,
        memory_mib=vcpus * 100,
        within=near,
        required=required,
    )


def job(dice: Dice, number: int, shapes: Sequence[Request], has: frozenset[str]) -> PendingJob:
    """A waiting job. ``has`` says what worlds may have, see ``cluster_worlds``."""
    ago = dice.pick([0, 1, 2, 3, 700, 2000])
    runtime = dice.pick([60, 100, 600, 9000, 9000, None, *([None] if "endless" in has else [])])
    made = PendingJob(
        f"job-{number:03}",
        dice.pick(PROJECTS),
        dice.pick(USERS),
        dice.pick(["queue-0", "queue-1", *(["queue-2"] if "cohort" in has else [])]),
        dice.pick(shapes),
        dice.pick([500, 500, 100]),
        NOW - ago,
        number,
        runtime,
        dice.pick([1, 1, 1, 3]),
        preemptible=dice.pick([False, True]),
    )
    deadline = dice.pick([None, None, None, 50, 100, 700])
    due, promised = dice.pick([None, None, -10, 0, 500]), dice.pick([None, None, None, -300, -1])
    if "deadlines" in has and deadline is not None and runtime is not None:
        made = replace(made, deadline=NOW + deadline)
    if "holds" in has and dice.pick([False] * 7 + [True]):
        made = replace(made, blocked="held")
    if "promises" in has:
        made = replace(
            made,
            due=None if due is None else NOW + due,
            promised=None if promised is None else NOW + promised,
            preempted=dice.pick([0, 0, 1, 5]),
        )
    return made


def jobs(
    thrown: Sequence[Dice], shapes: Sequence[Dice], has: frozenset[str], first: int = 0
) -> tuple[PendingJob, ...]:
    """A line of jobs; shapes repeat, so that their order can be seen."""
    requests = [request(dice) for dice in shapes] or [Request()]
    return promised_in_order(
        [job(dice, first + number, requests, has) for number, dice in enumerate(thrown)]
    )


def promised_in_order(line: Sequence[PendingJob]) -> tuple[PendingJob, ...]:
    """Of equal jobs an earlier one was promised a start no later than those behind it."""
    soonest: dict[object, tuple[float, float | None]] = {}
    made: dict[str, PendingJob] = {}
    for one in sorted(line, key=lambda one: (one.queued_at, one.sequence), reverse=True):
        key = equal_jobs(one)
        if key in soonest and (one.promised is None or one.promised > soonest[key][0]):
            one = replace(one, promised=soonest[key][0], due=soonest[key][1])
        if one.promised is not None:
            soonest[key] = (one.promised, one.due)
        made[one.job_id] = one
    return tuple(made[one.job_id] for one in line)

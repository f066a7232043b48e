# SPDX-License-Identifier: Apache-2.0
"""Who goes for whom, and that nobody goes in vain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from small_cluster import A100, EASY, NOW, codes, gang, job, node, snapshot

from gpuservice.planner.plan import plan
from gpuservice.planner.plan_types import Plan
from gpuservice.planner.snapshot import (
    DueTimes,
    PendingJob,
    QueueState,
    Request,
    RunningGang,
    Snapshot,
)

POLICY = replace(EASY, preempt=frozenset({"priority", "reclaim"}), protected_s=0.0)


def running(
    name: str, places: Mapping[str, Iterable[int]], queue: str = "queue", **more: object
) -> RunningGang:
    settings: dict[str, object] = {
        "gang_id": name, "queue_id": queue, "preemptible": True, "priority": 100,
        "started_at": NOW - 1000,
    }  # fmt: skip
    return replace(gang(name, places, NOW + 5000), **{**settings, **more})  # type: ignore[arg-type]


def world(
    gangs: Iterable[RunningGang],
    pending: Iterable[PendingJob],
    queues: Iterable[QueueState] = (),
    nodes: int = 1,
) -> Snapshot:
    made = snapshot([node(f"n{number}") for number in range(nodes)], pending, gangs)
    return replace(
        made, queues=tuple(queues) or (QueueState("queue", ("pool",), preemption="both"),)
    )


def victims(made: Plan) -> list[str]:
    return sorted(one.gang_id for one in made.preemptions)


def test_a_higher_priority_takes_the_place_of_as_few_as_possible() -> None:
    gangs = [running("small", {"n0": range(2)}), running("wide", {"n0": range(2, 8)})]
    made = plan(world(gangs, [job("j1", gpu_milli=5000, priority=900)]), POLICY)
    assert victims(made) == ["wide"]
    assert codes(made, "j1") == ["preempting_others"]
    assert {one.why for one in made.preemptions} == {"priority"}


def test_what_is_free_counts() -> None:
    gangs = [running(f"r{gpu}", {"n0": [gpu]}) for gpu in range(6)]
    made = plan(world(gangs, [job("j1", gpu_milli=4000, priority=900)]), POLICY)
    assert len(victims(made)) == 2


@pytest.mark.parametrize(
    "safe",
    [
        {"preemptible": False},
        {"priority": 900},
        {"started_at": NOW - 10, "protected_s": 60.0},
        {"preempting": True},
        {"preempted": 5},
        {"queue_id": "other"},
    ],
)
def test_who_may_not_be_preempted(safe: dict[str, object]) -> None:
    gangs = [running("r", {"n0": range(8)}, **safe)]
    assert not plan(world(gangs, [job("j1", priority=900)]), POLICY).preemptions


def test_nobody_goes_in_vain() -> None:
    gangs = [
        running("r", {"n0": range(4)}),
        running("stays", {"n0": range(4, 8)}, preemptible=False),
    ]
    assert not plan(world(gangs, [job("j1", gpu_milli=5000, priority=900)]), POLICY).preemptions


def test_what_a_preemptor_waits_for_is_kept_from_others() -> None:
    gangs = [running("r", {"n0": range(6)})]
    line = [job("j1", gpu_milli=8000, priority=900), job("j2", max_runtime_s=10000)]
    made = plan(world(gangs, line), POLICY)
    assert victims(made) == ["r"]
    assert not made.starts


TWO_QUEUES = (
    QueueState("queue", ("pool",), cohort="c", nominal={A100: 4000}, preemption="reclaim"),
    QueueState("lent", ("pool",), cohort="c", nominal={A100: 4000}, preemption="reclaim"),
)


def test_nominal_that_is_lent_out_is_reclaimed() -> None:
    gangs = [running(f"r{gpu}", {"n0": [gpu]}, "lent") for gpu in range(8)]
    made = plan(world(gangs, [job("j1", gpu_milli=3000)], TWO_QUEUES), POLICY)
    assert len(victims(made)) == 3
    assert {one.why for one in made.preemptions} == {"reclaim"}


def test_no_more_than_nominal_is_reclaimed() -> None:
    gangs = [running(f"r{gpu}", {"n0": [gpu]}, "lent") for gpu in range(8)]
    made = plan(world(gangs, [job("j1", gpu_milli=5000)], TWO_QUEUES), POLICY)
    assert not made.preemptions


def test_what_is_within_its_own_nominal_is_not_reclaimed() -> None:
    gangs = [
        running("own", {"n0": range(4)}, "lent"),
        running("mine", {"n0": range(4, 8)}, "queue"),
    ]
    assert not plan(world(gangs, [job("j1")], TWO_QUEUES), POLICY).preemptions


def test_what_is_not_preemptible_does_not_borrow() -> None:
    line = [job("j1", gpu_milli=5000), job("j2", gpu_milli=5000, preemptible=True)]
    made = plan(world([], line, TWO_QUEUES), POLICY)
    assert [start.job_id for start in made.starts] == ["j2"]
    assert codes(made, "j1") == ["queue_quota"]


def test_a_due_gang_takes_whole_nodes_from_single_jobs() -> None:
    policy = replace(POLICY, preempt=frozenset({"due_gangs"}), due=DueTimes())
    gangs = [running(f"r{number}", {f"n{number}": range(2)}) for number in range(3)]
    line = [job("j1", gpu_milli=8000, count=2, due=NOW - 1)]
    made = plan(world(gangs, line, nodes=3), policy)
    assert len(victims(made)) == 2


def test_a_short_job_pushes_out_the_longest() -> None:
    policy = replace(POLICY, preempt=frozenset({"short_jobs"}))
    gangs = [
        replace(running("long", {"n0": range(4)}), promised_end=NOW + 90000),
        replace(running("longer", {"n0": range(4, 8)}), promised_end=NOW + 99000),
    ]
    line = [job("j1", gpu_milli=4000, max_runtime_s=3600, queued_at=NOW - 700)]
    assert victims(plan(world(gangs, line), policy)) == ["longer"]


def test_what_is_not_preemptible_may_use_nominal_that_preemptible_jobs_of_its_queue_have() -> None:
    own = running("own", {"n0": range(6)}, "queue")
    firm = replace(own, preemptible=False)
    line = [job("j1", gpu_milli=2000)]
    assert [one.job_id for one in plan(world([own], line, TWO_QUEUES), POLICY).starts] == ["j1"]
    made = plan(world([firm], line, TWO_QUEUES), POLICY)
    assert not made.starts
    assert codes(made, "j1") == ["queue_quota"]


def test_preemptible_jobs_move_where_that_starts_a_gang_and_only_if_asked_to() -> None:
    gangs = [
        replace(running(name, {name: range(4)}), request=Request(gpu_milli=4000))
        for name in ("n0", "n1")
    ]
    line = [job("j1", gpu_milli=8000, priority=500)]
    tidy = replace(POLICY, preempt=frozenset(), defragment=True, lost_s=60.0)
    assert not plan(world(gangs, line, nodes=2), replace(tidy, defragment=False)).preemptions
    made = plan(world(gangs, line, nodes=2), tidy)
    assert [(one.gang_id, one.why) for one in made.preemptions] == [("n0", "defragment")]
    # Not where it costs more than it saves.
    assert not plan(world(gangs, line, nodes=2), replace(tidy, lost_s=1e6)).preemptions

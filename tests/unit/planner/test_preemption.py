# SPDX-License-Identifier: Apache-2.0
"""Who goes for whom, and that nobody goes in vain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from small_cluster import A100, EASY, NOW, codes, gang, job, node, snapshot

from gpuservice.planner.plan import plan
from gpuservice.planner.plan_types import Plan
from gpuservice.planner.session import Session
from gpuservice.planner.snapshot import (
    DueTimes,
    PendingJob,
    Promise,
    QueueState,
    Request,
    RunningGang,
    Snapshot,
    TaskPlacement,
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


def test_what_is_only_promised_is_not_borrowed() -> None:
    """b uses its nominal and no more; a job of its is promised one GPU beyond it."""
    gangs = [running("v", {"n0": [0]}, "b"), running("x", {"n0": [1]}, "other", preemptible=False)]
    gangs[1] = replace(gangs[1], promised_end=NOW + 50)
    queues = [
        QueueState("a", ("pool",), cohort="c", nominal={A100: 1000}, preemption="reclaim"),
        QueueState("b", ("pool",), cohort="c", nominal={A100: 1000}),
        QueueState("idle", ("pool",), cohort="c", nominal={A100: 1000}),
        QueueState("other", ("pool",)),
    ]
    line = [job("j1", queue_id="b", preemptible=True), job("j2", queue_id="a")]
    made = snapshot([node("n0", 2)], line, gangs)
    made_plan = plan(replace(made, queues=tuple(queues)), replace(POLICY, order="fifo"))
    assert [promise.job_id for promise in made_plan.promises] == ["j1"]
    assert not victims(made_plan)


def test_a_queue_gives_back_what_it_borrows_and_no_more_to_two_that_reclaim() -> None:
    gangs = [running("v1", {"n0": [0]}, "b"), running("v2", {"n0": [1]}, "b")]
    queues = [
        QueueState("a1", ("pool",), cohort="c", nominal={A100: 1000}, preemption="reclaim"),
        QueueState("a2", ("pool",), cohort="c", nominal={A100: 1000}, preemption="reclaim"),
        QueueState("b", ("pool",), cohort="c", nominal={A100: 1000}),
        QueueState("idle", ("pool",), cohort="c", nominal={A100: 1000}),
    ]
    line = [job("j1", queue_id="a1"), job("j2", queue_id="a2")]
    made = plan(replace(snapshot([node("n0", 2)], line, gangs), queues=tuple(queues)), POLICY)
    assert len(victims(made)) == 1


def test_where_others_go_for_a_job_nobody_else_starts_meanwhile() -> None:
    """Only one of the two places that become free suits j2; j1, which may have either, was given
    the other when others were told to go, and stands before j2 when they are gone."""
    gangs = [
        running("v1", {"n0": [0]}, project_id="red"),
        running("v2", {"n1": [0]}, project_id="red", priority=200),
        running("s", {"n1": [1]}, project_id="red", preemptible=False),
    ]
    line = [job("j1", "red", max_runtime_s=None), job("j2", "green")]
    nodes = [node("n0", 1), node("n1", 2, isolation_node=True)]
    base = snapshot(nodes, line, gangs)
    queues = (QueueState("queue", ("pool",), preemption="both"),)
    at = Session(nodes, base.pools, queues, POLICY)
    for one in gangs:
        at.start(one)
    for waits in line:
        at.submit(waits)
    ran = {("queue", "red", "user"): 1e9}
    first = at.plan(NOW, usage=ran)
    assert [(one.for_job_id, one.gang_id) for one in first.preemptions] == [
        ("j2", "v1"),
        ("j1", "v2"),
    ]
    for gone in ("v1", "v2"):
        at.stopping(gone, NOW + 10)
    for gone in ("v1", "v2"):
        at.finish(gone)
    then = at.plan(NOW + 10)
    assert {start.job_id: start.tasks[0].node_id for start in then.starts} == {
        "j1": "n1",
        "j2": "n0",
    }


def test_nothing_starts_beside_a_victim_on_what_it_leaves_to_another_project() -> None:
    """A share of red's beside v would keep the GPU from blue, for whom v goes."""
    victim = replace(gang("v", {"n0": [0]}, NOW + 90, milli=700), gang_id="v", queue_id="queue")
    victim = replace(victim, preemptible=True, priority=300, started_at=NOW - 4000)
    line = [
        job("j1", "blue", gpu_milli=500, priority=500, max_runtime_s=None),
        job("j2", "red", gpu_milli=200, priority=100, max_runtime_s=9000),
    ]
    made = plan(
        replace(world([victim], line), nodes=snapshot([node("n0", 1)], line, [victim]).nodes),
        POLICY,
    )
    assert victims(made) == ["v"]
    assert not made.starts


def test_a_victim_that_comes_back_takes_no_place_for_which_others_went() -> None:
    """v2 goes for a short job of the lowest tier, v1 for an urgent one: back in line v1 ranks
    before the short job, whose place is kept all the same."""
    policy = replace(POLICY, preempt=frozenset({"priority", "short_jobs"}))
    gangs = [
        running("v1", {"n0": [0]}, priority=300, promised_end=NOW + 700),
        running("v2", {"n0": [1]}, "calm", promised_end=NOW + 9000),
    ]
    queues = (
        QueueState("queue", ("pool",), preemption="both"),
        QueueState("calm", ("pool",)),
    )
    line = [
        job("j1", priority=500),
        job("j2", queue_id="calm", priority=100, max_runtime_s=60, queued_at=NOW - 700),
    ]
    nodes = [node("n0", 2)]
    at = Session(nodes, snapshot(nodes).pools, queues, policy)
    for one in gangs:
        at.start(one)
    for waits in line:
        at.submit(waits)
    made = at.plan(NOW)
    assert {one.for_job_id: one.gang_id for one in made.preemptions} == {"j1": "v1", "j2": "v2"}
    for gone in ("v1", "v2"):
        at.stopping(gone, NOW + 10)
    for gone in ("v1", "v2"):
        at.finish(gone)
    at.submit(job("v1", priority=300, queued_at=0.0, preemptible=True))
    assert {start.job_id for start in at.plan(NOW + 10).starts} == {"j1", "j2"}


def test_a_place_for_several_shares_by_memory_on_one_gpu_is_kept() -> None:
    """j1 holds a promise of another GPU, and would take the one that v leaves to j2."""
    gangs = [
        running("v", {"n0": [0]}, project_id="blue"),
        running("x", {"n0": [1]}, "calm", project_id="blue", promised_end=NOW + 60),
    ]
    queues = (
        QueueState("queue", ("pool",), preemption="both"),
        QueueState("calm", ("pool",)),
    )
    line = [
        job("j1", "green", queue_id="calm", gpu_milli=700, max_runtime_s=600),
        job("j2", "green", count=4, gpu_memory_mib=9000),
    ]
    nodes = [node("n0", 2)]
    at = Session(nodes, snapshot(nodes).pools, queues, replace(POLICY, order="fifo"))
    for one in gangs:
        at.start(one)
    for waits in line:
        at.submit(waits)
    made = at.plan(NOW)
    assert [promise.job_id for promise in made.promises] == ["j1"]
    assert [(one.for_job_id, one.gang_id) for one in made.preemptions] == [("j2", "v")]
    at.stopping("v", NOW + 10)
    at.finish("v")
    assert {start.job_id for start in at.plan(NOW + 10).starts} >= {"j2"}


def test_a_place_that_others_left_is_kept_once_while_higher_tiers_wait() -> None:
    """The victim waits again in a higher tier: the claim below it stays what it was."""
    gangs = [running("v", {"n0": [0]}, "calm", priority=500)]
    queues = (
        QueueState("queue", ("pool",), cohort="c", nominal={A100: 1000}, preemption="reclaim"),
        QueueState("calm", ("pool",), cohort="c", nominal={A100: 0}),
    )
    nodes = [node("n0", 1)]
    at = Session(nodes, snapshot(nodes).pools, queues, POLICY)
    at.start(gangs[0])
    at.submit(job("j1", priority=100))
    assert victims(at.plan(NOW)) == ["v"]
    at.stopping("v", NOW + 10)
    at.finish("v")
    at.submit(job("v", queue_id="calm", priority=500, queued_at=0.0, preemptible=True))
    assert [start.job_id for start in at.plan(NOW + 10).starts] == ["j1"]


def test_a_gang_that_is_owed_something_but_is_not_due_has_nobody_go_as_due() -> None:
    """Its queue is behind the other's: it is promised a start, and waits for it."""
    gangs = [
        running("r", {"n0": range(2)}, "b", priority=500, promised_end=NOW + 700),
        running("s", {"n1": range(2)}, "a", priority=200, promised_end=None),
    ]
    asked = {"count": 3, "min_count": 2, "gpu_milli": 1000, "max_runtime_s": 9000}
    line = [job(f"j{number}", queue_id=queue, **asked) for number, queue in ((1, "a"), (2, "b"))]
    nodes = [node(name, 2, groups=1) for name in ("n0", "n1")]
    queues = tuple(QueueState(name, ("pool",), preemption="both") for name in "ab")
    there = replace(snapshot(nodes, line, gangs), queues=queues)
    policy = replace(POLICY, due=DueTimes(), preempt=frozenset({"priority", "due_gangs"}))
    made = plan(there, policy)
    assert min(made.due.values()) > NOW
    assert {one.gang_id: one.why for one in made.preemptions} == {"s": "priority"}


def test_a_share_for_which_others_went_starts_beside_who_stays() -> None:
    """Its GPU is never wholly free; another element of a higher job does not get in between."""
    gangs = [
        replace(gang("r", {"n0": [number]}, NOW + ends, milli=300), gang_id=f"r{number}")
        for number, ends in enumerate((30, 60))
    ]

    def claimed(waits: PendingJob, device: int) -> PendingJob:
        task = TaskPlacement(0, "n0", ((f"n0/{device}", 700),))
        place = Promise(waits.job_id, NOW - 1, NOW + 99, waits.project_id, (task,))
        return replace(waits, claimed=True, promise=place)

    line = [
        claimed(job("j1", gpu_milli=700, priority=900, elements=2, max_runtime_s=60), 0),
        claimed(job("j2", gpu_milli=700, priority=100, max_runtime_s=60), 1),
    ]
    made = plan(snapshot([node("n0", 2, groups=1)], line, gangs), replace(EASY, promises=0))
    assert sorted(one.job_id for one in made.starts) == ["j1", "j2"]

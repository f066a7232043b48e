# SPDX-License-Identifier: Apache-2.0
"""Shares and link groups beside what is promised on the same node: device by device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_cluster import EASY, NOW, codes, gang, job, node, places, snapshot

from gpuservice.planner.plan import plan
from gpuservice.planner.session import Session
from gpuservice.planner.snapshot import PendingJob, Policy, RunningGang, Snapshot

ALL = replace(EASY, promises=-1, order="fifo", preempt=frozenset())


def held(name: str, device: int, milli: int, ends: float) -> RunningGang:
    return replace(gang(name, {"a": [device]}, ends, milli=milli), gang_id=name)


def session(world: Snapshot, policy: Policy = ALL) -> Session:
    made = Session(
        [node(one.id, len(one.devices)) for one in world.nodes], world.pools, world.queues, policy
    )
    for one in world.running:
        made.start(one)
    for waits in world.pending:
        made.submit(waits)
    return made


def test_a_share_takes_a_gpu_that_no_promise_counts_on() -> None:
    """At the promised start three GPUs of b are free: not the one that holds a share longer."""
    running = [gang("r", {"a": range(4)}, NOW + 30), gang("s", {"b": [0]}, NOW + 60, milli=300)]
    line = [job("j1", count=4, gpu_milli=1000), job("j2", gpu_milli=300)]
    made = plan(snapshot([node("a", 4), node("b", 4)], line, running), EASY)
    assert [promise.start for promise in made.promises] == [NOW + 30]
    assert places(made) == {"j2": ["b/0"]}


@pytest.mark.parametrize(
    ("milli", "project", "starts"), [(400, "red", True), (500, "red", False), (400, "blue", False)]
)
def test_a_share_starts_beside_a_promised_one_if_both_fit(
    milli: int, project: str, starts: bool
) -> None:
    running = [held("r", 0, 500, NOW + 50), gang("s", {"a": [1]}, NOW + 900)]
    line = [job("j1", gpu_milli=600), job("j2", project, gpu_milli=milli)]
    made = plan(snapshot([node("a", 2)], line, running), EASY)
    assert [promise.start for promise in made.promises] == [NOW + 50]
    assert places(made) == ({"j2": ["a/0"]} if starts else {})
    if not starts and project == "red":
        assert codes(made, "j2") == ["backfill_would_delay"]


def test_a_share_promised_beside_another_is_kept_and_starts() -> None:
    line = [job("j1", gpu_milli=600), job("j2", gpu_milli=400)]
    world = snapshot([node("a", 2)], line, [held("r", 0, 500, NOW + 50), held("s", 1, 1000, 1e6)])
    at = session(world)
    began = at.plan(NOW).starts
    assert [start.job_id for start in began] == ["j2"]
    at.start(replace(held("j2", 0, 400, NOW + 100), gang_id="j2/0"))
    assert [promise.start for promise in at.plan(NOW + 20).promises] == [NOW + 50]
    at.finish("r")
    assert places(at.plan(NOW + 50)) == {"j1": ["a/0"]}


def test_shares_promised_on_one_gpu_start_beside_promises_of_their_node() -> None:
    """What is promised after they have ended is not in their way."""
    line = [
        job("j1", count=3, gpu_milli=300, max_runtime_s=60),
        job("j2", gpu_milli=1000, max_runtime_s=60),
        job("j3", gpu_milli=3000, max_runtime_s=60),
    ]
    running = [replace(gang("r", {"a": range(3)}, NOW + 30), gang_id="r")]
    at = session(snapshot([node("a", 3)], line, running))
    promised = {promise.job_id: promise.start for promise in at.plan(NOW).promises}
    assert promised == {"j1": NOW + 30, "j2": NOW + 30, "j3": NOW + 90}
    at.finish("r")
    assert {start.job_id for start in at.plan(NOW + 30).starts} == {"j1", "j2"}


def test_what_is_promised_after_a_gang_has_ended_leaves_it_all_its_places() -> None:
    line = [
        job("j1", gpu_milli=6000, max_runtime_s=50),
        job("j2", gpu_milli=7000),
        job("j3", count=2, gpu_milli=1000, max_runtime_s=80),
    ]
    running = [gang("r", {"a": range(4)}, NOW + 50)]
    made = plan(snapshot([node("a")], line, running), replace(ALL, promises=2))
    assert [promise.start for promise in made.promises] == [NOW + 50, NOW + 100]
    assert list(places(made)) == ["j3"]


def test_a_promised_link_group_leaves_the_others_of_its_node() -> None:
    """Either of two groups will do for the promise: one of them is lent."""
    running = [held("r", 0, 1000, NOW + 50), held("s", 2, 1000, NOW + 50)]
    near: dict[str, object] = {"within": "link_group", "required": True}
    line: list[PendingJob] = [
        job("j1", gpu_milli=2000, **near),
        job("j2", max_runtime_s=900),
        job("j3", max_runtime_s=900),
    ]
    made = plan(snapshot([node("a", 4)], line, running), EASY)
    assert [promise.start for promise in made.promises] == [NOW + 50]
    assert list(places(made)) == ["j2"]
    assert codes(made, "j3") == ["backfill_would_delay"]


def test_a_link_group_is_not_promised_where_a_node_drains() -> None:
    """Nothing else has its devices, but nothing starts there any more."""
    waits = job("j1", count=2, gpu_milli=1000, within="link_group", required=True)
    world = snapshot([node("a", 4)], [waits], [gang("r", {"a": range(4)}, NOW + 30)])
    made = session(world)
    first = made.plan(NOW)
    assert [one.start for one in first.promises] == [NOW + 30]
    made.node_ready("a", False)
    assert made.plan(NOW).promises == ()

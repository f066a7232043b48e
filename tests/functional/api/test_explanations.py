# SPDX-License-Identifier: Apache-2.0
"""Each reason that the planner can give, brought about by what users and operators do.

Every situation is a function that returns the job that waits and who asks; the reason is looked
for in the answer of ``/explain`` and, as the first one, in the list of jobs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fake_node import ready, report
from planned import GPU_TYPE, Planned

from gpuservice.domain.reasons import Reason

Situation = Callable[[Planned], str]
SITUATIONS: dict[str, tuple[Situation, dict[str, Any]]] = {}
#: Codes of parts of the service that are not there yet.
OF_LATER = {Reason.BUDGET, Reason.ENGINE_UNAVAILABLE, Reason.BEHIND_RESERVATION}
#: Nothing of the line: a job of these has no place in it.
NO_PLACE = {
    Reason.EVALUATING, Reason.HELD, Reason.DEPENDENCY, Reason.RETRY_BACKOFF, Reason.ARRAY_LIMIT,
    Reason.QUEUE_CLOSED, Reason.IMPOSSIBLE, Reason.DEADLINE_UNREACHABLE,
}  # fmt: skip


def situation(code: str, **scheduler: Any) -> Callable[[Situation], Situation]:
    def note(made: Situation) -> Situation:
        SITUATIONS[code] = (made, scheduler)
        return made

    return note


@situation(Reason.EVALUATING)
def not_planned_yet(here: Planned) -> str:
    return here.submit(here.ada)


@situation(Reason.HELD)
def held(here: Planned) -> str:
    ident = here.submit(here.ada, hold=True)
    here.plan()
    return ident


@situation(Reason.DEPENDENCY)
def depends(here: Planned) -> str:
    first = here.submit(here.ada, hold=True)
    ident = here.submit(here.ada, depends_on=[{"job": first}])
    here.plan()
    return ident


@situation(Reason.RETRY_BACKOFF)
def failed_and_waits_to_be_tried_again(here: Planned) -> str:
    node = ready(here.world, here.cluster.nodes[0])
    retry = {"max_attempts": 3, "backoff_s": 3600, "on": ["user_code"]}
    ident = here.runs(here.ada, here.cluster.nodes[0], gpus=1, retry=retry)
    (order,) = node.orders()
    node.orders(report(order["task_id"], "running"))
    here.conduct()
    node.orders(report(order["task_id"], "gone", exit_code=1))
    here.conduct()
    here.plan()
    return ident


@situation(Reason.ARRAY_LIMIT)
def an_array_at_its_limit(here: Planned) -> str:
    ident = here.submit(here.ada, 1, array={"size": 3, "max_running": 1})
    here.plan()
    here.plan()
    return ident


@situation(Reason.QUEUE_CLOSED)
def a_closed_queue(here: Planned) -> str:
    ident = here.submit(here.ada)
    here.queue(status="closed")
    here.plan()
    return ident


@situation(Reason.PROJECT_QUOTA)
def over_the_project_s_quota(here: Planned) -> str:
    limits = {"quota": {"limits": {"gpus": 6}}}
    assert here.admin.patch("/quotas/vision", limits).status_code == 200
    here.runs(here.ada, here.cluster.nodes[0])
    ident = here.submit(here.ada)
    here.plan()
    return ident


@situation(Reason.QUEUE_QUOTA)
def over_the_queue_s_share(here: Planned) -> str:
    assert here.admin.post("/cohorts", {"cohort": {"name": "c"}}).status_code == 201
    here.queue(cohort="c", nominal={GPU_TYPE: 6}, borrowing_limit={GPU_TYPE: 0})
    here.runs(here.mallory, here.cluster.nodes[0])
    ident = here.submit(here.ada)
    here.plan()
    return ident


@situation(Reason.INSUFFICIENT_GPUS)
def everything_is_in_use(here: Planned) -> str:
    here.full(here.mallory)
    ident = here.submit(here.ada)
    here.plan()
    return ident


@situation(Reason.FRAGMENTED)
def free_but_spread(here: Planned) -> str:
    here.full(here.ada, gpus=2)
    ident = here.submit(here.ada)
    here.plan()
    return ident


@situation(Reason.TOPOLOGY)
def free_but_far_apart(here: Planned) -> str:
    here.full(here.ada, gpus=2)
    near = {"within": "rack", "policy": "required"}
    ident = here.submit(here.ada, 2, tasks={"count": 2}, topology=near)
    here.plan()
    return ident


@situation(Reason.GPU_TYPE_UNAVAILABLE)
def a_type_that_no_pool_has(here: Planned) -> str:
    wanted = {"gpu_type": {"name": "h100", "vendor": "nvidia", "memory_mib": 81559}}
    assert here.admin.post("/gpu-types", wanted).status_code == 201
    ident = here.submit(here.ada, resources={"gpus": 1, "gpu_types": ["h100"]})
    here.plan()
    return ident


@situation(Reason.GPU_MEMORY)
def more_memory_than_a_gpu_has(here: Planned) -> str:
    ident = here.submit(here.ada, resources={"gpus": 1, "min_gpu_memory_mib": 90_000})
    here.plan()
    return ident


@situation(Reason.HOST_RESOURCES)
def more_processors_than_a_node_has(here: Planned) -> str:
    ident = here.submit(here.ada, resources={"gpus": 1, "vcpus": 64})
    here.plan()
    return ident


@situation(Reason.ISOLATION)
def nodes_in_use_by_another_project(here: Planned) -> str:
    here.full(here.mallory, gpus=1)
    ident = here.submit(here.ada, 1)
    here.plan()
    return ident


@situation(Reason.BEHIND_HIGHER_PRIORITY)
def others_are_more_urgent(here: Planned) -> str:
    here.full(here.mallory)
    here.submit(here.mallory)
    ident = here.submit(here.ada, priority="low")
    here.plan()
    return ident


@situation(Reason.BEHIND_PROMISE, order="fifo", backfill=False, due_times=False)
def nothing_passes_the_first(here: Planned) -> str:
    here.runs(here.mallory, here.cluster.nodes[0])
    here.submit(here.mallory, tasks={"count": 2})
    ident = here.submit(here.ada)
    here.plan()
    return ident


@situation(Reason.BACKFILL_WOULD_DELAY, order="fifo", due_times=False, promises=1)
def it_would_run_too_long(here: Planned) -> str:
    here.runs(here.mallory, here.cluster.nodes[0], max_runtime_s=600)
    here.submit(here.mallory, tasks={"count": 2})
    ident = here.submit(here.ada, max_runtime_s=7200)
    here.plan()
    return ident


def autoscaled(here: Planned, most: int) -> str:
    values = {"autoscale": True, "max_nodes": most, "target_nodes": None}
    change = {"pool": {name: value for name, value in values.items() if value is not None}}
    answer = here.admin.patch(f"/pools/{here.cluster.pool.id}", change)
    assert answer.status_code < 300, answer.text
    here.full(here.mallory)
    ident = here.submit(here.ada)
    here.plan()
    return ident


@situation(Reason.POOL_GROWING)
def the_pool_grows_for_it(here: Planned) -> str:
    return autoscaled(here, 4)


@situation(Reason.POOL_AT_MAX)
def the_pool_cannot_grow(here: Planned) -> str:
    return autoscaled(here, 2)


@situation(Reason.NODE_UNAVAILABLE)
def a_node_is_cordoned(here: Planned) -> str:
    for node in here.cluster.nodes:
        answer = here.admin.post(f"/nodes/{node.id}/action", {"cordon": {"reason": "fans"}})
        assert answer.status_code < 300, answer.text
    ident = here.submit(here.ada)
    here.plan()
    return ident


@situation(Reason.PREEMPTING_OTHERS, min_runtime_s=0.0)
def others_are_told_to_go(here: Planned) -> str:
    here.queue(preemption="lower_priority")
    here.full(here.mallory, priority="low")
    ident = here.submit(here.ada)
    here.plan()
    here.plan()
    return ident


@situation(Reason.DEADLINE_UNREACHABLE)
def too_late(here: Planned) -> str:
    soon = (datetime.now(UTC) + timedelta(minutes=10)).isoformat()
    ident = here.submit(here.ada, deadline_at=soon)
    here.plan()
    return ident


@situation(Reason.IMPOSSIBLE)
def more_than_there_is(here: Planned) -> str:
    here.submit(here.mallory)
    ident = here.submit(here.ada, tasks={"count": 3})
    here.plan()
    return ident


def test_every_code_has_its_situation() -> None:
    assert set(SITUATIONS) | OF_LATER == set(Reason)


@pytest.mark.parametrize("code", sorted(SITUATIONS))
def test_each_reason_is_told(world, cluster, code):
    make, scheduler = SITUATIONS[code]
    here = Planned(world, cluster, **scheduler)
    ident = make(here)

    told = here.explain(here.ada, ident)

    codes = [one["code"] for one in told["reasons"]]
    assert code in codes, told
    for one in told["reasons"]:
        assert one["detail"] and "?" not in one["detail"], one
        assert isinstance(one["facts"], dict)
    assert told["summary"] == told["reasons"][0]["detail"]
    assert told["job_id"] == ident and told["status"] in ("queued", "held", "running")
    listed = here.ada.get(f"/jobs?waiting_code={codes[0]}").get_json()["jobs"]
    assert ident in [one["id"] for one in listed]
    if code == Reason.EVALUATING:
        assert told["evaluated_at"] is None
    else:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", told["evaluated_at"])
    assert (told["position"] is None) == (codes[0] in NO_PLACE), told["position"]
    text = here.ada.get(f"/jobs/{ident}/explain").text
    assert "speech" not in text and "mallory" not in text
    for foreign in here.mallory.get("/jobs").get_json()["jobs"]:
        assert foreign["id"] not in text


def test_positions_count_those_that_share_a_pool(world, cluster):
    here = Planned(world, cluster)
    here.full(here.mallory)
    waiting = [here.submit(client) for client in (here.ada, here.mallory, here.ada)]
    here.plan()
    told = [
        here.explain(here.admin, ident)["position"] for ident in waiting
    ]  # fmt: skip
    assert sorted(told) == [1, 2, 3]


def test_an_operator_sees_who_holds_what_a_tenant_sees_a_sum(world, cluster):
    here = Planned(world, cluster)
    foreign = here.full(here.mallory)
    ident = here.submit(here.ada)
    here.plan()
    told = here.explain(here.ada, ident)["holders"]
    assert [(one["job_id"], one["gpus"]) for one in told] == [(None, 8)]
    assert told[0]["ends_by"].endswith("Z")
    told = here.explain(here.admin, ident)["holders"]
    assert {one["job_id"] for one in told} == set(foreign)

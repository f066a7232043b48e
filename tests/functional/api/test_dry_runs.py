# SPDX-License-Identifier: Apache-2.0
"""Dry runs by the real planner: where, when, for how much, against whom, and nothing is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from api_world import World, error_of
from planned import GPU_TYPE, Planned, RealPlanning

from gpuservice.planner.snapshot import Policy
from gpuservice.scheduler.collect import Collector
from gpuservice.scheduler.planning import SnapshotPlanning


@pytest.fixture
def here(world: World, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Planned:
    """The cluster, whose dry runs are real."""
    planning = RealPlanning(world)
    monkeypatch.setattr(world.services.jobs._deps.planning, "dry_run", planning.dry_run)
    return Planned(world, cluster)


def dry_run(here: Planned, gpus: int = 4, **body: Any) -> dict[str, Any]:
    given = {"name": "x", "command": ["true"], "resources": {"gpus": gpus}, "max_runtime_s": 3600}
    answer = here.ada.post("/jobs?dry_run=true", {"job": {**given, **body}})
    assert answer.status_code == 200, answer.text
    return dict(answer.get_json()["dry_run"])


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_it_starts_now_and_costs_its_limit(here):
    told = dry_run(here, 2, tasks={"count": 2})
    assert (told["status"], told["start_basis"]) == ("starts_now", "now")
    assert [one["rank"] for one in told["placement"]] == [0, 1]
    assert all(len(one["devices"]) == 2 and one["node"] for one in told["placement"])
    assert told["cost"] == {"gpu_milli_seconds": 4 * 1000 * 3600, "price": None}
    assert told["preempts"] == {"count": 0, "jobs": [], "others": 0}
    assert told["explanation"] is None
    assert moment(told["estimated_start_at"]) <= datetime.now(UTC)
    assert here.admin.get("/jobs?all_projects=true").get_json()["jobs"] == []


def test_prices_are_those_of_the_pool_s_flavor(here):
    path = f"/flavors/{here.cluster.flavor.id}"  # of 4 GPUs
    assert here.admin.patch(path, {"flavor": {"price_per_hour": 1001}}).status_code == 200
    price = dry_run(here, 2, max_runtime_s=7200)["cost"]["price"]
    assert price == {"least": 1001, "most": 1001}
    part = dry_run(here, resources={"gpu_memory_mib": 40960}, max_runtime_s=60)
    assert part["cost"]["gpu_milli_seconds"] == 500 * 60
    assert part["cost"]["price"] == {"least": 3, "most": 3}  # 2.085 begun units
    array = dry_run(here, 1, array={"size": 10}, max_runtime_s=3600)["cost"]
    assert array == {"gpu_milli_seconds": 36_000_000, "price": {"least": 2503, "most": 2503}}
    here.full(here.mallory)
    assert dry_run(here, 2, max_runtime_s=7200)["cost"]["price"]["most"] == 1001
    assert dry_run(here, 0)["cost"] == {"gpu_milli_seconds": 0, "price": None}


def test_it_waits_and_is_told_for_what_and_until_when(here):
    here.runs(here.mallory, here.cluster.nodes[0], max_runtime_s=600)
    here.runs(here.mallory, here.cluster.nodes[1], max_runtime_s=1200)
    told = dry_run(here)
    assert (told["status"], told["start_basis"]) == ("waits", "estimated")
    ahead = moment(told["estimated_start_at"]) - datetime.now(UTC)
    assert timedelta(seconds=590) < ahead <= timedelta(seconds=610)
    reason = told["explanation"]["reasons"][0]
    assert reason["code"] == "insufficient_gpus"
    assert (reason["facts"]["needed"], reason["facts"]["free"]) == (4, 0)
    assert told["explanation"]["holders"] == [
        {"job_id": None, "gpus": 8, "ends_by": told["explanation"]["holders"][0]["ends_by"]}
    ]
    assert told["explanation"]["position"] == 1
    assert told["placement"] == []


def test_a_promised_start_names_its_places(here):
    here.world.conf.set_override("due_times", False, "scheduler")
    here.full(here.mallory, max_runtime_s=600)
    told = dry_run(here)
    assert (told["status"], told["start_basis"]) == ("waits", "promised")
    assert len(told["placement"]) == 1 and len(told["placement"][0]["devices"]) == 4


def test_a_change_that_would_start_it_now(here):
    here.full(here.ada, gpus=2)
    told = dry_run(here)
    assert told["explanation"]["reasons"][0]["code"] == "fragmented"
    assert {"change": {"resources": {"gpus": 2}}} in told["explanation"]["would_start_now_if"]


def test_whom_it_would_preempt(here):
    here.world.conf.set_override("min_runtime_s", 0.0, "scheduler")
    here.queue(preemption="lower_priority")
    own = here.runs(here.ada, here.cluster.nodes[0], priority="low", name="mine")
    here.runs(here.mallory, here.cluster.nodes[1], priority="low")
    told = dry_run(here, tasks={"count": 2})
    assert told["explanation"]["reasons"][0]["code"] == "preempting_others"
    assert told["preempts"] == {
        "count": 2,
        "jobs": [{"job_id": own, "name": "mine"}],
        "others": 1,
    }
    here.plan()  # nothing of it was kept
    assert here.ada.get(f"/jobs/{own}").get_json()["job"]["status"] == "starting"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"tasks": {"count": 3}}, "impossible", "impossible"),
        ({"hold": True}, "waits", "held"),
        ({"resources": {"gpus": 1, "min_gpu_memory_mib": 90_000}}, "impossible", "impossible"),
    ],
)
def test_what_stands_against_it(here, body, status, code):
    told = dry_run(here, **body)
    assert told["status"] == status
    assert told["explanation"]["reasons"][0]["code"] == code
    assert told["start_basis"] is None and told["estimated_start_at"] is None


def test_it_waits_for_another_job(here):
    other = here.submit(here.ada, hold=True)
    told = dry_run(here, depends_on=[{"job": other}])
    assert told["explanation"]["reasons"][0]["code"] == "dependency"
    assert told["explanation"]["reasons"][0]["facts"] == {"unmet": 1, "jobs": [other]}


def test_an_array_of_which_some_start(here):
    told = dry_run(here, array={"size": 5})
    assert told["status"] == "starts_now"
    assert sorted({one["index"] for one in told["placement"]}) == [0, 1]
    assert told["explanation"]["reasons"][0]["code"] == "insufficient_gpus"


def test_a_job_without_a_limit_has_no_price(here):
    assert dry_run(here, max_runtime_s=None)["cost"] == {"gpu_milli_seconds": None, "price": None}


def test_the_quota_of_waiting_jobs_is_told_as_a_submission_would_be(here):
    limits = {"quota": {"limits": {"jobs:queued": 1}}}
    assert here.admin.patch("/quotas/vision", limits).status_code == 200
    body = {"job": {"name": "x", "command": ["true"], "array": {"size": 2}}}
    for path in ("/jobs?dry_run=true", "/jobs"):
        error = error_of(here.ada.post(path, body))
        assert (error["status"], error["code"]) == (403, "gpu.quota.exceeded")


def test_many_in_a_row_see_what_happened_between(here):
    assert dry_run(here)["status"] == "starts_now"
    first = here.runs(here.ada, here.cluster.nodes[0])
    assert {one["node"] for one in dry_run(here)["placement"]} == {"shared-1"}
    here.runs(here.ada, here.cluster.nodes[1])
    assert dry_run(here)["status"] == "waits"
    assert first  # and both still run
    assert dry_run(here, resources={"gpus": 1, "gpu_types": [GPU_TYPE]})["status"] == "waits"


def test_a_fresh_snapshot_is_used_again(here):
    now = [0.0]
    planning = SnapshotPlanning(here.world.store, Collector({}), Policy(), lambda: now[0])
    ident = here.submit(here.ada)
    row = here.world.store.read(lambda uow: uow.jobs.get(ident))
    planning.dry_run(row)
    with here.world.statements() as seen:
        now[0] = 0.4
        planning.dry_run(row)
        assert seen == []
        now[0] = 1.0
        planning.dry_run(row)
        assert seen

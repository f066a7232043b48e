# SPDX-License-Identifier: Apache-2.0
"""What-if simulations from the live state, from recorded jobs and from rows, by real processes."""

from __future__ import annotations

import time
from typing import Any

import pytest
from api_answers import one
from api_world import Client, World, error_of
from fake_node import place

from gpuservice.api.schemas.simulations import SIMULATION_CREATE
from gpuservice.conductor.deps import Deps
from gpuservice.conductor.simulations import LEFT, Simulations
from gpuservice.domain.ports_store import TaskEnd
from gpuservice.domain.simulations import SimulationEnd
from gpuservice.planner.snapshot import Policy
from gpuservice.scheduler.collect import Collector
from gpuservice.simulation.child import Bounds, ProcessSimulator, own_program
from gpuservice.simulation.gathering import Gathering
from gpuservice.simulation.what_if import changed_policy

PATIENCE_S = 60.0


def simulator(world: World, **bounds: int) -> ProcessSimulator:
    collector = Collector({})
    return ProcessSimulator(
        world.store,
        Gathering(lambda uow: collector.collect(uow).snapshot, Policy(), 100),
        Bounds(**{"time_limit_s": 60, "memory_mib": 2048, **bounds}),
        own_program("gpuservice.cmd.what_if"),
        time.monotonic,
    )


def pipeline(world: World, runs: Any, owner: str = "one") -> Simulations:
    nothing: Any = None
    ports = (world.store, world.hints, world.clock, world.ids, world.conf)
    return Simulations(Deps(*ports, nothing, nothing, nothing, owner, runs))


@pytest.fixture
def runner(world: World):
    """A conductor's pipeline with the real process behind it."""
    made = pipeline(world, simulator(world))
    yield made
    made.close()


def ask(admin: Client, **body: Any) -> dict[str, Any]:
    return one(admin.post("/simulations", {"simulation": {"name": "s", **body}}), "simulation", 202)


def ended(admin: Client, runner: Simulations, ident: str) -> dict[str, Any]:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        runner.step()
        row = one(admin.get(f"/simulations/{ident}"), "simulation")
        if row["status"] in ("succeeded", "failed"):
            return row
        time.sleep(0.05)
    raise AssertionError(row)


def submit(ada: Client, name: str, gpus: int, limit: int | None = 3600, **more: Any) -> str:
    body = {
        "name": name, "command": ["true"], "resources": {"gpus": gpus}, "max_runtime_s": limit,
        **more,
    }  # fmt: skip
    return str(one(ada.post("/jobs", {"job": body}), "job", 202)["id"])


def test_from_now_with_more_gpus(world, cluster, admin, ada, runner):
    for node in cluster.nodes:
        place(world, cluster, submit(ada, "runs", 4), [node], 4)
    for number in range(4):
        submit(world.client("speech", user="eve"), f"waits{number}", 4)
    submit(ada, "held", 1, hold=True)
    asked = ask(admin, change={"gpus": {"a100-80gb": 8}})
    assert asked["status"] == "queued" and asked["progress"] == 0 and asked["result"] is None

    row = ended(admin, runner, asked["id"])

    assert row["status"] == "succeeded", row
    assert row["progress"] == 100 and row["started_at"] and row["ended_at"].endswith("Z")
    result = row["result"]
    assert result["jobs"] == 6 and result["running_at_start"] == 2
    assert result["left_out"] == {"held": 1}
    # Half a line behind an hour each, then behind two; with 8 more GPUs nobody waits for those.
    assert result["base"]["by_project"]["speech"]["wait_s"]["max"] > 3600
    assert result["changed"]["by_project"]["speech"]["wait_s"]["p50"] < 3600
    assert result["difference"]["by_project"]["speech"]["wait_s"]["mean"] < -1000
    assert result["base"]["by_queue"].keys() == {"default"}
    assert "result" not in admin.get("/simulations").get_json()["simulations"][0]


def test_recorded_jobs_and_rows(world, cluster, admin, ada, runner):
    ident = submit(ada, "was", 4)
    place(world, cluster, ident, cluster.nodes[:1], 4)
    now = world.clock.now()

    def end(uow):
        (attempt,) = uow.attempts.find()
        ends = [TaskEnd(task.id, exit_code=0) for task in uow.tasks.of_attempts([attempt.id])]
        uow.tasks.gone(ends, now)
        uow.quotas.give_back("vision", {"jobs:running": 1})
        uow.attempts.change(
            attempt.id,
            {"status": "ended", "outcome": "succeeded", "started_at": now, "live": None,
             "ended_at": now.replace(year=now.year + 1)},
        )  # fmt: skip
        uow.jobs.change(ident, {"status": "succeeded", "ended_at": now, "live_elements": 0})

    world.store.write(end)
    asked = ask(
        admin,
        **{
            "from": "empty",
            "history": {
                "since": now.replace(year=now.year - 1).isoformat(),
                "until": now.replace(year=now.year + 1).isoformat(),
            },
        },
        workload=[
            {"submit_s": 0, "duration_s": 100, "gpus_per_task": 4, "name": "a"},
            {"submit_s": 0, "duration_s": 100, "gpus_per_task": 4, "name": "b", "kind": "data"},
            {"submit_s": 0, "duration_s": 100, "gpus_per_task": 4, "depends_on": ["a"]},
        ],
        change={"pools": {"shared": 1}, "policy": {"order": "fifo"}},
    )
    assert asked["workload_rows"] == 3

    row = ended(admin, runner, asked["id"])

    assert row["status"] == "succeeded", row
    assert row["result"]["jobs"] == 4
    assert row["result"]["base"]["by_kind"]["data"]["jobs"] == 1
    assert row["result"]["changed"]["by_project"]["vision"]["jobs"] == 1


def test_nodes_that_take_nothing_new_and_nodes_that_are_lost(world, cluster, admin, ada, runner):
    for node in cluster.nodes:
        place(world, cluster, submit(ada, "runs", 4), [node], 4)
    submit(ada, "waits", 1)
    lost, cordoned = (node.id for node in cluster.nodes)
    world.store.write(lambda uow: uow.nodes.change(lost, {"status": "error"}))
    world.store.write(lambda uow: uow.nodes.change(cordoned, {"status": "cordoned"}))
    row = ended(admin, runner, ask(admin, change={"pools": {"shared": 1}})["id"])
    assert row["status"] == "succeeded", row
    result = row["result"]
    assert result["left_out"] == {"on_lost_nodes": 1} and result["running_at_start"] == 1
    assert result["base"]["never_started"] == 1  # nothing takes new work
    assert result["changed"]["never_started"] == 0


def test_what_cannot_be_simulated_is_told(world, cluster, admin, ada, runner):
    nothing = ended(admin, runner, ask(admin)["id"])
    assert (nothing["status"], nothing["result"]) == ("failed", None)
    assert "no job to simulate" in nothing["status_reason"]
    submit(ada, "waits", 4)
    gone = ended(admin, runner, ask(admin, change={"gpus": {"a100-80gb": -100}})["id"])
    assert "there are 8 GPUs" in gone["status_reason"]


def test_a_simulation_out_of_bounds_is_ended(world, cluster, admin, ada):
    submit(ada, "waits", 4)
    slow = pipeline(world, simulator(world, time_limit_s=0))
    assert "not done after 0 s" in ended(admin, slow, ask(admin)["id"])["status_reason"]
    small = pipeline(world, simulator(world, memory_mib=1))
    many = [{"submit_s": number, "duration_s": 1, "name": f"n{number}"} for number in range(10_000)]
    assert "1 MiB" in ended(admin, small, ask(admin, workload=many)["id"])["status_reason"]


class Endless:
    """A simulation that goes on until it is stopped."""

    def __init__(self) -> None:
        self.progress, self.stopped, self.said = 7, False, None

    def start(self, simulation: Any) -> Endless:
        return self

    def end(self) -> SimulationEnd | None:
        return self.said

    def stop(self) -> None:
        self.stopped = True


def status(admin: Client, ident: str) -> tuple[str, int]:
    row = one(admin.get(f"/simulations/{ident}"), "simulation")
    return row["status"], row["progress"]


def test_one_at_a_time_and_deleting_cancels(world, cluster, admin):
    first, second = ask(admin)["id"], ask(admin)["id"]
    run = Endless()
    ours, others = pipeline(world, run), pipeline(world, Endless(), "two")
    for _ in range(3):
        ours.step()
        others.step()
    assert status(admin, first) == ("running", 7)
    assert status(admin, second) == ("queued", 0)
    assert admin.delete(f"/simulations/{first}").status_code == 204
    ours.step()
    assert run.stopped
    ours.step()
    assert status(admin, second)[0] == "running"
    assert admin.delete(f"/simulations/{second}").status_code == 204
    assert error_of(admin.delete(f"/simulations/{second}"))["status"] == 404


def test_what_a_dead_process_left_is_failed_and_the_next_one_runs(world, cluster, admin):
    world.conf.set_override("claim_s", 1, "conductor")
    first, second = ask(admin)["id"], ask(admin)["id"]
    pipeline(world, Endless()).step()  # and is never heard of again
    assert status(admin, first)[0] == "running"
    heir = pipeline(world, Endless(), "two")
    until = time.monotonic() + PATIENCE_S
    while status(admin, first)[0] == "running" and time.monotonic() < until:
        heir.step()
        time.sleep(0.05)
    row = one(admin.get(f"/simulations/{first}"), "simulation")
    assert (row["status"], row["status_reason"]) == ("failed", LEFT)
    assert status(admin, second)[0] == "running"


def test_a_process_that_stops_in_good_order_gives_it_back(world, cluster, admin):
    ident, run = ask(admin)["id"], Endless()
    ours = pipeline(world, run)
    ours.step()
    ours.step()
    ours.close()
    assert run.stopped and status(admin, ident) == ("queued", 0)
    pipeline(world, Endless(), "two").step()
    assert status(admin, ident)[0] == "running"


def test_a_policy_says_what_the_configuration_can_say(world):
    fields = SIMULATION_CREATE["properties"]["simulation"]["properties"]["change"]["properties"]
    policy = fields["policy"]["properties"]
    assert set(policy) <= set(world.conf.scheduler)
    for name, schema in policy.items():
        kind = schema["type"]
        value = {"array": ["reclaim"], "boolean": True}.get(kind) or schema.get("enum", [2])[0]
        assert changed_policy(Policy(), {name: value}) is not None


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"history": {"since": "x", "until": "2026-01-01"}}, "/simulation/history/since"),
        ({"history": {"since": "2026-01-01", "until": "2026-01-01"}}, "/simulation/history/until"),
        ({"change": {"queues": {"nosuch": {}}}}, "/simulation/change/queues/nosuch"),
        ({"change": {"pools": {"nosuch": 1}}}, "/simulation/change/pools/nosuch"),
        (
            {"change": {"queues": {"default": {"cohort": "none"}}}},
            "/simulation/change/queues/default/cohort",
        ),
        ({"workload": [{"queue": "nosuch"}]}, "/simulation/workload/0/queue"),
        ({"workload": [{"tasks": 1, "min_tasks": 2}]}, "/simulation/workload/0/min_tasks"),
        ({"workload": [{"gpus_per_task": 1, "gpu_milli": 5}]}, "/simulation/workload/0/gpu_milli"),
        ({"workload": [{"depends_on": ["b"]}]}, "/simulation/workload/0/depends_on/0"),
        ({"workload": [{"depends_on": ["b:x"]}]}, "/simulation/workload/0/depends_on/0"),
        ({"workload": [{"name": "b", "depends_on": ["b"]}]}, "/simulation/workload/0/depends_on/0"),
    ],
)
def test_what_is_wrong_is_named(world, cluster, admin, body, pointer):
    rows = [{"submit_s": 0, "duration_s": 1, **row} for row in body.get("workload", ())]
    body = {**body, **({"workload": rows} if rows else {})}
    error = error_of(admin.post("/simulations", {"simulation": {"name": "s", **body}}))
    assert (error["status"], error["source"]["pointer"]) == (400, pointer)
    assert admin.get("/simulations").get_json()["simulations"] == []


def test_they_are_the_operators_and_bounded(world, cluster, admin, ada):
    world.conf.set_override("max_kept", 1, "simulation")
    ident = ask(admin)["id"]
    assert error_of(admin.post("/simulations", {"simulation": {"name": "t"}}))["status"] == 409
    for client in (ada, world.client("vision", "manager"), world.client("vision", "service")):
        assert error_of(client.get("/simulations"))["status"] == 403
        assert error_of(client.get(f"/simulations/{ident}"))["status"] == 403
        assert error_of(client.delete(f"/simulations/{ident}"))["status"] == 403
    again = {"simulation": {"name": "s"}}
    assert admin.delete(f"/simulations/{ident}").status_code == 204
    first = admin.post("/simulations", again, Idempotency_Key="k")
    assert admin.post("/simulations", again, Idempotency_Key="k").get_json() == first.get_json()

# SPDX-License-Identifier: Apache-2.0
"""Limits are exact however many ask at once, and no device is given twice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import workload
from cluster import Cluster, running_cluster
from oslo_config import cfg
from programs import until
from rest import Refused, Rest
from scale import sized

from gpuservice.bootstrap import RandomIds, SystemClock
from gpuservice.conf import quota as quota_conf
from gpuservice.db.engine import create_engine
from gpuservice.db.store import DatabaseStore
from gpuservice.planner.plan import plan
from gpuservice.planner.snapshot import Policy
from gpuservice.scheduler.collect import Collector
from gpuservice.scheduler.commit import CommitSettings, Committer

pytestmark = [pytest.mark.services, pytest.mark.a4]

RUNS = sized(10, 1)
ASKERS = 60
GANGS = sized(1000, 100)
#: So small that all gangs of two fit on 64 GPUs at once.
SHARE_MILLI = 30


@pytest.fixture
def cluster(backend: str) -> Iterator[Cluster]:
    with running_cluster(backend, hosts=8, gpus=8) as running:
        yield running


def at_once(count: int, ask: Callable[[int], object]) -> Counter[int]:
    """Ask from so many threads at the same time; how often each status came (0: accepted)."""
    barrier = threading.Barrier(count)
    answers: list[int] = []

    def run(number: int) -> None:
        barrier.wait()
        try:
            ask(number)
            answers.append(0)
        except Refused as refused:
            answers.append(refused.status)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == count, "a caller got no answer"
    return Counter(answers)


def limit(cluster: Cluster, project: str, **limits: int) -> None:
    """Set limits of a project; ``jobs_queued`` stands for ``jobs:queued``."""
    cluster.admin.call(
        "PATCH",
        f"/quotas/{project}",
        {"quota": {"limits": {name.replace("_", ":"): value for name, value in limits.items()}}},
    )


def test_limits_hold_under_concurrent_requests(cluster: Cluster) -> None:
    cluster.admin.post(
        "/flavors",
        {
            "flavor": {
                "name": "one",
                "gpu_type": "a100-80gb",
                "gpu_count": 1,
                "vcpus": 1,
                "memory_mib": 1024,
            }
        },
    )
    empty = cluster.admin.post(
        "/pools",
        {
            "pool": {
                "name": "empty",
                "flavor": "one",
                "min_nodes": 0,
                "max_nodes": 0,
                "shared_with": ["*"],
            }
        },
    )["pool"]
    cluster.admin.post(
        "/queues",
        {
            "queue": {
                "name": "default",
                "project_id": None,
                "projects": ["*"],
                "pools": [empty["id"]],
            }
        },
    )
    for run in range(RUNS):
        _pools_against_gpus(cluster, f"pools-{run}")
        _jobs_against_queued(cluster, f"jobs-{run}")
        cluster.check_ledger()


def _callers(cluster: Cluster, project: str) -> list[Rest]:
    return [cluster.caller(project) for _ in range(ASKERS)]


def _pools_against_gpus(cluster: Cluster, project: str) -> None:
    limit(cluster, project, gpus=32)
    callers = _callers(cluster, project)
    answers = at_once(
        ASKERS,
        lambda number: callers[number].post(
            "/pools",
            {"pool": {"name": f"pool-{number}", "flavor": "one", "min_nodes": 1, "max_nodes": 1}},
        ),
    )
    assert answers == {0: 32, 403: 28}
    owner = callers[0]
    for pool in list(owner.all("pools")):
        owner.call("DELETE", f"/pools/{pool['id']}")
    until(lambda: not owner.get("/limits")["limits"]["usage"].get("gpus"), "deleted pools", 120)


def _jobs_against_queued(cluster: Cluster, project: str) -> None:
    limit(cluster, project, jobs_queued=20)
    callers = _callers(cluster, project)
    answers = at_once(
        ASKERS, lambda number: callers[number].submit(name=f"job-{number}", command=["true"])
    )
    assert answers == {0: 20, 403: 40}
    for job in list(callers[0].all("jobs")):
        callers[0].cancel(job["id"])
    usage = callers[0].get("/limits")["limits"]["usage"]
    assert not usage.get("jobs:queued")


def test_running_jobs_never_hold_more_than_the_limit(cluster: Cluster) -> None:
    cluster.furnish()
    for run in range(RUNS):
        _bounded_jobs(cluster, f"bounded-{run}")


def _bounded_jobs(cluster: Cluster, project: str) -> None:
    limit(cluster, project, gpus=32)
    callers = _callers(cluster, project)
    answers = at_once(
        ASKERS, lambda number: callers[number].submit(name=f"job-{number}", command=["sleep", "1"])
    )
    assert answers == {0: ASKERS}
    most = _most_held(cluster, callers[0])
    assert 0 < most <= 32
    ends = Counter(job["status"] for job in callers[0].all("jobs"))
    assert ends == {"succeeded": ASKERS}
    cluster.check_idle()
    print(f"\n{ASKERS} jobs under a limit of 32: at most {most} GPUs at once")


def _most_held(cluster: Cluster, caller: Rest) -> int:
    """Watch the devices until every job has ended; the most that were held at one moment."""
    most = 0
    deadline = time.monotonic() + 120
    while any(job["status"] not in workload.ENDED for job in caller.all("jobs")):
        assert time.monotonic() < deadline, "the jobs did not end"
        used = sum(device["used_milli"] for device in cluster.admin.all("devices"))
        most = max(most, used // 1000)
    return most


def test_two_schedulers_with_one_snapshot_allocate_nothing_twice(backend: str) -> None:
    with running_cluster(backend, hosts=8, gpus=8, lease_s=600) as cluster:
        cluster.furnish()
        for kind in ("scheduler", "conductor", "agent"):
            for program in cluster.of_kind(kind):
                program.end()
        callers = _callers(cluster, "crowd")

        def submit(number: int) -> None:
            for one in range(GANGS // 20):
                callers[number].submit(
                    name=f"gang-{number}-{one}",
                    command=["true"],
                    tasks={"count": 2},
                    resources={"gpu_fraction": SHARE_MILLI / 1000},
                )

        assert at_once(20, submit) == {0: 20}
        assert _race(cluster) == GANGS
        used = [device["used_milli"] for device in cluster.admin.all("devices")]
        assert max(used) <= 1000
        assert sum(used) == GANGS * 2 * SHARE_MILLI
        cluster.check_ledger()


def _race(cluster: Cluster) -> int:
    """Two committers, each of which believes it leads, with the starts of one snapshot."""
    conf = cfg.ConfigOpts()
    quota_conf.register_opts(conf)
    conf([])
    defaults = quota_conf.defaults(conf)
    store = DatabaseStore(create_engine(cluster.database), SystemClock(), RandomIds(), defaults)
    collected = store.read(Collector(defaults).collect)
    starts = plan(collected.snapshot, Policy()).starts
    epoch = store.write(lambda uow: uow.raise_epoch("all", "the test"))
    outcomes: list[Any] = []

    def commit() -> None:
        committer = Committer(
            store, _Silent(), RandomIds(), "all", CommitSettings(300, tuple(range(20000, 30000)))
        )
        outcomes.append(committer.commit(epoch, starts, collected.nodes, collected.pools))

    threads = [threading.Thread(target=commit) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.engine.dispose()
    assert len(outcomes) == 2
    started = [job for outcome in outcomes for job in outcome.started]
    assert len(started) == len(set(started)), "a job was started twice"
    return len(started)


class _Silent:
    """Hints that nobody hears."""

    def send(self, hint: object) -> None:
        """Nothing."""

    def subscribe(self, kinds: object, listener: object) -> Callable[[], None]:
        """Nothing."""
        return lambda: None

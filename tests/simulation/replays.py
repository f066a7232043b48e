# SPDX-License-Identifier: Apache-2.0
"""Short words for replays in tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gpuservice.planner.plan_types import Plan
from gpuservice.planner.session import Session
from gpuservice.planner.snapshot import Policy, Request
from gpuservice.simulation.cluster import Cluster, from_spec
from gpuservice.simulation.policies import POLICIES
from gpuservice.simulation.replay import Replay, Replayed, World
from gpuservice.simulation.workload import WorkloadJob

Attempts = list[tuple[float, float | None, str | None]]


def job(name: str, at: float, runs: float, gpus: int = 1, **more: Any) -> WorkloadJob:
    """A job of so many GPUs on one host, or of ``tasks`` such; its limit is what it needs."""
    tasks = more.pop("tasks", 1)
    request = Request(
        count=tasks, min_count=more.pop("min_tasks", tasks), gpu_milli=int(1000 * gpus)
    )
    more.setdefault("max_runtime_s", max(1, int(runs)))
    return WorkloadJob(name, at, runs, request, **more)


def replay(
    jobs: Sequence[WorkloadJob],
    cluster: Cluster | str = "1x8",
    policy: Policy | str = "skip",
    session: Callable[..., Session] = Session,
    timeline: bool = False,
    **world: Any,
) -> Replayed:
    """Run it."""
    world.setdefault("oracle", isinstance(policy, str) and POLICIES[policy].oracle)
    return Replay(
        from_spec(cluster) if isinstance(cluster, str) else cluster,
        jobs,
        POLICIES[policy].policy if isinstance(policy, str) else policy,
        World(**world),
        timeline,
        session,
    ).run()


def attempts(replayed: Replayed) -> dict[str, Attempts]:
    """Name -> (start, end, outcome) of each attempt."""
    return {
        record.job.name: [(one.start_s, one.end_s, one.outcome) for one in record.attempts]
        for record in replayed.records
    }


def starts(replayed: Replayed) -> dict[str, list[float]]:
    """Name -> when its attempts began."""
    return {name: [one[0] for one in ran] for name, ran in attempts(replayed).items()}


def statuses(replayed: Replayed) -> dict[str, str]:
    """Name -> how it ended."""
    return {record.job.name: record.status for record in replayed.records}


class Scripted:
    """A session whose plans also say what a test wants said at some moments.

    ``script``: moment -> a function of the session's own plan.
    """

    def __init__(self, script: dict[float, Callable[[Plan], Plan]]) -> None:
        self._script = dict(script)
        self.told: list[tuple[str, Any]] = []
        self.planned: list[float] = []

    def __call__(self, *given: Any) -> Session:
        """Make the session."""
        outer = self

        class Session_(Session):
            def plan(self, now: float, **more: Any) -> Plan:
                outer.planned.append(now)
                made = super().plan(now, **more)
                change = outer._script.pop(now, None)
                return made if change is None else change(made)

            def submit(self, job: Any) -> None:
                outer.told.append(("submit", job))
                super().submit(job)

            def stopping(self, gang_id: str, until: float) -> None:
                outer.told.append(("stopping", (gang_id, until)))
                super().stopping(gang_id, until)

        return Session_(*given)


def also(**more: Any) -> Callable[[Plan], Plan]:
    """A plan with these fields instead."""
    return lambda made: replace(made, **more)

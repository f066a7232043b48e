# SPDX-License-Identifier: Apache-2.0
"""Quotas of projects, and each caller's own limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuservice.domain.context import Caller, cause_of
from gpuservice.domain.happenings import happening
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.quota import kept, shown
from gpuservice.domain.work import QuotaState
from gpuservice.services.deps import Deps

Number = int | float


@dataclass(frozen=True, slots=True)
class ProjectQuota:
    """A project's limits and use, as users see them (GPUs; -1 is unlimited)."""

    project_id: str
    limits: dict[str, Number]
    usage: dict[str, Number]
    free_now: dict[str, Number] | None = None


def _view(project_id: str, states: list[QuotaState]) -> ProjectQuota:
    return ProjectQuota(
        project_id,
        {one.name: shown(one.name, one.limit) for one in states},
        {one.name: shown(one.name, one.in_use) for one in states},
    )


class Quotas:
    """Quotas."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def page(self, limit: int, marker: str | None) -> list[ProjectQuota]:
        """Quotas of every project that has limits or use, by project id."""

        def work(uow: UnitOfWork) -> list[ProjectQuota]:
            projects = [one for one in uow.quotas.projects() if marker is None or one > marker]
            states = uow.quotas.states_of(projects[:limit])
            return [_view(one, states[one]) for one in projects[:limit]]

        return self._deps.store.read(work)

    def show(self, project_id: str) -> ProjectQuota:
        """One project's; every project has one, if only of defaults."""
        return self._deps.store.read(lambda uow: _view(project_id, uow.quotas.states(project_id)))

    def change(
        self, caller: Caller, project_id: str, limits: Mapping[str, int | None]
    ) -> ProjectQuota:
        """Set limits; null goes back to the default. Below what is in use is allowed."""

        def work(uow: UnitOfWork) -> ProjectQuota:
            uow.quotas.set_limits(
                project_id,
                {
                    name: None if value is None else kept(name, value)
                    for name, value in limits.items()
                },
            )
            uow.events.add(
                happening(
                    self._deps.ids,
                    uow.now(),
                    cause_of(caller),
                    "quota.change",
                    "quota",
                    project_id,
                    project_id=project_id,
                    detail={"limits": dict(limits)},
                )
            )
            return _view(project_id, uow.quotas.states(project_id))

        quota = self._deps.store.write(work)
        self._deps.hints.send(Hint("jobs"))
        return quota

    def delete(self, caller: Caller, project_id: str) -> None:
        """Back to the defaults."""

        def work(uow: UnitOfWork) -> None:
            uow.quotas.drop_limits(project_id)
            uow.events.add(
                happening(
                    self._deps.ids,
                    uow.now(),
                    cause_of(caller),
                    "quota.delete",
                    "quota",
                    project_id,
                    project_id=project_id,
                )
            )

        self._deps.store.write(work)
        self._deps.hints.send(Hint("jobs"))

    def own(self, caller: Caller) -> ProjectQuota:
        """The caller's limits, use, and what is free for him now by GPU type."""

        def work(uow: UnitOfWork) -> ProjectQuota:
            view = _view(caller.project_id, uow.quotas.states(caller.project_id))
            return ProjectQuota(
                view.project_id, view.limits, view.usage, _free_now(uow, caller.project_id)
            )

        return self._deps.store.read(work)


def _free_now(uow: UnitOfWork, project_id: str) -> dict[str, Number]:
    """Free GPUs by type on the pools whose queues are open to the project."""
    pools = {
        pool
        for queue in uow.queues.find(Where("status", "eq", "open"))
        if queue.open_to(project_id)
        for pool in queue.pool_ids
    }
    if not pools:
        return {}
    nodes = [
        node.id
        for node in uow.nodes.find(
            Where("pool_id", "in", sorted(pools)), Where("status", "eq", "ready")
        )
    ]
    free: dict[str, int] = {}
    if nodes:
        for device in uow.devices.find(
            Where("node_id", "in", nodes), Where("health", "eq", "healthy")
        ):
            free[device.gpu_type] = free.get(device.gpu_type, 0) + 1000 - device.used_milli
    return {name: shown("gpus", milli) for name, milli in sorted(free.items())}

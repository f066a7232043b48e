# SPDX-License-Identifier: Apache-2.0
"""What-if simulations: asked for, looked at, deleted. The conductor runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gpuservice.domain import moments
from gpuservice.domain.context import Caller
from gpuservice.domain.errors import Conflict, Invalid, UnknownReference
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import Page, UnitOfWork, Where
from gpuservice.domain.simulations import Simulation
from gpuservice.domain.states import POOL_COUNTED
from gpuservice.domain.work import Queue
from gpuservice.services.catalogue import Catalogue
from gpuservice.services.idempotency import Once
from gpuservice.services.visibility import UUID, check_generation, found


class Simulations(Catalogue):
    """What-if simulations, the operator's."""

    def page(self, caller: Caller, page: Page, count: bool) -> tuple[list[Simulation], int | None]:
        """One page."""
        return self._page("simulations", page, count)

    def show(self, caller: Caller, ident: str) -> Simulation:
        """One."""
        return self.deps.store.read(lambda uow: found(uow.simulations, ident, "simulation"))

    def create(self, caller: Caller, body: Mapping[str, Any], once: Once) -> Simulation:
        """Ask for one; it waits for those before it."""
        request = {name: value for name, value in body.items() if name not in ("name", "workload")}
        workload = tuple(body.get("workload") or ())
        _check_times(request.get("history"))
        _check_rows(workload)

        def work(uow: UnitOfWork) -> Simulation:
            once.begin(uow)
            kept, most = uow.simulations.count(), self.deps.conf.simulation.max_kept
            if kept >= most:
                raise Conflict(f"There are {kept} simulations, as many as are kept; delete some.")
            now = uow.now()
            row = Simulation(
                id=self.deps.ids.new(),
                created_at=now,
                updated_at=now,
                name=body["name"],
                user_id=caller.user_id,
                request=request,
                workload=workload,
                resolved=_resolved(uow, request.get("change") or {}, workload),
            )
            uow.simulations.add(row)
            self._note(uow, caller, "simulation.create", "simulation", row.id)
            once.keep(uow, row)
            return row

        row = self.deps.store.write(work)
        self.deps.hints.send(Hint("simulations", (row.id,)))
        return row

    def delete(self, caller: Caller, ident: str, generation: int | None) -> None:
        """Delete one; if it runs, its process ends."""

        def work(uow: UnitOfWork) -> None:
            row = found(uow.simulations, ident, "simulation", lock=True)
            check_generation(row, generation)
            uow.simulations.remove(ident)
            self._note(uow, caller, "simulation.delete", "simulation", ident)

        self.deps.store.write(work)
        self.deps.hints.send(Hint("simulations", (ident,)))


def _check_times(history: Mapping[str, str] | None) -> None:
    """A window of time that has an end after its begin."""
    if not history:
        return
    since, until = (_moment(history[name], name) for name in ("since", "until"))
    if until <= since:
        raise Invalid(
            f"until is {history['until']!r}, which is not after since.",
            pointer="/simulation/history/until",
        )


def _moment(text: str, name: str) -> datetime:
    try:
        return moments.parsed(text)
    except ValueError as error:
        raise Invalid(
            f"{name} is {text[:80]!r}; it must be an ISO 8601 time from 1970 to 9998.",
            pointer=f"/simulation/history/{name}",
        ) from error


def _check_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """What a schema cannot say of rows: fields that exclude each other, names of other rows."""
    seen: dict[str, int] = {}
    for row in rows:
        if "name" in row:
            seen[row["name"]] = seen.get(row["name"], 0) + 1
    for at, row in enumerate(rows):
        pointer = f"/simulation/workload/{at}"
        tasks = row.get("tasks", 1)
        if row.get("min_tasks", tasks) > tasks:
            raise Invalid(
                f"min_tasks is {row['min_tasks']}, more than tasks, which is {tasks}.",
                pointer=f"{pointer}/min_tasks",
            )
        asked = [one for one in ("gpus_per_task", "gpu_milli", "gpu_memory_mib") if one in row]
        if len(asked) > 1:
            raise Invalid(
                f"Only one of {' and '.join(asked)} may be given.", pointer=f"{pointer}/{asked[1]}"
            )
        for place, reference in enumerate(row.get("depends_on", ())):
            _check_dependency(reference, row.get("name"), seen, f"{pointer}/depends_on/{place}")


def _check_dependency(
    reference: str, own: str | None, seen: Mapping[str, int], pointer: str
) -> None:
    other, _, condition = reference.partition(":")
    if condition not in ("", "succeeded", "failed", "ended", "started"):
        raise Invalid(
            f"{reference!r} must be NAME or NAME:CONDITION with succeeded, failed, ended or "
            "started.",
            pointer=pointer,
        )
    if other == own or seen.get(other, 0) != 1:
        raise UnknownReference(
            f"There is no one other row that is named {other!r}.", pointer=pointer
        )


def _resolved(
    uow: UnitOfWork, change: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The ids of what change and rows name.

    :raises UnknownReference: for what is not there, or is several.
    """
    queues = uow.queues.find(order=(("id", "asc"),))
    cohorts = {row.name for row in uow.cohorts.find()}
    for reference, values in (change.get("queues") or {}).items():
        if values.get("cohort") is not None and values["cohort"] not in cohorts:
            raise UnknownReference(
                f"There is no cohort {values['cohort']!r}.",
                pointer=f"/simulation/change/queues/{reference}/cohort",
            )
    pools = uow.pools.find(Where("status", "in", POOL_COUNTED))
    return {
        "queues": {
            reference: _one("queue", queues, reference, f"/simulation/change/queues/{reference}")
            for reference in change.get("queues") or {}
        },
        "pools": {
            reference: _one("pool", pools, reference, f"/simulation/change/pools/{reference}")
            for reference in change.get("pools") or {}
        },
        "workload": _queues_of_rows(queues, rows),
    }


def _one(noun: str, rows: Sequence[Any], reference: str, pointer: str) -> str:
    field = "id" if UUID.match(reference) else "name"
    wanted = reference.lower() if field == "id" else reference
    ids = [str(row.id) for row in rows if getattr(row, field) == wanted]
    if len(ids) != 1:
        many = "more than one; name it by its id" if ids else "none"
        raise UnknownReference(
            f"Of {noun}s {reference!r} there is {many}.",
            pointer=pointer,
        )
    return ids[0]


def _queues_of_rows(queues: Sequence[Queue], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of each row its queue, found as a job of its project would find it."""
    known: dict[tuple[str, str], str] = {}
    found_ids = []
    for at, row in enumerate(rows):
        key = (row.get("project", "default"), row.get("queue", "default"))
        if key not in known:
            known[key] = _queue_of(queues, *key, f"/simulation/workload/{at}/queue")
        found_ids.append(known[key])
    return found_ids


def _queue_of(queues: Sequence[Queue], project: str, reference: str, pointer: str) -> str:
    field = "id" if UUID.match(reference) else "name"
    wanted = reference.lower() if field == "id" else reference
    named = [row for row in queues if getattr(row, field) == wanted]
    usable = [row for row in named if row.project_id == project]
    usable += [row for row in named if row.project_id != project and row.open_to(project)]
    if not usable:
        raise UnknownReference(
            f"There is no queue {reference!r} that the project {project!r} may use.",
            pointer=pointer,
        )
    return usable[0].id

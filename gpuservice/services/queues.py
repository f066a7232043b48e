# SPDX-License-Identifier: Apache-2.0
"""Queues: where jobs wait, for whom they are open, and which pools serve them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuservice.domain.context import Caller, cause_of
from gpuservice.domain.errors import Conflict, NotFound, UnknownReference
from gpuservice.domain.happenings import happening
from gpuservice.domain.merge_patch import merged
from gpuservice.domain.pools import serves
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import Page, UnitOfWork, Where
from gpuservice.domain.states import POOL_COUNTED
from gpuservice.domain.work import Queue
from gpuservice.services.deps import Deps
from gpuservice.services.idempotency import Once
from gpuservice.services.queue_rules import (
    check_manager,
    check_one_cohort,
    check_own_pools,
    check_types,
    cohort_name,
)
from gpuservice.services.visibility import UUID, check_generation, visible_page


class Queues:
    """Queues."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def page(self, caller: Caller, page: Page, count: bool) -> tuple[list[Queue], int | None]:
        """One page: of the queues open to the caller's project, or (for who sees all) of another
        project's own, or of all."""
        mine = Where("project_id", "eq", caller.project_id)
        if mine in page.where:
            page = replace(page, where=tuple(one for one in page.where if one != mine))

            def sees(row: Queue) -> bool:
                return row.open_to(caller.project_id)
        else:

            def sees(row: Queue) -> bool:
                return caller.sees_all

        return self._deps.store.read(lambda uow: visible_page(uow.queues, page, sees, count))

    def show(self, caller: Caller, ident: str) -> Queue:
        """One that the caller may use."""
        return self._deps.store.read(lambda uow: _queue(uow, caller, ident))

    def create(self, caller: Caller, body: Mapping[str, Any], once: Once) -> Queue:
        """Make one; without a project it is the operator's, cloud-wide."""

        def work(uow: UnitOfWork) -> Queue:
            once.begin(uow)
            project = body.get("project_id", caller.project_id)
            values = {
                name: value
                for name, value in body.items()
                if name not in ("pools", "project_id", "projects", "cohort")
            }
            check_types(uow, body)
            row = Queue(
                id=self._deps.ids.new(),
                created_at=uow.now(),
                updated_at=uow.now(),
                project_id=project,
                projects=tuple(body.get("projects", ())),
                cohort=cohort_name(uow, body.get("cohort"), project),
                pool_ids=self._pools(uow, body.get("pools", ()), project),
                name_key=_name_key(project, body["name"]),
                **values,
            )
            check_one_cohort(uow, row)
            uow.queues.add(row)
            self._note(uow, caller, "queue.create", row)
            once.keep(uow, row)
            return row

        row = self._deps.store.write(work)
        self._deps.hints.send(Hint("jobs"))
        return row

    def change(
        self, caller: Caller, ident: str, patch: Mapping[str, Any], generation: int | None
    ) -> Queue:
        """Change one; a manager the parts that are a manager's."""

        def work(uow: UnitOfWork) -> Queue:
            row = _queue(uow, caller, ident, lock=True)
            check_generation(row, generation)
            check_manager(caller, row, patch)
            values = {
                name: _written(row, name, value) for name, value in patch.items() if name != "pools"
            }
            check_types(uow, patch)
            if "cohort" in patch:
                values["cohort"] = cohort_name(uow, patch["cohort"], row.project_id)
            if "pools" in patch:
                values["pool_ids"] = self._pools(uow, patch["pools"], row.project_id)
                check_own_pools(uow, caller, row, values["pool_ids"])
            check_one_cohort(uow, replace(row, **values))
            if "name" in values:
                values["name_key"] = _name_key(row.project_id, values["name"])
            uow.queues.change(ident, values, edit=True)
            self._note(uow, caller, "queue.change", row, {"fields": sorted(patch)})
            return _queue(uow, caller, ident)

        row = self._deps.store.write(work)
        self._deps.hints.send(Hint("jobs"))
        return row

    def delete(self, caller: Caller, ident: str, generation: int | None) -> None:
        """Delete one without live jobs."""

        def work(uow: UnitOfWork) -> None:
            row = _queue(uow, caller, ident, lock=True)
            check_generation(row, generation)
            live = uow.jobs.count(Where("queue_id", "eq", ident), Where("open", "eq", 1))
            if live:
                raise Conflict(f"The queue {row.name!r} has {live} jobs that have not ended.")
            uow.queues.remove(ident)
            self._note(uow, caller, "queue.delete", row)

        self._deps.store.write(work)

    def _pools(self, uow: UnitOfWork, references: Any, project_id: str | None) -> tuple[str, ...]:
        """Pool ids of names or ids: the project's own, or shared with it (any, for a cloud-wide
        queue)."""
        chosen: list[str] = []
        for index, reference in enumerate(references):
            field = "id" if UUID.match(reference) else "name"
            rows = [
                row
                for row in uow.pools.find(
                    Where(field, "eq", reference),
                    Where("status", "in", POOL_COUNTED),
                    lock="share",  # it is not deleted while a queue comes to name it
                )
                if serves(row, project_id)
            ]
            if len(rows) != 1:
                raise UnknownReference(
                    f"There is no pool {reference!r} that may be used here.",
                    pointer=f"/queue/pools/{index}",
                )
            chosen.append(rows[0].id)
        return tuple(chosen)

    def _note(
        self,
        uow: UnitOfWork,
        caller: Caller,
        action: str,
        row: Queue,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        uow.events.add(
            happening(
                self._deps.ids,
                uow.now(),
                cause_of(caller),
                action,
                "queue",
                row.id,
                project_id=row.project_id,
                detail=detail,
            )
        )


def _written(row: Queue, name: str, value: Any) -> Any:
    """What a field of a merge patch leaves in the row."""
    if isinstance(value, dict):
        return merged(getattr(row, name), value, f"/queue/{name}")
    return tuple(value) if isinstance(value, list) else value


def _name_key(project_id: str | None, name: str) -> str:
    return f"{project_id or '*'}/{name}"


def _sees(caller: Caller, row: Queue) -> bool:
    return caller.sees_all or row.open_to(caller.project_id)


def _queue(uow: UnitOfWork, caller: Caller, ident: str, *, lock: bool = False) -> Queue:
    row = uow.queues.get(ident, lock=lock)
    if row is None or not _sees(caller, row):
        raise NotFound.of("queue", ident)
    return row

# SPDX-License-Identifier: Apache-2.0
"""Cohorts: queues of several projects that use each other's idle GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuservice.domain.context import Caller
from gpuservice.domain.errors import Conflict
from gpuservice.domain.ports import Hint
from gpuservice.domain.ports_store import Page, UnitOfWork, Where
from gpuservice.domain.work import Cohort
from gpuservice.services.catalogue import Catalogue, Noun
from gpuservice.services.idempotency import Once
from gpuservice.services.visibility import check_generation, found

COHORT = Noun(Cohort, lambda uow: uow.cohorts, "cohort", "cohort")


class Cohorts(Catalogue):
    """Cohorts. Queues refer to them by name, which the database follows when it changes."""

    def page(self, caller: Caller, page: Page, count: bool) -> tuple[list[Cohort], int | None]:
        """One page."""
        return self._page("cohorts", page, count)

    def show(self, caller: Caller, ident: str) -> Cohort:
        """One."""
        return self.deps.store.read(lambda uow: found(uow.cohorts, ident, "cohort"))

    def create(self, caller: Caller, body: Mapping[str, Any], once: Once) -> Cohort:
        """Make one; it has no queues yet."""
        return self._create(caller, COHORT, body, once)

    def change(
        self, caller: Caller, ident: str, patch: Mapping[str, Any], generation: int | None
    ) -> Cohort:
        """Change name or projects."""

        def check(uow: UnitOfWork, row: Cohort) -> None:
            if "projects" in patch:
                _check_projects(uow, row, patch["projects"])

        row = self._change(caller, COHORT, ident, patch, generation, check)
        self.deps.hints.send(Hint("jobs"))
        return row

    def delete(self, caller: Caller, ident: str, generation: int | None) -> None:
        """Delete one without queues."""

        def work(uow: UnitOfWork) -> None:
            row = found(uow.cohorts, ident, "cohort", lock=True)
            check_generation(row, generation)
            used = uow.queues.count(Where("cohort", "eq", row.name))
            if used:
                raise Conflict(
                    f"The cohort {row.name!r} has {used} queues. Take them out of it first."
                )
            uow.cohorts.remove(ident)
            self._note(uow, caller, "cohort.delete", "cohort", ident)

        self.deps.store.write(work)


def _check_projects(uow: UnitOfWork, row: Cohort, projects: list[str]) -> None:
    """A project whose queues are in it stays."""
    for queue in uow.queues.find(Where("cohort", "eq", row.name), order=(("name", "asc"),)):
        if queue.project_id is not None and not {"*", queue.project_id} & set(projects):
            raise Conflict(
                f"The queue {queue.name!r} of the project {queue.project_id!r} is in the cohort "
                f"{row.name!r}.",
                pointer="/cohort/projects",
            )

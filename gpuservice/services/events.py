# SPDX-License-Identifier: Apache-2.0
"""Events: what happened, to whom it may concern."""

from __future__ import annotations

from gpuservice.domain.context import Caller
from gpuservice.domain.ports_store import Page, UnitOfWork
from gpuservice.domain.work import Event
from gpuservice.services.deps import Deps


class Events:
    """Events, read-only."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def page(self, caller: Caller, page: Page, count: bool) -> tuple[list[Event], int | None]:
        """One page in the order of writing."""

        def work(uow: UnitOfWork) -> tuple[list[Event], int | None]:
            return uow.events.page(page), uow.events.count(*page.where) if count else None

        return self._deps.store.read(work)

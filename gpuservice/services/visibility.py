# SPDX-License-Identifier: Apache-2.0
"""What exists for a caller: foreign objects and absent ones answer alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

from gpuservice.domain.context import Caller
from gpuservice.domain.errors import Invalid, NotFound, StaleGeneration, UnknownReference
from gpuservice.domain.ports_store import Page, Repository, UnitOfWork, Where
from gpuservice.domain.work import Queue

UUID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", re.IGNORECASE)


class Owned(Protocol):
    """A row that belongs to a project."""

    @property
    def project_id(self) -> str | None:
        """Its project, None for cloud-wide."""


T = TypeVar("T")
OwnedT = TypeVar("OwnedT", bound=Owned)


def found(repository: Repository[T], ident: str, noun: str, *, lock: bool = False) -> T:
    """The row; raises ``NotFound``."""
    row = repository.get(ident, lock=lock)
    if row is None:
        raise NotFound.of(noun, ident)
    return row


def owned(
    repository: Repository[OwnedT], caller: Caller, ident: str, noun: str, *, lock: bool = False
) -> OwnedT:
    """The row if it is the caller's (or the caller sees all); raises ``NotFound``."""
    row = repository.get(ident, lock=lock)
    if row is None or not (row.project_id == caller.project_id or caller.sees_all):
        raise NotFound.of(noun, ident)
    return row


def check_generation(row: Any, wanted: int | None) -> None:
    """Raise ``StaleGeneration`` unless ``If-Match`` holds."""
    if wanted is not None and row.generation != wanted:
        raise StaleGeneration(
            f"The object has generation {row.generation}, not {wanted}; read it again.",
            meta={"generation": row.generation},
        )


def by_name_or_id(
    repository: Repository[T],
    reference: str,
    visible: Callable[[T], bool],
    pointer: str,
    noun: str,
    name_filter: tuple[Where, ...] = (),
) -> T:
    """What a body means by a name or id; it stays until the unit of work ends.

    :raises UnknownReference: the same for what is absent and what is not visible.
    """
    field = "id" if UUID.match(reference) else "name"
    wanted = reference.lower() if field == "id" else reference
    for row in repository.find(Where(field, "eq", wanted), *name_filter, lock="share"):
        if visible(row):
            return row
    raise UnknownReference(
        f"There is no {noun} {reference!r} that may be used here.", pointer=pointer
    )


def queue_for(uow: UnitOfWork, caller: Caller, reference: str, *, hold: bool = False) -> Queue:
    """The queue a job names: the own project's first, then those open to it.

    :param hold: it must stay as it is until the unit of work ends: a job will refer to it.
    """
    field = "id" if UUID.match(reference) else "name"
    wanted = Where(field, "eq", reference.lower() if field == "id" else reference)
    rows = uow.queues.find(wanted, lock="share" if hold else False)
    ours = [row for row in rows if row.project_id == caller.project_id]
    open_to_us = [row for row in rows if row.open_to(caller.project_id)]
    for row in (*ours, *sorted(open_to_us, key=lambda one: one.id)):
        return row
    raise UnknownReference(
        f"There is no queue {reference!r} that may be used here.", pointer="/job/queue"
    )


def visible_page(
    repository: Repository[T], page: Page, sees: Callable[[T], bool], count: bool
) -> tuple[list[T], int | None]:
    """A page of what the caller sees, where no condition of a query can tell: for nouns of
    which a cloud has few (flavors, queues). Reads on until the page is full.

    :raises Invalid: for a marker that is gone or that the caller does not see, in the same words.
    """
    if page.marker is not None:
        last = repository.get(page.marker)
        if last is None or not sees(last):
            raise Invalid(
                f"The marker {page.marker!r} is not in this list (any more).", pointer="marker"
            )
    rows: list[T] = []
    piece = page
    while len(rows) < page.limit:
        batch = repository.page(piece)
        rows.extend(row for row in batch if sees(row))
        if len(batch) < page.limit:
            break
        piece = replace(page, marker=cast(Any, batch[-1]).id)
    total = sum(map(sees, repository.find(*page.where))) if count else None
    return rows[: page.limit], total

# SPDX-License-Identifier: Apache-2.0
"""A creating request with an ``Idempotency-Key`` happens once; repeats get the first answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuservice.domain.errors import IdempotencyInProgress, IdempotencyMismatch
from gpuservice.domain.ports_store import UnitOfWork
from gpuservice.domain.work import IdempotencyRecord

#: (status, body, headers) of an answer.
Kept = tuple[int, dict[str, Any], dict[str, str]]


class Replay(Exception):
    """Raised out of a unit of work: the request was answered before, like this."""

    def __init__(self, answer: Kept) -> None:
        super().__init__("answered before")
        self.answer = answer


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A key within its scope, with the digest of what was asked."""

    project_id: str
    user_id: str
    path: str
    key: str
    digest: str


class Once:
    """Keeps the answer of one creating request in the transaction that creates.

    :param key: None when the request carries no key: then nothing is kept.
    :param render: makes the answer of what was created.
    """

    def __init__(self, key: IdempotencyKey | None, render: Callable[[Any], Kept]) -> None:
        self._key = key
        self._render = render

    def begin(self, uow: UnitOfWork) -> None:
        """First step of the unit of work.

        :raises Replay: when the request was answered before.
        :raises IdempotencyMismatch: when the key was used for something else.
        """
        key = self._key
        if key is None:
            return
        fresh = uow.save_idempotency(
            IdempotencyRecord(
                project_id=key.project_id,
                user_id=key.user_id,
                path=key.path,
                key=key.key,
                digest=key.digest,
                status=None,
                body=None,
                created_at=uow.now(),
            )
        )
        if fresh:
            return
        known = uow.idempotency(key.project_id, key.user_id, key.path, key.key)
        if known is not None and known.digest != key.digest:
            raise IdempotencyMismatch(
                f"The Idempotency-Key {key.key!r} was used with another request."
            )
        if known is None or known.status is None:
            raise IdempotencyInProgress(
                f"The first request with the Idempotency-Key {key.key!r} still runs."
            )
        raise Replay((known.status, known.body or {}, known.headers))

    def keep(self, uow: UnitOfWork, created: Any) -> None:
        """Last step of the unit of work."""
        key = self._key
        if key is None:
            return
        status, body, headers = self._render(created)
        uow.finish_idempotency(
            IdempotencyRecord(
                project_id=key.project_id,
                user_id=key.user_id,
                path=key.path,
                key=key.key,
                digest=key.digest,
                status=status,
                body=body,
                headers=headers,
                created_at=uow.now(),
            )
        )

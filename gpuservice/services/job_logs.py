# SPDX-License-Identifier: Apache-2.0
"""Logs of jobs: by byte offset, with waiting for more."""

from __future__ import annotations

from gpuservice.domain.context import Caller
from gpuservice.domain.errors import NotFound
from gpuservice.domain.ports import LogPiece, UnitOfWork, Where
from gpuservice.services.deps import Deps
from gpuservice.services.visibility import owned
from gpuservice.services.waiting_room import WaitingRoom

#: Bytes of one answer at most.
PIECE = 1 << 20


def log_key(job_id: str, attempt_id: str, task_id: str, stream: str) -> str:
    """Where the log store keeps a stream."""
    return f"{job_id}/{attempt_id}/{task_id}/{stream}"


class JobLogs:
    """Reads logs."""

    def __init__(self, deps: Deps, room: WaitingRoom) -> None:
        self._deps = deps
        self._room = room

    def read(
        self, caller: Caller, ident: str, *, index: int, rank: int, stream: str, offset: int,
        attempt: int | None, wait_s: int,
    ) -> LogPiece:
        """A piece of one stream of one task; of the last attempt unless one is named.

        :raises NotFound: when there is no such attempt or task.
        """
        def key_of(uow: UnitOfWork) -> str | None:
            job = owned(uow.jobs, caller, ident, "job")
            where = [Where("job_id", "eq", ident), Where("index", "eq", index)]
            if attempt is not None:
                where.append(Where("number", "eq", attempt))
            attempts = uow.attempts.find(*where, order=(("number", "desc"),), limit=1)
            if not attempts:
                if attempt is not None or index >= job.elements:
                    raise NotFound.of("attempt", str(attempt or index))
                return None
            tasks = uow.tasks.find(Where("attempt_id", "eq", attempts[0].id),
                                   Where("rank", "eq", rank))
            if not tasks:
                raise NotFound.of("task", str(rank))
            return log_key(ident, attempts[0].id, tasks[0].id, stream)

        def look() -> LogPiece | None:
            key = self._deps.store.read(key_of)
            if key is None:
                return None
            piece = self._deps.logs.read(key, offset, PIECE)
            return piece if piece.data or piece.end else None

        piece = self._room.wait_for(ident, float(wait_s), look)
        if piece is not None:
            return piece
        start = max(offset, 0)
        return LogPiece(b"", start, start, False)

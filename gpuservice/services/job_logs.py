# SPDX-License-Identifier: Apache-2.0
"""Logs of jobs: by byte offset, with waiting for more."""

from __future__ import annotations

from dataclasses import replace

from gpuservice.domain.context import Caller
from gpuservice.domain.errors import NotFound
from gpuservice.domain.ports import LogPiece
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.states import JOB_ENDED, TaskStatus
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
        self,
        caller: Caller,
        ident: str,
        *,
        index: int,
        rank: int,
        stream: str,
        offset: int,
        attempt: int | None,
        wait_s: int,
    ) -> LogPiece:
        """A piece of one stream of one task; of the last attempt unless one is named.

        :raises NotFound: when there is no such attempt or task.
        """

        def look() -> LogPiece | None:
            key, over = self._deps.store.read(
                lambda uow: _stream(uow, caller, ident, index, rank, stream, attempt)
            )
            piece = None if key is None else self._deps.logs.read(key, offset, PIECE)
            if over and (piece is None or len(piece.data) < PIECE):
                # Whatever it wrote was kept before it was recorded gone.
                start = max(offset, 0)
                piece = piece or LogPiece(b"", start, start, True)
                return replace(piece, end=True)
            return piece if piece is not None and (piece.data or piece.end) else None

        piece = self._room.wait_for(ident, float(wait_s), look)
        if piece is not None:
            return piece
        start = max(offset, 0)
        return LogPiece(b"", start, start, False)


def _stream(
    uow: UnitOfWork,
    caller: Caller,
    ident: str,
    index: int,
    rank: int,
    stream: str,
    attempt: int | None,
) -> tuple[str | None, bool]:
    """The key of a stream (None: nothing started yet), and whether nothing more will come."""
    job = owned(uow.jobs, caller, ident, "job")
    where = [Where("job_id", "eq", ident), Where("index", "eq", index)]
    if attempt is not None:
        where.append(Where("number", "eq", attempt))
    attempts = uow.attempts.find(*where, order=(("number", "desc"),), limit=1)
    if not attempts:
        if attempt is not None or index >= job.elements:
            if attempt is None:
                raise NotFound.of("index", str(index))
            raise NotFound.of("attempt", str(attempt))
        return None, job.status in JOB_ENDED
    tasks = uow.tasks.find(Where("attempt_id", "eq", attempts[0].id), Where("rank", "eq", rank))
    if not tasks:
        raise NotFound.of("task", str(rank))
    return (log_key(ident, attempts[0].id, tasks[0].id, stream), tasks[0].status == TaskStatus.GONE)

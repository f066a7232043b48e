# SPDX-License-Identifier: Apache-2.0
"""Which bytes of a task's streams the service still lacks, and how they get there."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping

from gpuservice.agent.client import AgentClient
from gpuservice.agent.errors import ApiAway, LogGap, Refused
from gpuservice.agent.logfiles import STREAMS, SegmentReader, SegmentWriter
from gpuservice.agent.wire import INLINE_LOG_BYTES, LogPiece

LOG = logging.getLogger(__name__)
#: More bytes than ride in a sync.
_MANY = 1 << 40


class LogCursor:
    """How far each stream of one task was taken over. Used by one shipping thread at a time."""

    def __init__(self, task_id: str, directory: str | None, chunk_bytes: int) -> None:
        self._task_id, self._directory, self._chunk = task_id, directory, chunk_bytes
        self._taken = dict.fromkeys(STREAMS, 0)
        #: Streams the service takes no more of: capped there, or given up.
        self._full: set[str] = set()
        self._readers = (
            {}
            if directory is None
            else {stream: SegmentReader(directory, stream) for stream in STREAMS}
        )

    def backlog(self) -> int:
        """Bytes of the longer waiting stream; many, where that cannot be told now."""
        try:
            return max(
                (
                    reader.size() - self._taken[stream]
                    for stream, reader in self._readers.items()
                    if stream not in self._full
                ),
                default=0,
            )
        except OSError as error:
            LOG.warning("task %s: its log cannot be read now: %s", self._task_id, error)
            return _MANY

    def inline(self, end: bool, most: int = INLINE_LOG_BYTES) -> dict[str, LogPiece]:
        """Short pieces to ride in a sync; a stream with more waiting goes by ``ship``."""
        pieces = {}
        for stream in STREAMS:
            offset, data = self._taken[stream], b""
            reader = self._readers.get(stream)
            if reader is not None and stream not in self._full:
                if reader.size() - offset > most:
                    continue
                offset, data = reader.read(offset, most)
            if data or end:
                pieces[stream] = LogPiece(offset=offset, data=data, end=end)
        return pieces

    def taken(self, pieces: Mapping[str, LogPiece]) -> None:
        """The service has these now."""
        for stream, piece in pieces.items():
            self._move(stream, piece.offset + len(piece.data))

    def ship(self, client: AgentClient, wanted: Callable[[], bool], leave: int) -> None:
        """Post streams in chunks until at most ``leave`` bytes of each wait.

        :raises ApiAway, Fenced, Revoked: from the client; what was taken stays taken.
        :raises ApiAway: when a stream cannot be read now, too: later it is tried again.
        """
        try:
            self._ship(client, wanted, leave)
        except OSError as error:
            raise ApiAway(f"a log cannot be read now: {error}") from error

    def _ship(self, client: AgentClient, wanted: Callable[[], bool], leave: int) -> None:
        for stream, reader in self._readers.items():
            while (
                wanted()
                and stream not in self._full
                and reader.size() - self._taken[stream] > leave
            ):
                offset, data = reader.read(self._taken[stream], self._chunk)
                if not data:
                    break
                try:
                    following, full = client.send_log(self._task_id, stream, offset, data)
                except LogGap as gap:
                    self._resume(stream, offset, gap.wanted)
                    continue
                except Refused as error:
                    LOG.warning("task %s: %s is given up: %s", self._task_id, stream, error)
                    self._full.add(stream)
                    break
                if full:
                    self._full.add(stream)
                self._move(stream, max(following, offset + len(data)))

    def note(self, text: str) -> None:
        """Add a line of our own to the stderr of an ended task, for its owner to read.

        Never raises: what there is no room for is not said.
        """
        if self._directory is not None:
            writer = SegmentWriter(self._directory, "stderr", 1 << 62, 1 << 20)
            writer.written = self._readers["stderr"].size()
            writer.write(f"gpuservice: {text}\n".encode(errors="backslashreplace"))
            writer.close()

    def _move(self, stream: str, offset: int) -> None:
        self._taken[stream] = max(self._taken[stream], offset)
        reader = self._readers.get(stream)
        if reader is not None:
            with contextlib.suppress(OSError):  # what stays is removed with the task
                reader.forget(self._taken[stream])

    def _resume(self, stream: str, offset: int, wanted: int) -> None:
        """Go to where the service stands; what lies before the first kept byte is lost."""
        start, data = self._readers[stream].read(wanted, 1)
        if start != wanted or not data or wanted == offset:
            LOG.warning(
                "task %s: %s is given up: bytes from %d are no longer here",
                self._task_id,
                stream,
                wanted,
            )
            self._full.add(stream)
        self._taken[stream] = wanted

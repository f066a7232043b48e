# SPDX-License-Identifier: Apache-2.0
"""A task's output on the node's disk: written by its supervisor, shipped from by the agent.

A stream is a row of segments named by the offset of their first byte (``stdout.0``). The writer
starts a new one when the last is full, the reader removes those that were taken over by the
service; together they never hold more than the stream's cap.
"""

from __future__ import annotations

import contextlib
import itertools
import os

STREAMS = ("stdout", "stderr")


class SegmentWriter:
    """Writes one stream; bytes beyond ``max_bytes`` of the whole stream are dropped."""

    def __init__(self, directory: str, stream: str, max_bytes: int, segment_bytes: int) -> None:
        self._directory, self._stream = directory, stream
        self._max, self._segment = max_bytes, segment_bytes
        self._file = -1
        self._room = 0
        self.written = 0
        self.dropped = 0

    def write(self, data: bytes) -> None:
        """Append; never raises for a full disk, what could not be written counts as dropped."""
        keep = min(len(data), self._max - self.written)
        self.dropped += len(data) - keep
        view = memoryview(data)[:keep]
        while view:
            try:
                if self._room <= 0:
                    self._next_segment()
                count = os.write(self._file, view[: self._room])
            except OSError:
                self.dropped += len(view)
                return
            self.written += count
            self._room -= count
            view = view[count:]

    def close(self) -> None:
        """Let go of the segment being written."""
        if self._file >= 0:
            os.close(self._file)
            self._file, self._room = -1, 0

    def _next_segment(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        path = f"{self._directory}/{self._stream}.{self.written}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._room = self._segment


class SegmentReader:
    """Reads one stream by offset; an offset that was removed reads from the first kept byte."""

    def __init__(self, directory: str, stream: str) -> None:
        self._directory, self._stream = directory, stream

    def _segments(self) -> list[tuple[int, str]]:
        prefix = f"{self._stream}."
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        return sorted(
            (int(name[len(prefix) :]), os.path.join(self._directory, name))
            for name in names
            if name.startswith(prefix) and name[len(prefix) :].isdigit()
        )

    def size(self) -> int:
        """Offset after the last byte there is now."""
        segments = self._segments()
        if not segments:
            return 0
        start, path = segments[-1]
        return start + os.path.getsize(path)

    def read(self, offset: int, most: int) -> tuple[int, bytes]:
        """Up to ``most`` bytes, with the offset they really start at."""
        found = bytearray()
        begin = offset
        for start, path in self._segments():
            if begin + len(found) < start and not found:
                begin = start
            at = begin + len(found)
            if start <= at < start + os.path.getsize(path) and len(found) < most:
                with open(path, "rb") as file:
                    file.seek(at - start)
                    found += file.read(most - len(found))
        return begin, bytes(found)

    def forget(self, offset: int) -> None:
        """Remove segments that end at or before ``offset``, but never the one being written."""
        segments = self._segments()
        for (_, path), (following, _) in itertools.pairwise(segments):
            if following <= offset:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)

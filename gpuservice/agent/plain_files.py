# SPDX-License-Identifier: Apache-2.0
"""Whole small files by system calls alone.

For processes that were forked and live shortly: each page of the interpreter that they touch is
copied for them, and the file objects of Python touch many.
"""

from __future__ import annotations

import os

_PIECE = 65536


def read(path: str) -> bytes:
    """The content of a file; raises ``OSError``."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return read_all(handle)
    finally:
        os.close(handle)


def read_all(handle: int) -> bytes:
    """What can be read of a handle until its end."""
    pieces = []
    while piece := os.read(handle, _PIECE):
        pieces.append(piece)
    return b"".join(pieces)


def write_all(handle: int, data: bytes) -> None:
    """Write to the last byte; raises ``OSError``."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]

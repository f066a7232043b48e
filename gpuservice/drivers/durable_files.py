# SPDX-License-Identifier: Apache-2.0
"""Small files that a power failure leaves whole: as they were, or as they were to be."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def replace(path: Path, text: str) -> None:
    """Replace a file as a whole; on disk when this returns.

    That is two waits for the disk, some milliseconds: for what changes seldom.
    """
    handle, aside = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

# SPDX-License-Identifier: Apache-2.0
"""What stores of files do when their disk is full: say so, in words and not too often."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuservice.domain.errors import StoreFull

LOG = logging.getLogger(__name__)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
#: One line in the log in so many seconds; and how long clients are to wait.
_SAID_EVERY_S = 60.0
_RETRY_S = 10
_said: dict[Path, float] = {}


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Around what writes below ``root``.

    :raises StoreFull: for a disk (or quota) that is full; other errors pass.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        now = time.monotonic()
        if now - _said.get(root, -_SAID_EVERY_S) >= _SAID_EVERY_S:
            _said[root] = now
            LOG.error("No room is left below %s: what tasks write is not kept", root)
        raise StoreFull("The store has no room left.", meta={"retry_after_s": _RETRY_S}) from error

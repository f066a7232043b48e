# SPDX-License-Identifier: Apache-2.0
"""How many files a process may have open, and what to make of it when there are no more.

Programs of the service take all they may have: an agent has a file open for each of its tasks, a
server one for each client. What they start gets the limit that they were started with themselves:
some programs still wait by select(), which ends at 1,024 files, or close every number up to the
limit.
"""

from __future__ import annotations

import contextlib
import errno
import resource

#: Errors that say "not now": no file can be opened at the moment, in the process or the machine.
_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
#: The last files of the limit, which watching tasks leaves to everything else in the process.
_SPARE = 128

_first: list[tuple[int, int]] = []


def raise_limit() -> None:
    """Let this process have as many files open as it may at all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        _first.append((soft, hard))


def give_first_limit(pid: int) -> None:
    """Give a child, and all that it will start, the limit that this process was started with."""
    if _first:
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _first[0])


def all_in_use(error: OSError) -> bool:
    """Whether an error says only that no further file can be opened now."""
    return error.errno in _FULL


def nearly_all_in_use(handle: int) -> bool:
    """Whether a file that was just opened is one of the last: the lowest free number is given."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and handle >= soft - min(_SPARE, soft // 4)

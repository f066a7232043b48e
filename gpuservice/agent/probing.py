# SPDX-License-Identifier: Apache-2.0
"""What a sandbox's probe says: that a means is there, that it is not, or nothing at all.

Only a plain refusal may lead to a weaker sandbox. A probe that ran out of time, found no room or
was ended by somebody says nothing of the means it was to prove: it is run again, and if it still
says nothing no task may be started on its word.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from gpuservice.agent.task_files import Result

LOG = logging.getLogger(__name__)
_TRIES = 3
_PAUSE_S = 0.5
#: Causes of an end that have nothing to do with what was to be proved.
_PASSING = ("lease", "orphan", "limit", "lost", "stop")


class CannotIsolate(RuntimeError):
    """Tasks cannot be kept apart from the machine as they must be, so none may be started."""


class CannotTell(Exception):
    """A probe came to no verdict."""


def verdict(result: Result, output: str) -> str | None:
    """What the probe printed to the file ``output``, null when its sandbox was refused.

    :raises CannotTell: when it ended for another reason. :raises OSError: when nothing is there.
    """
    if result.cause in _PASSING:
        raise CannotTell(result.evidence or f"it was ended: {result.cause}")
    if result.exit_code != 0:
        LOG.warning("a way to keep tasks apart is not there: %s", result.evidence or result)
        return None
    with open(output, encoding="utf-8") as file:
        return file.read()


def patiently(probe: Callable[[], str | None]) -> str | None:
    """The verdict of a probe that may need more than one try.

    :raises CannotIsolate: when it never came to one.
    """
    said = ""
    for number in range(_TRIES):
        if number:
            time.sleep(_PAUSE_S * number)
        try:
            return probe()
        except (CannotTell, OSError) as error:
            said = str(error)
            LOG.warning("a probe of the sandbox told nothing: %s", said)
    raise CannotIsolate(f"whether tasks can be kept apart could not be found out: {said}")

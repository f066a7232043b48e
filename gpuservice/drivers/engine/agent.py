# SPDX-License-Identifier: Apache-2.0
"""The embedded engine: nodes fetch their tasks, so starting and stopping is telling them to look.

The rows of an attempt's tasks are all a node needs; its next sync shows them. This driver only
makes that sync come soon.
"""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

from gpuservice.domain.ports import Hint, Hints
from gpuservice.domain.work import Attempt, Task


class AgentEngine:
    """Implements ``domain.ports.Engine``."""

    def __init__(self, conf: cfg.ConfigOpts, hints: Hints) -> None:
        self._hints = hints

    def start(self, attempt: Attempt, tasks: Sequence[Task]) -> None:
        """Wake the nodes."""
        self._wake(tasks)

    def stop(self, attempt: Attempt, tasks: Sequence[Task]) -> None:
        """Wake the nodes."""
        self._wake(tasks)

    def _wake(self, tasks: Sequence[Task]) -> None:
        self._hints.send(Hint("nodes", tuple(sorted({task.node_id for task in tasks}))))

# SPDX-License-Identifier: Apache-2.0
"""What the service (or its absence) answers, told apart by what the agent must do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """The service answered with an error; ``code`` is the contract's stable one."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        meta: Mapping[str, Any],
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{status} {code} {detail}".strip())
        self.status, self.code, self.meta = status, code, meta
        self.retry_after_s = retry_after_s


class ApiAway(Exception):
    """The service cannot be reached, or answers nothing usable: try again.

    Nothing usable is 5xx, 408, 429, and a 401 or 404 that carries no code of the contract: that
    is somebody else (a proxy, a wrong page) who speaks for the service, and nothing may be ended
    on such a word.
    """


class NotInTouch(ApiAway):
    """This agent has not registered yet, or lost the service: nothing was sent."""


class Refused(ApiError):
    """The request is wrong for good: retrying the same is of no use."""


class Revoked(ApiError):
    """401: this node's secret or token is no longer good."""


class Fenced(ApiError):
    """409 gpu.node.fenced: this epoch is over, whatever runs here must end."""


class InstanceConflict(ApiError):
    """409 gpu.agent.instance_conflict: another agent speaks for this node."""


class LogGap(ApiError):
    """409 gpu.log.gap: ``wanted`` is the offset to send from."""

    @property
    def wanted(self) -> int:
        """Offset of the first byte the service lacks."""
        return int(self.meta.get("offset", 0))

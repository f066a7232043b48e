# SPDX-License-Identifier: Apache-2.0
"""Who asks: the identity that the API hands to every use case."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated caller of one request.

    ``sees_all`` is set by the guard when policy lets the caller read every project;
    ``is_manager``/``is_admin`` likewise, so that use cases never look at role names.
    """

    project_id: str
    user_id: str
    roles: frozenset[str] = frozenset()
    request_id: str = ""
    global_request_id: str | None = None
    is_admin: bool = False
    is_manager: bool = False
    sees_all: bool = False

    def may_see(self, project_id: str | None) -> bool:
        """Whether an object of ``project_id`` (null: cloud-wide) exists for this caller."""
        return self.sees_all or project_id is None or project_id == self.project_id


@dataclass(frozen=True, slots=True)
class Cause:
    """What an event is attributed to: a request, or one of the service's own processes."""

    actor: str
    request_id: str | None = None
    global_request_id: str | None = None
    project_id: str | None = None
    extra: dict[str, str] = field(default_factory=dict)


def cause_of(caller: Caller) -> Cause:
    """The cause that a request's events carry."""
    return Cause(
        actor=f"user:{caller.user_id}",
        request_id=caller.request_id,
        global_request_id=caller.global_request_id,
        project_id=caller.project_id,
    )

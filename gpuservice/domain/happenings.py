# SPDX-License-Identifier: Apache-2.0
"""How events are made: one constructor, so that every state change leaves the same facts.

``/v1/events`` alone must suffice to replay each job to its final status: every change of a job's
status is one event ``job.<event>`` whose detail has ``from``, ``to`` and, where they apply,
``index`` (array element) and ``attempt``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpuservice.domain.context import Cause
from gpuservice.domain.ports import Ids
from gpuservice.domain.work import Event


def happening(
    ids: Ids,
    at: datetime,
    cause: Cause,
    action: str,
    target_type: str,
    target_id: str,
    *,
    project_id: str | None,
    outcome: str = "success",
    reason: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> Event:
    """An event ``action`` (``noun.verb``) on a target, attributed to ``cause``.

    ``reason`` is a stable code; ``detail`` is JSON-able and free of secrets.
    """
    return Event(
        id=ids.new(),
        at=at,
        project_id=project_id,
        actor=cause.actor,
        action=action,
        target_type=target_type,
        target_id=target_id,
        outcome=outcome,
        reason=reason,
        request_id=cause.request_id,
        global_request_id=cause.global_request_id,
        detail=dict(detail or {}),
    )


def status_change(
    ids: Ids,
    at: datetime,
    cause: Cause,
    noun: str,
    event: str,
    target_id: str,
    before: str,
    after: str,
    *,
    project_id: str | None,
    reason: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> Event:
    """The event of one step in a transition table (``job.start``: queued to starting)."""
    facts: dict[str, Any] = {"from": str(before), "to": str(after), **dict(detail or {})}
    return happening(
        ids,
        at,
        cause,
        f"{noun}.{event}",
        noun,
        target_id,
        project_id=project_id,
        reason=reason,
        detail=facts,
    )

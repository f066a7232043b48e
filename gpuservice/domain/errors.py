# SPDX-License-Identifier: Apache-2.0
"""Errors of the domain: a stable code, a sentence with the wrong value, and where it stood.

The API maps each class to an HTTP status in one table (``gpuservice.api.errors``); nothing here
knows HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class GpuServiceError(Exception):
    """Base of all errors a caller may see.

    :param detail: one sentence naming the value that was wrong and what would be right.
    :param pointer: JSON pointer of the field at fault (``/job/resources/gpus``), if any.
    :param meta: further facts for programs (numbers, limits), JSON-able, free of secrets.
    """

    code: ClassVar[str] = "gpu.platform.error"
    title: ClassVar[str] = "The service failed"

    def __init__(
        self,
        detail: str,
        *,
        pointer: str | None = None,
        meta: Mapping[str, Any] | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer
        self.meta: dict[str, Any] = dict(meta or {})
        self.error_code = code or self.code


class Invalid(GpuServiceError):
    """The request is wrong (400)."""

    code = "gpu.request.invalid"
    title = "Invalid request"


class UnknownReference(Invalid):
    """A body or filter names something that does not exist for the caller (400).

    The answer is the same whether it does not exist or belongs to another project.
    """

    code = "gpu.request.unknown_reference"
    title = "Unknown reference"


class Unauthenticated(GpuServiceError):
    """Nobody, or a wrong credential (401)."""

    code = "gpu.auth.required"
    title = "Authentication required"


class Forbidden(GpuServiceError):
    """The caller may not do this (403)."""

    code = "gpu.auth.forbidden"
    title = "Forbidden"


class QuotaExceeded(GpuServiceError):
    """A limit counted at creation is reached (403). ``meta``: limit, value, used, asked."""

    code = "gpu.quota.exceeded"
    title = "Quota exceeded"


class PriorityForbidden(GpuServiceError):
    """The priority is above what the queue allows (403)."""

    code = "gpu.priority.forbidden"
    title = "Priority not allowed"


class NotFound(GpuServiceError):
    """No such object for this caller (404)."""

    code = "gpu.object.not_found"
    title = "Not found"

    @classmethod
    def of(cls, noun: str, ident: str) -> NotFound:
        """The one wording, the same for absent and for foreign objects."""
        return cls(f"There is no {noun} {ident!r}.")


class Conflict(GpuServiceError):
    """The object is in a state, or a name is taken, that forbids this (409)."""

    code = "gpu.object.conflict"
    title = "Conflict"


class NameTaken(Conflict):
    """The name is in use (409)."""

    code = "gpu.name.taken"
    title = "Name taken"


class QueueClosed(Conflict):
    """The queue takes no new jobs (409)."""

    code = "gpu.queue.closed"
    title = "Queue closed"


class IdempotencyMismatch(Conflict):
    """The idempotency key was used with another body (409)."""

    code = "gpu.idempotency.mismatch"
    title = "Idempotency key reused"


class IdempotencyInProgress(Conflict):
    """The first request with this key is still running (409)."""

    code = "gpu.idempotency.in_progress"
    title = "Request in progress"


class InvalidTransition(Conflict):
    """An event that the transition table does not allow in this status (409)."""

    code = "gpu.object.wrong_status"
    title = "Wrong status"

    def __init__(self, noun: str, status: str, event: str) -> None:
        super().__init__(
            f"A {noun} that is {status} cannot {event.replace('_', ' ')}.",
            meta={"status": str(status), "event": event},
        )


class StaleGeneration(GpuServiceError):
    """``If-Match`` did not match (412)."""

    code = "gpu.object.stale"
    title = "Precondition failed"


class TooLarge(GpuServiceError):
    """A body or object is larger than allowed (413)."""

    code = "gpu.request.too_large"
    title = "Too large"


class Busy(GpuServiceError):
    """Try again soon (503 with Retry-After from ``meta['retry_after_s']``)."""

    code = "gpu.service.busy"
    title = "Busy"


class StoreFull(Busy):
    """Logs or objects have no room on disk (503): an operator must make some."""

    code = "gpu.store.full"
    title = "Store full"


class NodeFenced(Conflict):
    """The node's epoch is over: its tasks were given up (409)."""

    code = "gpu.node.fenced"
    title = "Node fenced"


class BootstrapInvalid(Unauthenticated):
    """The one-time token is unknown, used up, or too old (401)."""

    code = "gpu.agent.bootstrap_invalid"
    title = "Bootstrap token not valid"


class SecretConflict(Conflict):
    """A second secret for the same bootstrap token (409); the node is quarantined."""

    code = "gpu.agent.secret_conflict"
    title = "Secret conflict"


class DevicesMismatch(Conflict):
    """The agent reports other devices than the cloud driver (409)."""

    code = "gpu.agent.devices_mismatch"
    title = "Devices do not match"


class InstanceConflict(Conflict):
    """Another process of this agent holds the lease (409)."""

    code = "gpu.agent.instance_conflict"
    title = "Second agent instance"


class LogGap(Conflict):
    """A log piece starts beyond what is stored (409). ``meta``: offset wanted."""

    code = "gpu.log.gap"
    title = "Log gap"


class StaleEpoch(GpuServiceError):
    """Another leader took the shard: roll back and step down (never shown to a client)."""

    code = "gpu.scheduler.stale_epoch"
    title = "Stale scheduler epoch"


class CommitConflict(GpuServiceError):
    """What a plan wanted is no longer free: plan anew (never shown to a client)."""

    code = "gpu.scheduler.commit_conflict"
    title = "Plan overtaken"


class Misconfigured(Exception):
    """The configuration names what is not there; ends a program at its start with one line."""


class CloudError(GpuServiceError):
    """The cloud driver could not do what was asked. ``meta``: failure_class, retriable."""

    code = "gpu.cloud.error"
    title = "Cloud error"

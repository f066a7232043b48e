# SPDX-License-Identifier: Apache-2.0
"""What a queue may say: its cohort, the GPU types of its quota, one cohort a pool; who says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuservice.domain.context import Caller
from gpuservice.domain.errors import Conflict, Forbidden, UnknownReference
from gpuservice.domain.ports_store import UnitOfWork, Where
from gpuservice.domain.work import Queue
from gpuservice.services.visibility import by_name_or_id

#: What a manager may change of a queue of the own project; the rest is the admin's.
MANAGERS_FIELDS = frozenset({"kinds", "status", "pools"})
#: Maps from a GPU type to a number of whole GPUs.
GPU_MAPS = ("nominal", "borrowing_limit", "lending_limit")


def cohort_name(uow: UnitOfWork, reference: str | None, project_id: str | None) -> str | None:
    """The name of the cohort that a body means by a name or id; it stays until the unit of work
    ends.

    :raises UnknownReference: the same for one that is absent and one that takes no queue of this
        project.
    """
    if reference is None:
        return None
    return by_name_or_id(
        uow.cohorts, reference, lambda row: row.takes(project_id), "/queue/cohort", "cohort"
    ).name


def check_types(uow: UnitOfWork, body: Mapping[str, Any]) -> None:
    """The GPU types that a body sets numbers for exist, and stay until the unit of work ends.

    :raises UnknownReference: for one that is not there.
    """
    named = {
        gpu_type: f"/queue/{field}/{gpu_type}"
        for field in reversed(GPU_MAPS)
        for gpu_type, gpus in (body.get(field) or {}).items()
        if gpus is not None
    }
    if not named:
        return
    known = {row.name for row in uow.gpu_types.find(Where("name", "in", list(named)), lock="share")}
    for gpu_type, pointer in sorted(named.items()):
        if gpu_type not in known:
            raise UnknownReference(f"There is no GPU type {gpu_type!r}.", pointer=pointer)


def check_one_cohort(uow: UnitOfWork, row: Queue) -> None:
    """A pool serves queues of at most one cohort: whoever changes that waits for its pools."""
    if not row.cohort:
        return
    pools = {pool.id: pool.name for pool in uow.pools.get_many(row.pool_ids, lock=True)}
    for other in uow.queues.find(Where("cohort", "notnull"), Where("cohort", "ne", row.cohort)):
        shared = set(other.pool_ids) & set(row.pool_ids)
        if other.id != row.id and shared:
            name = min(pools.get(ident, ident) for ident in shared)
            raise Conflict(
                f"The pool {name!r} serves queues of the cohort {other.cohort!r}; "
                "a pool serves queues of one cohort.",
                pointer="/queue/cohort",
            )


def check_own_pools(uow: UnitOfWork, caller: Caller, row: Queue, pool_ids: tuple[str, ...]) -> None:
    """A manager adds pools of the own project; another's, even a shared one, is the admin's."""
    if caller.is_admin:
        return
    added = uow.pools.get_many(set(pool_ids) - set(row.pool_ids))
    if any(pool.project_id != caller.project_id for pool in added):
        raise Forbidden(
            "Pools of another project are added to a queue by the operator.", pointer="/queue/pools"
        )


def check_manager(caller: Caller, row: Queue, patch: Mapping[str, Any]) -> None:
    """Raise ``Forbidden`` for what of a queue is the operator's to change."""
    if caller.is_admin:
        return
    beyond = sorted(set(patch) - MANAGERS_FIELDS)
    if row.project_id != caller.project_id or beyond:
        name = beyond[0] if beyond else "queue"
        raise Forbidden(
            f"Changing {name!r} of this queue is the operator's.", pointer=f"/queue/{name}"
        )

# SPDX-License-Identifier: Apache-2.0
"""What a request for a pool may say, and when a pool may go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuservice.domain.context import Caller
from gpuservice.domain.errors import Conflict, Forbidden, Invalid
from gpuservice.domain.inventory import Pool
from gpuservice.domain.pools import serves
from gpuservice.domain.ports_store import UnitOfWork

#: Field -> (values that ask for nothing, the default first; what any other value would need).
_NO_DRIVER: dict[str, tuple[tuple[Any, ...], str]] = {
    "engine": (("agent",), "driver for another engine than agent"),
    "engine_options": (({}, None), "options of the engine agent"),
    "on_shortage": (("wait",), "pools that fail on shortage; they wait"),
    "reservation": ((None,), "reservations"),
}
_ADMIN_FIELDS = ("shared_with", "isolation")


def check_admin(caller: Caller, body: Mapping[str, Any]) -> None:
    """Raise ``Forbidden`` for what is the operator's alone."""
    for name in _ADMIN_FIELDS:
        if name in body and not caller.is_admin:
            raise Forbidden(f"The field {name!r} is the operator's.", pointer=f"/pool/{name}")
    if body.get("isolation") == "none" and not caller.is_admin:
        raise Forbidden("isolation none is the operator's.", pointer="/pool/isolation")


def check_bounds(least: int, most: int, target: int) -> None:
    """Raise ``Invalid`` for sizes that contradict each other."""
    if least > most:
        raise Invalid(
            f"min_nodes is {least}, more than max_nodes, which is {most}.",
            pointer="/pool/min_nodes",
        )
    if not least <= target <= most:
        raise Invalid(
            f"target_nodes is {target}; it must be {least} to {most}.", pointer="/pool/target_nodes"
        )


def check_drivers(body: Mapping[str, Any]) -> None:
    """What nothing in this deployment acts upon is refused, never ignored."""
    for name, (harmless, what) in _NO_DRIVER.items():
        if body.get(name, harmless[0]) not in harmless:
            raise Invalid(f"This deployment has no {what}.", pointer=f"/pool/{name}")


def check_unused(uow: UnitOfWork, pool: Pool) -> None:
    """Raise ``Conflict`` while queues that the pool serves name it; queues of other projects are
    counted, not named."""
    rows = [
        row for row in uow.queues.find() if pool.id in row.pool_ids and serves(pool, row.project_id)
    ]
    if not rows:
        return
    seen = sorted(row.name for row in rows if row.project_id in (None, pool.project_id))
    shown = ", ".join(map(repr, seen[:5])) + (", ..." if len(seen) > 5 else "")
    raise Conflict(
        f"The pool {pool.name!r} serves {len(rows)} queues{': ' if shown else ''}{shown}. "
        "Take it from them first."
    )

# SPDX-License-Identifier: Apache-2.0
"""Devices and their shares: taken and returned by guarded, set-wise updates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import case, or_, update

from gpuservice.db.repositories.generic import TableRepository
from gpuservice.db.statements import chunks, grouped, lock_rows
from gpuservice.domain.inventory import Device
from gpuservice.domain.ports_store import Share


def summed(shares: Iterable[Share]) -> dict[str, int]:
    """Milli by device: two tasks of one batch may share a device."""
    sums: dict[str, int] = {}
    for share in shares:
        sums[share.device_id] = sums.get(share.device_id, 0) + share.milli
    return sums


class Devices(TableRepository[Device]):
    """The devices."""

    def take(self, shares: Sequence[Share], project_id: str) -> bool:
        """Take all shares or (False) leave the caller to roll back."""
        sums = summed(shares)
        lock_rows(self._c, self.table, sums)
        device = self.table.c
        for milli, ids in grouped(sums.items()):
            for part in chunks(ids):
                taken = self._c.execute(
                    update(self.table)
                    .where(
                        device.id.in_(part),
                        device.used_milli + milli <= 1000,
                        device.health == "healthy",
                        device.node_id.is_not(None),
                        or_(
                            device.occupant_project_id.is_(None),
                            device.occupant_project_id == project_id,
                        ),
                    )
                    .values(used_milli=device.used_milli + milli, occupant_project_id=project_id)
                ).rowcount
                if taken != len(part):
                    return False
        return True

    def give_back(self, shares: Sequence[Share]) -> None:
        """Return shares; the occupant goes with the last of them."""
        sums = summed(shares)
        lock_rows(self._c, self.table, sums)
        device = self.table.c
        for milli, ids in grouped(sums.items()):
            for part in chunks(ids):
                # The occupant is set first: MariaDB evaluates assignments from left to right.
                self._c.execute(
                    update(self.table)
                    .where(device.id.in_(part))
                    .ordered_values(
                        (
                            device.occupant_project_id,
                            case(
                                (device.used_milli <= milli, None), else_=device.occupant_project_id
                            ),
                        ),
                        (device.used_milli, device.used_milli - milli),
                    )
                )

    def claim_for_node(self, node_id: str, device_ids: Sequence[str]) -> bool:
        """Give whole, free, healthy devices to a node."""
        lock_rows(self._c, self.table, device_ids)
        device = self.table.c
        claimed = self._c.execute(
            update(self.table)
            .where(
                device.id.in_(list(device_ids)),
                device.node_id.is_(None),
                device.used_milli == 0,
                device.health == "healthy",
            )
            .values(node_id=node_id, version=device.version + 1, updated_at=self._stamp())
        ).rowcount
        return claimed == len(set(device_ids))

    def release_node(self, node_id: str) -> int:
        """Take a node's devices from it."""
        device = self.table.c
        return self._c.execute(
            update(self.table)
            .where(device.node_id == node_id)
            .values(node_id=None, version=device.version + 1, updated_at=self._stamp())
        ).rowcount

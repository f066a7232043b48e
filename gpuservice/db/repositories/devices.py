# SPDX-License-Identifier: Apache-2.0
"""Devices and their shares: taken and returned by guarded, set-wise updates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import BindParameter, Integer, bindparam, case, or_, update

from gpuservice.db.repositories.generic import TableRepository
from gpuservice.db.statements import chunks, grouped, lock_rows
from gpuservice.db.tables import DEVICES
from gpuservice.domain.inventory import Device
from gpuservice.domain.ports_store import Share

_D = DEVICES.c
_IDS: BindParameter[str] = bindparam("ids", expanding=True)
_MILLI: BindParameter[int] = bindparam("milli", type_=Integer)
_PROJECT: BindParameter[str] = bindparam("project", type_=_D.occupant_project_id.type)
_TAKE = (
    update(DEVICES)
    .where(
        _D.id.in_(_IDS),
        _D.used_milli + _MILLI <= 1000,
        _D.health == "healthy",
        _D.node_id.is_not(None),
        or_(_D.occupant_project_id.is_(None), _D.occupant_project_id == _PROJECT),
    )
    .values(used_milli=_D.used_milli + _MILLI, occupant_project_id=_PROJECT)
)
#: The occupant is set first: MariaDB evaluates assignments from left to right.
_GIVE_BACK = (
    update(DEVICES)
    .where(_D.id.in_(_IDS))
    .ordered_values(
        (
            _D.occupant_project_id,
            case((_D.used_milli <= _MILLI, None), else_=_D.occupant_project_id),
        ),
        (_D.used_milli, _D.used_milli - _MILLI),
    )
)


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
        for milli, ids in grouped(sums.items()):
            for part in chunks(ids):
                values = {"ids": part, "milli": milli, "project": project_id}
                if self._c.execute(_TAKE, values).rowcount != len(part):
                    return False
        return True

    def give_back(self, shares: Sequence[Share]) -> None:
        """Return shares; the occupant goes with the last of them."""
        sums = summed(shares)
        lock_rows(self._c, self.table, sums)
        for milli, ids in grouped(sums.items()):
            for part in chunks(ids):
                self._c.execute(_GIVE_BACK, {"ids": part, "milli": milli})

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

# SPDX-License-Identifier: Apache-2.0
"""The quota ledger: every take is one conditional update against the limit of that moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Update,
    and_,
    bindparam,
    case,
    delete,
    func,
    or_,
    select,
    update,
)

from gpuservice.db.repositories.quota_recount import counted_use
from gpuservice.db.statements import chunks, insert_ignoring
from gpuservice.db.tables import QUOTA_LIMITS, QUOTA_USAGE
from gpuservice.domain.errors import QuotaExceeded
from gpuservice.domain.quota import UNLIMITED, shown
from gpuservice.domain.work import QuotaState

_USE, _LIMIT = QUOTA_USAGE.c, QUOTA_LIMITS.c

#: What "unlimited" is in comparisons: above any sum of amounts, within 64 bits.
_BOUNDLESS = 1 << 62

_OWN_LIMIT = (
    select(case((_LIMIT.value == UNLIMITED, _BOUNDLESS), else_=_LIMIT.value))
    .where(_LIMIT.project_id == bindparam("the_project"), _LIMIT.name == bindparam("the_name"))
    .scalar_subquery()
)
_ROW = and_(_USE.project_id == bindparam("the_project"), _USE.name == bindparam("the_name"))
_TAKE = (
    update(QUOTA_USAGE)
    .where(
        _ROW,
        _USE.in_use + bindparam("amount")
        <= func.coalesce(_OWN_LIMIT, bindparam("default_limit", type_=BigInteger)),
    )
    .values(in_use=_USE.in_use + bindparam("amount"))
)
_LIMITS_OF = select(_LIMIT.name, _LIMIT.value).where(_LIMIT.project_id == bindparam("the_project"))
_GIVE_BACK = update(QUOTA_USAGE).where(_ROW).values(in_use=_USE.in_use - bindparam("amount"))


_LOCK = (
    select(_USE.name, _USE.in_use)
    .where(
        _USE.project_id == bindparam("the_project"),
        _USE.name.in_(bindparam("names", expanding=True)),
    )
    .order_by(_USE.name)
    .with_for_update()
)


@cache
def _moving(count: int) -> Update:
    """One update of so many names. Returning has no limit."""
    names = [bindparam(f"name_{number}", type_=_USE.name.type) for number in range(count)]

    def by_name(what: str) -> ColumnElement[int]:
        return case(
            *(
                (_USE.name == name, bindparam(f"{what}_{number}", type_=BigInteger))
                for number, name in enumerate(names)
            )
        )

    own = (
        select(case((_LIMIT.value == UNLIMITED, _BOUNDLESS), else_=_LIMIT.value))
        .where(_LIMIT.project_id == _USE.project_id, _LIMIT.name == _USE.name)
        .correlate(QUOTA_USAGE)
        .scalar_subquery()
    )
    amount = by_name("amount")
    return (
        update(QUOTA_USAGE)
        .where(
            _USE.project_id == bindparam("the_project"),
            _USE.name.in_(names),
            or_(amount < 0, _USE.in_use + amount <= func.coalesce(own, by_name("default"))),
        )
        .values(in_use=_USE.in_use + amount)
    )


class Quotas:
    """Limits and use of projects.

    :param defaults: the limit of each name for projects without a row of their own; names that
        are not in it (``gpus:<type>`` among them) are unlimited by default.
    """

    def __init__(self, connection: Connection, defaults: Mapping[str, int]) -> None:
        self._c = connection
        self._defaults = defaults

    def limits(self, project_id: str) -> dict[str, int]:
        """The project's own limits."""
        return dict(self._c.execute(_LIMITS_OF, {"the_project": project_id}).all())

    def effective_limits(self, project_id: str) -> dict[str, int]:
        """The project's limits, defaults filled in, in one query."""
        return {**self._defaults, **self.limits(project_id)}

    def set_limits(self, project_id: str, limits: Mapping[str, int | None]) -> None:
        """Write limits; None goes back to the default."""
        for name, value in sorted(limits.items()):
            if value is None:
                self._c.execute(
                    delete(QUOTA_LIMITS).where(_LIMIT.project_id == project_id, _LIMIT.name == name)
                )
                continue
            self._c.execute(
                insert_ignoring(self._c, QUOTA_LIMITS).values(
                    project_id=project_id, name=name, value=value
                )
            )
            self._c.execute(
                update(QUOTA_LIMITS)
                .where(_LIMIT.project_id == project_id, _LIMIT.name == name)
                .values(value=value)
            )

    def drop_limits(self, project_id: str) -> None:
        """Back to the defaults for everything."""
        self._c.execute(delete(QUOTA_LIMITS).where(_LIMIT.project_id == project_id))

    def usage(self, project_id: str) -> dict[str, int]:
        """What is in use."""
        rows = self._c.execute(select(_USE.name, _USE.in_use).where(_USE.project_id == project_id))
        return dict(rows.all())

    def projects(self) -> list[str]:
        """Every project with a limit or use."""
        both = select(_LIMIT.project_id).union(select(_USE.project_id))
        return sorted(project for (project,) in self._c.execute(both))

    def states(self, project_id: str) -> list[QuotaState]:
        """Limits with use, by name."""
        return self.states_of([project_id])[project_id]

    def states_of(self, project_ids: Sequence[str]) -> dict[str, list[QuotaState]]:
        """Limits with use of many projects, by project and name."""
        limits = {project: dict(self._defaults) for project in project_ids}
        usage: dict[str, dict[str, int]] = {project: {} for project in project_ids}
        for part in chunks(sorted(limits)):
            for project, name, value in self._c.execute(
                select(_LIMIT.project_id, _LIMIT.name, _LIMIT.value).where(
                    _LIMIT.project_id.in_(part)
                )
            ):
                limits[project][name] = value
            for project, name, value in self._c.execute(
                select(_USE.project_id, _USE.name, _USE.in_use).where(_USE.project_id.in_(part))
            ):
                usage[project][name] = value
        return {
            project: [
                QuotaState(
                    project_id=project,
                    name=name,
                    limit=limits[project].get(name, UNLIMITED),
                    in_use=usage[project].get(name, 0),
                )
                for name in sorted({*limits[project], *usage[project]})
            ]
            for project in project_ids
        }

    def take(self, project_id: str, amounts: Mapping[str, int]) -> None:
        """Take all amounts or raise ``QuotaExceeded`` at the first that does not fit."""
        for name, amount in sorted(amounts.items()):
            if amount and not self._take_one(project_id, name, amount):
                self._refuse(project_id, name, amount)

    def give_back(self, project_id: str, amounts: Mapping[str, int]) -> None:
        """Return amounts."""
        rows = [
            {"the_project": project_id, "the_name": name, "amount": amount}
            for name, amount in sorted(amounts.items())
            if amount
        ]
        if rows:
            self._c.execute(_GIVE_BACK, rows)

    def move(self, project_id: str, amounts: Mapping[str, int]) -> None:
        """Take what is positive and return what is negative, all in one update; raise
        ``QuotaExceeded`` at the first that does not fit, and leave it to the caller to roll back.
        """
        wanted = {name: amount for name, amount in sorted(amounts.items()) if amount}
        if not wanted:
            return
        # Locked in order of name, as every other taker does; the update locks in any order.
        here = {"the_project": project_id, "names": list(wanted)}
        used = dict(self._c.execute(_LOCK, here).all())
        if wanted.keys() - used.keys():
            for name in sorted(wanted.keys() - used.keys()):
                self._ensure(project_id, name)
            used = dict(self._c.execute(_LOCK, here).all())
        values: dict[str, Any] = {"the_project": project_id}
        for number, (name, amount) in enumerate(wanted.items()):
            default = self._defaults.get(name, UNLIMITED)
            boundless = default == UNLIMITED or amount < 0
            values[f"name_{number}"], values[f"amount_{number}"] = name, amount
            values[f"default_{number}"] = _BOUNDLESS if boundless else default
        if self._c.execute(_moving(len(wanted)), values).rowcount != len(wanted):
            limits = self.effective_limits(project_id)
            over = [
                name
                for name, amount in wanted.items()
                if amount > 0 and used[name] + amount > limits.get(name, UNLIMITED) != UNLIMITED
            ]
            first = over[0] if over else max(wanted, key=wanted.__getitem__)
            self._refuse(project_id, first, wanted[first])

    def recount(self) -> list[tuple[str, str, int, int]]:
        """Where the ledger and the counted rows differ: (project, name, ledger, counted)."""
        ledger = {
            (project, name): used
            for project, name, used in self._c.execute(
                select(_USE.project_id, _USE.name, _USE.in_use)
            )
        }
        counted = counted_use(self._c)
        return [
            (*key, ledger.get(key, 0), counted.get(key, 0))
            for key in sorted({*ledger, *counted})
            if ledger.get(key, 0) != counted.get(key, 0)
        ]

    def repair(self) -> int:
        """Set the ledger to the recount."""
        wrong = self.recount()
        for project_id, name, _, counted in wrong:
            self._ensure(project_id, name)
            self._c.execute(
                update(QUOTA_USAGE)
                .where(_USE.project_id == project_id, _USE.name == name)
                .values(in_use=counted)
            )
        return len(wrong)

    def _take_one(self, project_id: str, name: str, amount: int) -> bool:
        default = self._defaults.get(name, UNLIMITED)
        values = {
            "the_project": project_id,
            "the_name": name,
            "amount": amount,
            "default_limit": _BOUNDLESS if default == UNLIMITED else default,
        }
        if self._c.execute(_TAKE, values).rowcount:
            return True
        self._ensure(project_id, name)
        return bool(self._c.execute(_TAKE, values).rowcount)

    def _ensure(self, project_id: str, name: str) -> None:
        self._c.execute(
            insert_ignoring(self._c, QUOTA_USAGE).values(project_id=project_id, name=name, in_use=0)
        )

    def _refuse(self, project_id: str, name: str, amount: int) -> None:
        limit = self.limits(project_id).get(name, self._defaults.get(name, UNLIMITED))
        used = self.usage(project_id).get(name, 0)
        facts = {
            "limit": name,
            "value": shown(name, limit),
            "used": shown(name, used),
            "asked": shown(name, amount),
        }
        raise QuotaExceeded(
            f"The limit {name!r} is {facts['value']}; {facts['used']} are in use and "
            f"{facts['asked']} more were asked for.",
            meta=facts,
        )

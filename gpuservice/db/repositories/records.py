# SPDX-License-Identifier: Apache-2.0
"""Smaller records: events, explanations, port leases, idempotency keys, epochs, work leases."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, delete, insert, or_, select, update

from gpuservice.db.moments import DatabaseTime
from gpuservice.db.repositories.generic import TableRepository
from gpuservice.db.statements import chunks, insert_ignoring
from gpuservice.db.tables import (
    EXPLANATION_ROWS,
    EXPLANATIONS,
    IDEMPOTENCY,
    PORT_LEASES,
    SCHEDULER_SHARDS,
    WORK_LEASES,
)
from gpuservice.domain.errors import StaleEpoch
from gpuservice.domain.ports_store import Page
from gpuservice.domain.work import Event, Explanation, IdempotencyRecord


class Events(TableRepository[Event]):
    """The events, append-only; ``seq`` is the database's."""

    def add_many(self, events: Sequence[Event]) -> None:
        """Append all in one statement."""
        if events:
            rows = [self.mapper.dump(event) for event in events]
            for row in rows:
                del row["seq"]
            self._c.execute(self.mapper.insertion, rows)

    def page(self, page: Page) -> list[Event]:
        """One page, by ``seq`` (the order in which things were written)."""
        ways = [way for key, way in page.sort if key in ("seq", "at", "created_at")]
        sort = (("seq", ways[0] if ways else "asc"),)
        return super().page(Page(page.where, sort, page.limit, page.marker))


_DROP = delete(EXPLANATIONS).where(EXPLANATIONS.c.job_id.in_(bindparam("jobs", expanding=True)))


class Explanations:
    """The newest explanation of each waiting job."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def get(self, job_id: str) -> Explanation | None:
        """The explanation, or None."""
        row = self._c.execute(
            select(*EXPLANATION_ROWS.columns).where(EXPLANATIONS.c.job_id == job_id)
        ).one_or_none()
        return None if row is None else EXPLANATION_ROWS.load(row)

    def digests(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Digest by job."""
        found: dict[str, str] = {}
        for part in chunks(sorted(set(job_ids))):
            rows = self._c.execute(
                select(EXPLANATIONS.c.job_id, EXPLANATIONS.c.digest).where(
                    EXPLANATIONS.c.job_id.in_(part)
                )
            )
            found.update(rows.all())
        return found

    def save(self, items: Sequence[Explanation]) -> None:
        """Insert or replace."""
        self.drop([item.job_id for item in items])
        if items:
            self._c.execute(insert(EXPLANATIONS), [EXPLANATION_ROWS.dump(one) for one in items])

    def drop(self, job_ids: Sequence[str]) -> None:
        """Forget."""
        for part in chunks(sorted(set(job_ids))):
            self._c.execute(_DROP, {"jobs": part})


_PORTS_AT = select(PORT_LEASES.c.address, PORT_LEASES.c.port).where(
    PORT_LEASES.c.address.in_(bindparam("addresses", expanding=True))
)


class PortLeases:
    """Rendezvous ports, unique per address while an attempt lives."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def lease(self, ports: Sequence[int], wanted: Mapping[str, str]) -> dict[str, int]:
        """The first free ports, in two statements; a race for one ends in a duplicate key and a
        re-run."""
        used: dict[str, set[int]] = {address: set() for address in wanted.values()}
        for part in chunks(sorted(used)):
            for address, port in self._c.execute(_PORTS_AT, {"addresses": part}):
                used[address].add(port)
        leased: dict[str, int] = {}
        for attempt_id, address in wanted.items():
            taken = used[address]
            free = next((port for port in ports if port not in taken), None)
            if free is not None:
                taken.add(free)
                leased[attempt_id] = free
        if leased:
            self._c.execute(
                insert(PORT_LEASES),
                [
                    {"address": wanted[ident], "port": port, "attempt_id": ident}
                    for ident, port in leased.items()
                ],
            )
        return leased

    def release(self, attempt_ids: Sequence[str]) -> None:
        """Free the ports of ended attempts."""
        for part in chunks(sorted(set(attempt_ids))):
            self._c.execute(delete(PORT_LEASES).where(PORT_LEASES.c.attempt_id.in_(part)))


class IdempotencyKeys:
    """First answers of creating requests."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def get(self, project_id: str, user_id: str, path: str, key: str) -> IdempotencyRecord | None:
        """The record of a key, or None."""
        row = self._c.execute(
            select(IDEMPOTENCY).where(IDEMPOTENCY.c.scope == _scope(project_id, user_id, path, key))
        ).one_or_none()
        if row is None:
            return None
        values = dict(row._mapping)
        del values["scope"]
        return IdempotencyRecord(**values)

    def save(self, record: IdempotencyRecord) -> bool:
        """Insert; False if the key exists."""
        return (
            self._c.execute(
                insert_ignoring(self._c, IDEMPOTENCY).values(
                    scope=_scope(record.project_id, record.user_id, record.path, record.key),
                    project_id=record.project_id,
                    user_id=record.user_id,
                    path=record.path,
                    key=record.key,
                    digest=record.digest,
                    status=record.status,
                    body=record.body,
                    headers=record.headers,
                    created_at=record.created_at,
                )
            ).rowcount
            == 1
        )

    def finish(self, record: IdempotencyRecord) -> None:
        """Write the answer."""
        self._c.execute(
            update(IDEMPOTENCY)
            .where(
                IDEMPOTENCY.c.scope
                == _scope(record.project_id, record.user_id, record.path, record.key)
            )
            .values(status=record.status, body=record.body, headers=record.headers)
        )

    def purge(self, before: datetime) -> int:
        """Forget old keys."""
        return self._c.execute(
            delete(IDEMPOTENCY).where(IDEMPOTENCY.c.created_at < before)
        ).rowcount


def _scope(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


_CHECK = (
    update(SCHEDULER_SHARDS)
    .where(
        SCHEDULER_SHARDS.c.shard == bindparam("the_shard"),
        SCHEDULER_SHARDS.c.epoch == bindparam("the_epoch"),
    )
    .values(leader=SCHEDULER_SHARDS.c.leader, epoch=SCHEDULER_SHARDS.c.epoch)
)
_CHECK_AND_TIME = _CHECK.returning(DatabaseTime())


class Epochs:
    """Leader epochs of scheduler shards."""

    def __init__(
        self, connection: Connection, seen: Callable[[datetime | None], None] = lambda _: None
    ) -> None:
        self._c = connection
        self._seen = seen

    def raise_epoch(self, shard: str, leader: str) -> int:
        """A new leader."""
        row = SCHEDULER_SHARDS.c
        self._c.execute(
            insert_ignoring(self._c, SCHEDULER_SHARDS).values(shard=shard, epoch=0, leader="")
        )
        self._c.execute(
            update(SCHEDULER_SHARDS)
            .where(row.shard == shard)
            .values(epoch=row.epoch + 1, leader=leader)
        )
        return int(self._c.execute(select(row.epoch).where(row.shard == shard)).scalar_one())

    def check(self, shard: str, epoch: int) -> None:
        """Lock the shard's row if the epoch is still ours; raises ``StaleEpoch``."""
        values = {"the_shard": shard, "the_epoch": epoch}
        if self._c.dialect.name == "postgresql":
            # What follows the check asks for the time: one statement tells both.
            moments = self._c.execute(_CHECK_AND_TIME, values).scalars().all()
            ours = bool(moments)
            if ours:
                self._seen(moments[0])
        else:
            ours = bool(self._c.execute(_CHECK, values).rowcount)
        if not ours:
            raise StaleEpoch(f"Epoch {epoch} of shard {shard!r} is over.")


class WorkLeases:
    """Who does a piece of conductor work that needs network calls."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def claim(
        self, kind: str, ident: str, owner: str, token: str, now: datetime, seconds: float
    ) -> bool:
        """Take a free or expired lease."""
        row = WORK_LEASES.c
        until = now + timedelta(seconds=seconds)
        taken = self._c.execute(
            update(WORK_LEASES)
            .where(row.kind == kind, row.ident == ident, or_(row.expires_at < now, row.token == ""))
            .values(owner=owner, token=token, expires_at=until)
        ).rowcount
        if taken:
            return True
        return (
            self._c.execute(
                insert_ignoring(self._c, WORK_LEASES).values(
                    kind=kind, ident=ident, owner=owner, token=token, expires_at=until
                )
            ).rowcount
            == 1
        )

    def renew(self, kind: str, ident: str, token: str, now: datetime, seconds: float) -> bool:
        """Hold a lease for longer; whether it was still ours."""
        row = WORK_LEASES.c
        return (
            self._c.execute(
                update(WORK_LEASES)
                .where(row.kind == kind, row.ident == ident, row.token == token)
                .values(expires_at=now + timedelta(seconds=seconds))
            ).rowcount
            == 1
        )

    def holds(self, kind: str, ident: str, token: str) -> bool:
        """Whether the lease is still ours; locks its row."""
        row = WORK_LEASES.c
        return (
            self._c.execute(
                select(row.token)
                .where(row.kind == kind, row.ident == ident, row.token == token)
                .with_for_update()
            ).first()
            is not None
        )

    def drop(self, kind: str, ident: str, token: str) -> None:
        """Give the lease back."""
        row = WORK_LEASES.c
        self._c.execute(
            delete(WORK_LEASES).where(row.kind == kind, row.ident == ident, row.token == token)
        )

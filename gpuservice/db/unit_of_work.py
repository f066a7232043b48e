# SPDX-License-Identifier: Apache-2.0
"""One transaction with every repository on it (the port ``domain.ports.UnitOfWork``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property

from sqlalchemy import Connection

from gpuservice.db import tables
from gpuservice.db.moments import MOMENT
from gpuservice.db.repositories import records
from gpuservice.db.repositories.devices import Devices
from gpuservice.db.repositories.elements import Elements
from gpuservice.db.repositories.generic import TableRepository
from gpuservice.db.repositories.jobs import Jobs
from gpuservice.db.repositories.nodes import Nodes
from gpuservice.db.repositories.quotas import Quotas
from gpuservice.db.repositories.scheduling import SchedulingReads
from gpuservice.db.repositories.tasks import Allocations, Tasks
from gpuservice.db.repositories.usage import Usage
from gpuservice.domain.inventory import Flavor, GpuType, Host, Pool
from gpuservice.domain.ports import Clock, Ids
from gpuservice.domain.simulations import Simulation
from gpuservice.domain.work import (
    Artifact,
    Attempt,
    CheckpointSet,
    Cohort,
    Explanation,
    IdempotencyRecord,
    Queue,
    ServiceRecord,
)


class DatabaseUnitOfWork:
    """The repositories of one transaction."""

    def __init__(
        self, connection: Connection, clock: Clock, ids: Ids, defaults: Mapping[str, int]
    ) -> None:
        self.connection = connection
        self._clock = clock
        self._ids = ids
        self._defaults = defaults
        self._time: datetime | None = None

    # The repositories, each made when it is first asked for: a transaction needs a few of them.
    @cached_property
    def gpu_types(self) -> TableRepository[GpuType]:
        """The GPU types."""
        return TableRepository[GpuType](self.connection, tables.GPU_TYPE_ROWS, self.now)

    @cached_property
    def hosts(self) -> TableRepository[Host]:
        """The hosts."""
        return TableRepository[Host](self.connection, tables.HOST_ROWS, self.now)

    @cached_property
    def devices(self) -> Devices:
        """The devices."""
        return Devices(self.connection, tables.DEVICE_ROWS, self.now)

    @cached_property
    def flavors(self) -> TableRepository[Flavor]:
        """The flavors."""
        return TableRepository[Flavor](self.connection, tables.FLAVOR_ROWS, self.now)

    @cached_property
    def pools(self) -> TableRepository[Pool]:
        """The pools."""
        return TableRepository[Pool](self.connection, tables.POOL_ROWS, self.now)

    @cached_property
    def nodes(self) -> Nodes:
        """The nodes."""
        return Nodes(self.connection, tables.NODE_ROWS, self.now)

    @cached_property
    def cohorts(self) -> TableRepository[Cohort]:
        """The cohorts."""
        return TableRepository[Cohort](self.connection, tables.COHORT_ROWS, self.now)

    @cached_property
    def queues(self) -> TableRepository[Queue]:
        """The queues."""
        return TableRepository[Queue](self.connection, tables.QUEUE_ROWS, self.now)

    @cached_property
    def jobs(self) -> Jobs:
        """The jobs."""
        return Jobs(self.connection, tables.JOB_ROWS, self.now)

    @cached_property
    def elements(self) -> Elements:
        """The elements."""
        return Elements(self.connection)

    @cached_property
    def attempts(self) -> TableRepository[Attempt]:
        """The attempts."""
        return TableRepository[Attempt](self.connection, tables.ATTEMPT_ROWS, self.now)

    @cached_property
    def quotas(self) -> Quotas:
        """The quotas."""
        return Quotas(self.connection, self._defaults)

    @cached_property
    def tasks(self) -> Tasks:
        """The tasks."""
        return Tasks(self.connection, self.now, self.devices, self.nodes, self.quotas)

    @cached_property
    def allocations(self) -> Allocations:
        """The allocations."""
        return Allocations(self.connection, self.now)

    @cached_property
    def artifacts(self) -> TableRepository[Artifact]:
        """The artifacts."""
        return TableRepository[Artifact](self.connection, tables.ARTIFACT_ROWS, self.now)

    @cached_property
    def checkpoints(self) -> TableRepository[CheckpointSet]:
        """The checkpoints."""
        return TableRepository[CheckpointSet](self.connection, tables.CHECKPOINT_ROWS, self.now)

    @cached_property
    def services(self) -> TableRepository[ServiceRecord]:
        """The services."""
        return TableRepository[ServiceRecord](self.connection, tables.SERVICE_ROWS, self.now)

    @cached_property
    def simulations(self) -> TableRepository[Simulation]:
        """The what-if simulations."""
        return TableRepository[Simulation](self.connection, tables.SIMULATION_ROWS, self.now)

    @cached_property
    def events(self) -> records.Events:
        """The events."""
        return records.Events(self.connection, tables.EVENT_ROWS, self.now)

    @cached_property
    def scheduling(self) -> SchedulingReads:
        """What the scheduler reads."""
        return SchedulingReads(self.connection, self._seen)

    @cached_property
    def usage(self) -> Usage:
        """What the leading scheduler keeps of what has ended."""
        return Usage(self.connection)

    @cached_property
    def _explanations(self) -> records.Explanations:
        return records.Explanations(self.connection)

    @cached_property
    def _ports(self) -> records.PortLeases:
        return records.PortLeases(self.connection)

    @cached_property
    def _keys(self) -> records.IdempotencyKeys:
        return records.IdempotencyKeys(self.connection)

    @cached_property
    def _epochs(self) -> records.Epochs:
        return records.Epochs(self.connection, self._seen)

    @cached_property
    def _leases(self) -> records.WorkLeases:
        return records.WorkLeases(self.connection)

    def now(self) -> datetime:
        """The database's time, read once; the clock's own with the embedded database."""
        if self._time is None:
            if self.connection.dialect.name == "sqlite":
                self._time = self._clock.now()
            else:
                self._time = self.connection.execute(MOMENT).scalar_one()
        return self._time

    def _seen(self, moment: datetime | None) -> None:
        """Another statement has told the database's time along with its own answer."""
        if self._time is None:
            self._time = moment

    def explanation(self, job_id: str) -> Explanation | None:
        """The newest explanation of a job."""
        return self._explanations.get(job_id)

    def explanation_digests(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Digest by job."""
        return self._explanations.digests(job_ids)

    def save_explanations(self, items: Sequence[Explanation]) -> None:
        """Insert or replace."""
        self._explanations.save(items)

    def drop_explanations(self, job_ids: Sequence[str]) -> None:
        """Forget."""
        self._explanations.drop(job_ids)

    def lease_ports(self, ports: Sequence[int], wanted: Mapping[str, str]) -> dict[str, int]:
        """A free port for each attempt (id -> address), where one is left."""
        return self._ports.lease(ports, wanted)

    def release_ports(self, attempt_ids: Sequence[str]) -> None:
        """Free the ports of ended attempts."""
        self._ports.release(attempt_ids)

    def idempotency(
        self, project_id: str, user_id: str, path: str, key: str
    ) -> IdempotencyRecord | None:
        """The record of a key, or None."""
        return self._keys.get(project_id, user_id, path, key)

    def save_idempotency(self, record: IdempotencyRecord) -> bool:
        """Insert; False if the key exists."""
        return self._keys.save(record)

    def finish_idempotency(self, record: IdempotencyRecord) -> None:
        """Write the answer of a key."""
        self._keys.finish(record)

    def purge_idempotency(self, before: datetime) -> int:
        """Forget keys older than ``before``."""
        return self._keys.purge(before)

    def raise_epoch(self, shard: str, leader: str) -> int:
        """A new leader of a shard."""
        return self._epochs.raise_epoch(shard, leader)

    def check_epoch(self, shard: str, epoch: int) -> None:
        """Raises ``StaleEpoch`` when another leads."""
        self._epochs.check(shard, epoch)

    def claim(self, kind: str, ident: str, owner: str, seconds: float) -> str | None:
        """A lease on a piece of work, or None."""
        token = self._ids.new()
        taken = self._leases.claim(kind, ident, owner, token, self.now(), seconds)
        return token if taken else None

    def renew(self, kind: str, ident: str, token: str, seconds: float) -> bool:
        """Hold the lease for longer; whether it was still ours."""
        return self._leases.renew(kind, ident, token, self.now(), seconds)

    def holds(self, kind: str, ident: str, token: str) -> bool:
        """Whether the lease is still ours."""
        return self._leases.holds(kind, ident, token)

    def unclaim(self, kind: str, ident: str, token: str) -> None:
        """Give the lease back."""
        self._leases.drop(kind, ident, token)

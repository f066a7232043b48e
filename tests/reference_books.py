# SPDX-License-Identifier: Apache-2.0
"""The plain accounts of a cluster: what may be placed where, counted one device at a time.

Written from the words of the scheduling document alone and with nothing of the planner's, so that
the two can be wrong only apart. Slow on purpose: every question is answered by looking at
everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

from gpuservice.domain.inventory import MAX_TASKS_PER_NODE
from gpuservice.planner.plan_types import Promise
from gpuservice.planner.snapshot import (
    DeviceState,
    NodeState,
    PendingJob,
    QueueState,
    Request,
    Reservation,
    RunningGang,
    Snapshot,
    TaskPlacement,
)
from tests.reference_sharing import Sharing

INFINITE = float("inf")

#: What a question may leave out of account.
NOTHING: frozenset[str] = frozenset()

#: Nodes (with one link group of each, or with all their devices) that are near enough together.
Place = Sequence[tuple[NodeState, str | None]]


@dataclass(frozen=True)
class Held:
    """What one gang has, and until when."""

    job_id: str
    gang_id: str
    project_id: str
    queue_id: str
    tasks: tuple[TaskPlacement, ...]
    end: float
    preemptible: bool


@dataclass
class Load:
    """What is taken at one moment, device by device and node by node."""

    milli: Counter[str] = field(default_factory=Counter)
    cpus: Counter[str] = field(default_factory=Counter)
    memory: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    owners: dict[str, set[str]] = field(default_factory=dict)  # of nodes and of devices

    def take(self, project: str, tasks: Iterable[TaskPlacement]) -> None:
        for task in tasks:
            self.cpus[task.node_id] += task.vcpus
            self.memory[task.node_id] += task.memory_mib
            self.tasks[task.node_id] += 1
            self.owners.setdefault(task.node_id, set()).add(project)
            for device, milli in task.devices:
                self.milli[device] += milli
                self.owners.setdefault(device, set()).add(project)

    def foreign(self, thing: str, project: str) -> bool:
        return bool(self.owners.get(thing, set()) - {project})


def runtime_of(job: PendingJob, queue: QueueState | None) -> float:
    """How long a job may run: its limit, or what its queue gives one without."""
    if job.max_runtime_s is not None:
        return float(job.max_runtime_s)
    if queue is None or queue.default_runtime_s is None:
        return INFINITE
    return float(queue.default_runtime_s)


def task_milli(request: Request, device: DeviceState) -> int:
    """Milli-GPUs that a task takes of each of its devices."""
    if request.gpu_memory_mib is not None:
        return -(-1000 * request.gpu_memory_mib // device.memory_mib)
    return min(request.gpu_milli, 1000)


def suits(request: Request, device: DeviceState) -> bool:
    """Whether a device is of the kind that the request wants, and works."""
    return (
        device.healthy
        and (not request.gpu_types or device.gpu_type in request.gpu_types)
        and device.memory_mib >= request.min_gpu_memory_mib
    )


class Books:
    """The accounts of one snapshot; starts are entered one after another."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.now = snapshot.now
        self.nodes = {node.id: node for node in snapshot.nodes}
        self.devices = {one.id: one for node in snapshot.nodes for one in node.devices}
        self.queues = {queue.id: queue for queue in snapshot.queues}
        self.owner_of = {pool.id: pool.project_id for pool in snapshot.pools}
        self.left = dict(snapshot.headroom)
        self.sharing = Sharing(snapshot.queues)
        self.held: list[Held] = []
        self._waits = {job.job_id: job for job in snapshot.pending}
        self.load = Load()
        for gang in snapshot.running:
            end = INFINITE if gang.promised_end is None else gang.promised_end
            end = end if end > self.now else self.now + 1  # late with ending, and still there
            held = Held(
                gang.job_id, gang.gang_id, gang.project_id, gang.queue_id, gang.tasks, end,
                gang.preemptible,
            )  # fmt: skip
            self._enter(held)

    def _enter(self, held: Held) -> None:
        self.held.append(held)
        self.load.take(held.project_id, held.tasks)
        self.sharing.take(held.queue_id, self.amounts(held.tasks), held.preemptible)

    # --- what a set of tasks takes

    def amounts(self, tasks: Iterable[TaskPlacement]) -> Counter[str]:
        """Milli-GPUs by GPU type."""
        found: Counter[str] = Counter()
        for task in tasks:
            for device, milli in task.devices:
                if device in self.devices:
                    found[self.devices[device].gpu_type] += milli
        return found

    def start(self, job: PendingJob, tasks: tuple[TaskPlacement, ...]) -> None:
        """Enter one start."""
        runtime = runtime_of(job, self.queues.get(job.queue_id))
        end = self.now + runtime
        self._enter(Held(job.job_id, "", job.project_id, job.queue_id, tasks, end, job.preemptible))
        for key, amount in self._of_quotas(job.project_id, tasks).items():
            self.left[key] -= amount

    def taken_by(self, gang: RunningGang) -> Counter[tuple[str, str]]:
        """What a gang takes of the limited quotas: it is given back when the gang is gone."""
        return self._of_quotas(gang.project_id, gang.tasks)

    def _of_quotas(self, project: str, tasks: Iterable[TaskPlacement]) -> Counter[tuple[str, str]]:
        taken = Counter({(project, "jobs:running"): 1})
        for task in tasks:
            if self.owner_of.get(self.nodes[task.node_id].pool_id) == project:
                continue  # the pool's nodes are counted already
            for gpu_type, milli in self.amounts([task]).items():
                taken[project, "gpus"] += milli
                taken[project, f"gpus:{gpu_type}"] += milli
        return Counter({key: amount for key, amount in taken.items() if key in self.left})

    # --- limits

    def quota_allows(self, job: PendingJob, pool_id: str, amounts: Mapping[str, int]) -> bool:
        """Whether the project's quota has room for one more attempt with these milli-GPUs."""
        project = job.project_id
        if self.left.get((project, "jobs:running"), 1) < 1:
            return False
        if self.owner_of.get(pool_id) == project:
            return True
        names = {"gpus": sum(amounts.values())}
        names.update({f"gpus:{gpu_type}": milli for gpu_type, milli in amounts.items()})
        return all(
            milli <= self.left.get((project, name), milli) for name, milli in names.items() if milli
        )

    # --- moments

    def at(self, moment: float, promises: Iterable[Promise] = ()) -> Load:
        """What is taken at a later moment, if all run as long as they may."""
        load = Load()
        for held in self.held:
            if moment <= self.now or held.end > moment:
                load.take(held.project_id, held.tasks)
        for promise in promises:
            if promise.start <= moment < promise.end:
                load.take(promise.project_id, promise.tasks)
        return load

    def loads(self, end: float, promises: Sequence[Promise]) -> list[Load]:
        """What is taken now and at each promised start before ``end``."""
        moments = sorted({one.start for one in promises if self.now < one.start < end})
        return [self.load, *(self.at(moment, promises) for moment in moments)]

    def reserved_against(
        self, node_id: str, job: PendingJob, start: float, end: float
    ) -> Reservation | None:
        """A reservation of others on the node that the job would run into."""
        for one in self.snapshot.reservations:
            if node_id not in one.node_ids or end <= one.starts_at or start >= one.ends_at:
                continue
            if one.queue_id != job.queue_id and one.project_id != job.project_id:
                return one
        return None

    # --- brute force: does it fit at all

    def could_start(
        self,
        job: PendingJob,
        promises: Sequence[Promise] = (),
        ignoring: frozenset[str] = NOTHING,
    ) -> bool:
        """Whether any placement of at least ``min_count`` tasks is allowed now.

        ``ignoring``: of quota, sharing, reservations, topology, host, ready, isolation.
        """
        return self.find(replace_count(job), promises, ignoring) is not None

    def find(
        self,
        job: PendingJob,
        promises: Sequence[Promise] = (),
        ignoring: frozenset[str] = NOTHING,
        turn: int = 0,
    ) -> tuple[TaskPlacement, ...] | None:
        """The first allowed placement with as many tasks as possible; ``turn`` rotates nodes."""
        queue = self.queues.get(job.queue_id)
        end = self.now + runtime_of(job, queue)
        loads, times = self.loads(end, promises), self._times(end, promises)
        for pool_id in queue.pool_ids if queue else ():
            nodes = [
                node
                for node in self.snapshot.nodes
                if node.pool_id == pool_id
                and (node.ready or "ready" in ignoring)
                and (
                    "reservations" in ignoring
                    or self.reserved_against(node.id, job, self.now, end) is None
                )
            ]
            if nodes:
                nodes = nodes[turn % len(nodes) :] + nodes[: turn % len(nodes)]
            for place in near(nodes, job.request, "topology" in ignoring):
                tasks = self._pack(job, place, loads, ignoring)
                tasks = self._within_limits(job, pool_id, tasks, ignoring, times)
                if len(tasks) >= job.request.min_count:
                    return tasks
        return None

    def find_then(
        self, job: PendingJob, load: Load, node_id: str, count: int
    ) -> tuple[TaskPlacement, ...] | None:
        """Places for so many tasks on one node at a later moment, whatever quotas say by then."""
        exact = replace(job, request=replace(job.request, count=count, min_count=count))
        within = job.request.within == "link_group"
        for place in near([self.nodes[node_id]], job.request, not within):
            tasks = self._pack(exact, place, [load], NOTHING)
            if len(tasks) == count:
                return tasks
        return None

    def _within_limits(
        self,
        job: PendingJob,
        pool_id: str,
        tasks: tuple[TaskPlacement, ...],
        ignoring: frozenset[str],
        times: Sequence[Books],
    ) -> tuple[TaskPlacement, ...]:
        """As many of the tasks as quota and queue let start and run at all these times."""
        while tasks:
            amounts = self.amounts(tasks)
            if all(
                ("quota" in ignoring or books.quota_allows(job, pool_id, amounts))
                and ("sharing" in ignoring or books.sharing.allows(job, amounts))
                for books in times
            ):
                break
            tasks = tasks[:-1]
        return tasks

    def _times(self, end: float, promises: Sequence[Promise]) -> list[Books]:
        """The limits now and at each promised start before ``end``, with what is promised."""
        found = [self]
        for moment in sorted({one.start for one in promises if self.now < one.start < end}):
            books = self.limits_at(moment)
            for one in promises:
                if one.start <= moment < one.end:
                    books.limit_more(one)
            found.append(books)
        return found

    def limits_at(self, moment: float) -> Books:
        """The limits at a later moment, when some of what runs has ended."""
        books = copy(self)
        books.left, books.sharing = dict(self.left), self.sharing.copy()
        for held in self.held:
            if held.end <= moment:
                books._limit(held, -1)
        return books

    def limit_more(self, one: Promise) -> None:
        """Count what is promised in what is limited."""
        job = self._waits.get(one.job_id)
        if job is not None:
            held = Held(
                job.job_id, "", job.project_id, job.queue_id, one.tasks, one.end, job.preemptible
            )
            self._limit(held, 1)

    def _limit(self, held: Held, sign: int) -> None:
        """Count something in what is limited (or, with -1, count it no more)."""
        for key, amount in self._of_quotas(held.project_id, held.tasks).items():
            self.left[key] -= sign * amount
        self.sharing.take(held.queue_id, self.amounts(held.tasks), held.preemptible, sign)

    def _pack(
        self,
        job: PendingJob,
        place: Place,
        loads: Sequence[Load],
        ignoring: frozenset[str],
    ) -> tuple[TaskPlacement, ...]:
        """As many tasks as the place takes, at most ``count``: device after device."""
        found: list[TaskPlacement] = []
        for node, group in place:
            for shares in self._shares(node, group, job, loads, ignoring):
                if len(found) == job.request.count:
                    break
                host = (0, 0) if "host" in ignoring else (job.request.vcpus, job.request.memory_mib)
                found.append(TaskPlacement(len(found), node.id, shares, *host))
        return tuple(found)

    def _shares(
        self,
        node: NodeState,
        group: str | None,
        job: PendingJob,
        loads: Sequence[Load],
        ignoring: frozenset[str],
    ) -> list[tuple[tuple[str, int], ...]]:
        """The devices of each task that the node takes."""
        request, project = job.request, job.project_id
        apart = node.isolation_node and "isolation" not in ignoring
        if apart and any(load.foreign(node.id, project) for load in loads):
            return []
        most = min(MAX_TASKS_PER_NODE - load.tasks[node.id] for load in loads)
        if "host" not in ignoring:
            for each, have, taken in (
                (request.vcpus, node.vcpus, [load.cpus[node.id] for load in loads]),
                (request.memory_mib, node.memory_mib, [load.memory[node.id] for load in loads]),
            ):
                most = min(most, (have - max(taken)) // each) if each else most
        if not (request.whole or request.shared):
            return [()] * min(max(most, 0), request.count)
        found: list[tuple[tuple[str, int], ...]] = []
        whole: list[str] = []
        for device in node.devices:
            if not suits(request, device) or (group is not None and device.link_group != group):
                continue
            if any(load.foreign(device.id, project) for load in loads):
                continue
            free = 1000 - max(load.milli[device.id] for load in loads)
            milli = task_milli(request, device)
            if request.shared:
                found.extend([((device.id, milli),)] * (free // milli if milli <= 1000 else 0))
            elif free >= 1000:
                whole.append(device.id)
        if request.whole:
            for first in range(0, len(whole) - request.whole + 1, request.whole):
                taken_now = whole[first : first + request.whole]
                found.append(tuple((device, 1000) for device in taken_now))
        return found[: max(most, 0)]


def replace_count(job: PendingJob) -> PendingJob:
    """The job content with its least number of tasks."""
    least = job.request.min_count
    return replace(job, request=replace(job.request, count=least, min_count=least))


def near(nodes: Sequence[NodeState], request: Request, anywhere: bool) -> Iterator[Place]:
    """All sets of nodes over which a gang may be spread."""
    level = request.within if request.required and not anywhere else None
    if level is None:
        yield [(node, None) for node in nodes]
        return
    if level == "link_group":
        for node in nodes:
            for group in sorted({one.link_group for one in node.devices if one.link_group}):
                yield [(node, group)]
        return
    for node in nodes:  # one node is within one of everything
        yield [(node, None)]
    if level != "node":
        for name in sorted({getattr(node, level) for node in nodes} - {None}):
            yield [(node, None) for node in nodes if getattr(node, level) == name]

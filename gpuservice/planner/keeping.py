# SPDX-License-Identifier: Apache-2.0
"""Snapshots that follow each other, planned from what was worked out before.

``Keeping().plan(snapshot)`` is ``plan(snapshot)``, but only what differs from the snapshot before
costs anything: jobs are compared by identity, gangs by id and times, nodes by identity and, where
they are other objects, by what they say. Whoever makes snapshots keeps the objects that did not
change.
"""

from __future__ import annotations

from dataclasses import replace

from gpuservice.planner.passes import Pass
from gpuservice.planner.plan import begin, outcome
from gpuservice.planner.plan_types import Plan
from gpuservice.planner.quota import Headroom
from gpuservice.planner.snapshot import NodeState, Policy, RunningGang, Snapshot
from gpuservice.planner.world import World


class Keeping:
    """The world of the last snapshot. A plan's ``waiting`` can be read until the next plan."""

    def __init__(self) -> None:
        self._world: World | None = None
        self._last: Snapshot | None = None
        self._gangs: dict[str, RunningGang] = {}
        self._state: Pass | None = None

    def plan(self, snapshot: Snapshot, policy: Policy) -> Plan:
        """The plan of a snapshot."""
        if self._state is not None:
            self._state.undo()
            self._state = None
        world = self._follow(snapshot)
        self._state = begin(world, snapshot.now, policy, snapshot.usage, snapshot.limit_ratio)
        return outcome(self._state)

    def _follow(self, snapshot: Snapshot) -> World:
        last, world = self._last, self._world
        self._last = snapshot
        gangs = named(snapshot)
        if last is None or world is None or not _same_ground(last, snapshot):
            self._gangs = gangs
            self._world = World.of(snapshot)
            return self._world
        world.reservations = snapshot.reservations
        world.headroom = Headroom(snapshot.headroom, world.pools)
        _follow_jobs(world, last, snapshot)
        self._follow_gangs(world, gangs)
        rows = world.layout.node_row
        for old, node in zip(last.nodes, snapshot.nodes, strict=True):
            if node is not old and node != old:
                world.ledger.set_row(rows[node.id], node)
        return world

    def _follow_gangs(self, world: World, gangs: dict[str, RunningGang]) -> None:
        """Gangs that came, went or have another end. What they take the nodes say."""
        for ident, gang in self._gangs.items():
            new = gangs.get(ident)
            if new is not gang and new != gang:
                world.remove_gang(ident, counted=True)
        for ident, gang in gangs.items():
            if ident not in world.gangs:
                world.add_gang(gang, counted=True)
        self._gangs = gangs


def named(snapshot: Snapshot) -> dict[str, RunningGang]:
    """The running gangs by id; those without one are named by their place."""
    return {
        gang.gang_id or f"{gang.job_id}/{number}": gang
        if gang.gang_id
        else replace(gang, gang_id=f"{gang.job_id}/{number}")
        for number, gang in enumerate(snapshot.running)
    }


def _follow_jobs(world: World, last: Snapshot, snapshot: Snapshot) -> None:
    if snapshot.pending is last.pending:
        return
    before = {job.job_id: job for job in last.pending}
    for job in snapshot.pending:
        old = before.pop(job.job_id, None)
        if old is not job and old != job:
            world.line.add(job)
    for gone in before:
        world.line.remove(gone)


def _same_ground(last: Snapshot, snapshot: Snapshot) -> bool:
    """Whether nodes, pools and queues are the same but for what runs there."""
    return (
        last.pools == snapshot.pools
        and last.queues == snapshot.queues
        and len(last.nodes) == len(snapshot.nodes)
        and all(
            old is new or _fixed(old) == _fixed(new)
            for old, new in zip(last.nodes, snapshot.nodes, strict=True)
        )
    )


def _fixed(node: NodeState) -> tuple[object, ...]:
    """What of a node no start and no end changes."""
    return (
        node.id, node.pool_id, node.vcpus, node.memory_mib, node.isolation_node, node.unproved,
        node.link_domain, node.rack, node.zone,
        tuple(
            (one.id, one.gpu_type, one.memory_mib, one.healthy, one.link_group)
            for one in node.devices
        ),
    )  # fmt: skip

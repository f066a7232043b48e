# SPDX-License-Identifier: Apache-2.0
"""``plan(snapshot, policy) -> Plan``: the whole decision, pure and deterministic."""

from __future__ import annotations

from collections.abc import Mapping

from gpuservice.planner.explanation import WaitingLine
from gpuservice.planner.passes import Pass
from gpuservice.planner.plan_types import Plan
from gpuservice.planner.pools import wanted_sizes
from gpuservice.planner.snapshot import Policy, Snapshot, UsageKey
from gpuservice.planner.world import World


def plan(snapshot: Snapshot, policy: Policy | None = None) -> Plan:
    """Decide what starts where, what is promised, who goes for whom, and why the rest waits.

    1. build the world; 2. go through the line; 3. start what fits and delays no promise;
    4. promise a start to the first that do not fit; 5. size autoscaled pools; 6. explain (when
    somebody looks: an explanation that nobody reads costs nothing).
    """
    policy = policy or Policy()
    state = begin(World.of(snapshot), snapshot.now, policy, snapshot.usage, snapshot.limit_ratio)
    return outcome(state)


def begin(
    world: World,
    now: float,
    policy: Policy,
    usage: Mapping[UsageKey, float],
    limit_ratio: float = 1.0,
) -> Pass:
    """A pass that was run; the world shows what it started until :meth:`Pass.undo`."""
    world.ledger.begin()
    state = Pass(world, policy, now, usage, limit_ratio)
    state.run()
    return state


def outcome(state: Pass) -> Plan:
    """The plan of a pass that was run. Its ``waiting`` is read lazily, as long as the world is
    left as it is."""
    waiting = WaitingLine(state)
    wanted = wanted_sizes(
        tuple(state.world.pools.values()), waiting.wanting, state.world.pools_declared
    )
    waiting.wanted = wanted
    return Plan(
        tuple(state.starts),
        waiting if state.policy.explain else (),
        tuple(state.future.promises),
        wanted,
        tuple(state.preempting.found),
        state.due,
        tuple(state.future.claims),
    )

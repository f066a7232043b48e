# SPDX-License-Identifier: Apache-2.0
"""What --set takes."""

from __future__ import annotations

from dataclasses import fields

import pytest

from gpuservice.planner.snapshot import DueTimes, Policy
from gpuservice.simulation import options
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.policies import named
from gpuservice.simulation.replay import World
from gpuservice.simulation.workload import Reading

PLAIN = options.Options(Policy(due=None), World(), Reading())


def test_settings() -> None:
    made = options.apply(
        PLAIN,
        [
            "scheduler.order=fifo",
            "scheduler.promises=-1",
            "scheduler.backfill=no",
            "scheduler.preempt=reclaim,due_gangs",
            "scheduler.due.gang_backlog=4",
            "scheduler.due.calm=1.5",
            "scheduler.weights.age=7",
            "simulation.grace_s=0",
            "simulation.learn_limits=false",
            "workload.first=10",
        ],
    )
    policy = made.scheduler
    assert (policy.order, policy.promises, policy.backfill) == ("fifo", -1, False)
    assert policy.preempt == {"reclaim", "due_gangs"}
    assert policy.due == DueTimes(gang_backlog=4, calm=1.5)
    assert policy.weights.age == 7
    assert made.simulation == World(grace_s=0, learn_limits=False)
    assert made.workload == Reading(first=10)


def test_nothing() -> None:
    made = options.apply(PLAIN, ["scheduler.due=none", "scheduler.preempt=none"])
    assert made.scheduler.due is None
    assert made.scheduler.preempt == frozenset()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("order=fifo", "GROUP is one of scheduler, simulation, workload"),
        ("scheduler.order", "write GROUP.NAME=VALUE"),
        ("scheduler.odrer=fifo", "there is no 'odrer'; one of order, backfill, promises"),
        ("scheduler.order=lifo", "one of fair, fifo, multifactor, not 'lifo'"),
        ("scheduler.preempt=reclaim,x", "one of priority, reclaim, due_gangs, short_jobs"),
        ("scheduler.promises=-2", "a whole number of at least -1"),
        ("scheduler.promises=1.5", "a whole number"),
        ("scheduler.backfill=2", "write true or false"),
        ("scheduler.due=4", "set one of due.gang_least"),
        ("scheduler.due.gang=4", "there is no 'gang'; one of gang_least"),
        ("scheduler.order.x=1", "'order' has no parts"),
        ("scheduler.usage_half_life_s=0", "above 0"),
        ("simulation.grace_s=nan", "a number of at least 0"),
        ("workload.limit_factor=inf", "above 0"),
    ],
)
def test_mistakes(setting: str, said: str) -> None:
    with pytest.raises(InputFault) as fault:
        options.apply(PLAIN, [setting])
    assert str(fault.value).startswith(f"--set {setting}: ")
    assert said in str(fault.value)


def test_the_help_names_every_field() -> None:
    text = options.describe()
    for group, target in (("scheduler", Policy), ("simulation", World), ("workload", Reading)):
        for one in fields(target):
            assert one.name in options.LEFT_OUT or f"{group}.{one.name}" in text


def test_policies() -> None:
    assert named("fifo").policy.backfill is False
    assert named("skip").policy.promises == 0
    assert named("sjf").oracle
    with pytest.raises(InputFault, match="one of default, fifo, skip"):
        named("lifo")

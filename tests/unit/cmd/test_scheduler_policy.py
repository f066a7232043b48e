# SPDX-License-Identifier: Apache-2.0
"""The policy that options make: the planner's own by default, and each option is in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from oslo_config import cfg

from gpuservice.conf import opts
from gpuservice.conf.scheduler import OPTS
from gpuservice.planner.snapshot import DueTimes, Policy, Weights
from gpuservice.scheduler.policy import policy_of

OTHER: dict[str, tuple[Any, Policy]] = {
    "order": ("multifactor", Policy(order="multifactor")),
    "backfill": (False, Policy(backfill=False)),
    "promises": (-1, Policy(promises=-1)),
    "small_promises": (0, Policy(small_promises=0)),
    "backfill_order": ("short_first", Policy(backfill_order="short_first")),
    "due_times": (False, Policy(due=None)),
    "due_gang_backlog": (9.0, Policy(due=DueTimes(gang_backlog=9.0))),
    "due_gang_least": (9.0, Policy(due=DueTimes(gang_least=9.0))),
    "due_gang_alike": (9.0, Policy(due=DueTimes(gang_alike=9.0))),
    "due_gang_limit": (9.0, Policy(due=DueTimes(gang_limit=9.0))),
    "due_small_backlog": (9.0, Policy(due=DueTimes(small_backlog=9.0))),
    "due_small_running": (9.0, Policy(due=DueTimes(small_running=9.0))),
    "due_calm": (9.0, Policy(due=DueTimes(calm=9.0))),
    "preempt": (["due_gangs"], Policy(preempt=frozenset({"due_gangs"}))),
    "min_runtime_s": (9.0, Policy(protected_s=9.0)),
    "max_preemptions": (9, Policy(max_preemptions=9)),
    "lost_s": (9.0, Policy(lost_s=9.0)),
    "defragment": (True, Policy(defragment=True)),
    "usage_half_life_s": (99.0, Policy(usage_half_life_s=99.0)),
    "weight_age": (9.0, Policy(weights=Weights(age=9.0))),
    "weight_age_max_s": (9.0, Policy(weights=Weights(age_max_s=9.0))),
    "weight_fairshare": (9.0, Policy(weights=Weights(fairshare=9.0))),
    "weight_size": (9.0, Policy(weights=Weights(size=9.0))),
    "weight_priority": (9.0, Policy(weights=Weights(priority=9.0))),
    "counterfactuals": (9, Policy(counterfactuals=9)),
}
#: What is not about how to plan.
OF_THE_LOOP = {"interval_s", "min_interval_s", "coordination_url"}


@pytest.fixture
def conf() -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    opts.register_all(conf)
    conf([], project="gpuservice", default_config_files=[], default_config_dirs=[])
    return conf


def test_by_default_it_is_the_planners_own(conf: cfg.ConfigOpts) -> None:
    assert policy_of(conf) == Policy()
    assert policy_of(conf, explain=False) == replace(Policy(), explain=False)


def test_every_option_has_its_place(conf: cfg.ConfigOpts) -> None:
    assert {one.name for one in OPTS} - OF_THE_LOOP == set(OTHER)
    for name, (value, policy) in OTHER.items():
        conf.set_override(name, value, "scheduler")
        assert policy_of(conf) == policy, name
        conf.clear_override(name, "scheduler")

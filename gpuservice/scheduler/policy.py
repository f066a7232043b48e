# SPDX-License-Identifier: Apache-2.0
"""The planner's policy by configuration: the same for the loop and for dry runs."""

from __future__ import annotations

from oslo_config import cfg

from gpuservice.planner.snapshot import DueTimes, Policy, Weights


def policy_of(conf: cfg.ConfigOpts, *, explain: bool = True) -> Policy:
    """What ``[scheduler]`` says."""
    said = conf.scheduler
    due = DueTimes(
        gang_least=said.due_gang_least,
        gang_backlog=said.due_gang_backlog,
        gang_alike=said.due_gang_alike,
        gang_limit=said.due_gang_limit,
        small_backlog=said.due_small_backlog,
        small_running=said.due_small_running,
        calm=said.due_calm,
    )
    return Policy(
        order=said.order,
        backfill=said.backfill,
        promises=said.promises,
        small_promises=said.small_promises,
        due=due if said.due_times else None,
        backfill_order=said.backfill_order,
        preempt=frozenset(said.preempt),
        protected_s=said.min_runtime_s,
        max_preemptions=said.max_preemptions,
        lost_s=said.lost_s,
        defragment=said.defragment,
        usage_half_life_s=said.usage_half_life_s,
        weights=Weights(
            age=said.weight_age,
            fairshare=said.weight_fairshare,
            size=said.weight_size,
            priority=said.weight_priority,
            age_max_s=said.weight_age_max_s,
        ),
        explain=explain,
        counterfactuals=said.counterfactuals,
    )

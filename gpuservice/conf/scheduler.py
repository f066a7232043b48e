# SPDX-License-Identifier: Apache-2.0
"""Options of the scheduler."""

from __future__ import annotations

from oslo_config import cfg, types

GROUP = "scheduler"

#: From when on a waiting job is promised a start.
_DUE: list[cfg.Opt] = [
    cfg.BoolOpt(
        "due_times",
        default=True,
        help="Whether jobs get promises some time after their submission, gangs soon and small "
        "jobs late, by the work that waits (the options due_*). Without it the first jobs of the "
        "line get them at once.",
    ),
    cfg.FloatOpt(
        "due_gang_least",
        default=0.1,
        min=0.0,
        help="A gang (more GPUs than the largest node has) is promised a start after so many times "
        "the work that waited in smaller jobs when it came (limit x GPUs over all GPUs).",
    ),
    cfg.FloatOpt(
        "due_gang_backlog",
        default=1.5,
        min=0.0,
        help="And so many times that work, times the gang's share of all GPUs, squared.",
    ),
    cfg.FloatOpt(
        "due_gang_alike",
        default=8.0,
        min=0.0,
        help="And so many times that work where all limits are alike, so that nothing is short "
        "enough to fill nodes that are drained for the gang; less by the cube of how much "
        "shorter the short ones are.",
    ),
    cfg.FloatOpt(
        "due_gang_limit",
        default=0.0,
        min=0.0,
        help="And so many times its own limit: of use where due gangs preempt others.",
    ),
    cfg.FloatOpt(
        "due_small_backlog",
        default=3.0,
        min=0.0,
        help="Any other job is promised a start after so many times the work that waits.",
    ),
    cfg.FloatOpt(
        "due_small_running",
        default=0.5,
        min=0.0,
        help="And so many times what is left of the work that runs.",
    ),
    cfg.FloatOpt(
        "due_calm",
        default=0.6,
        min=0.0,
        help="Waiting work counts less while it is little beside so many times the running work.",
    ),
]
#: Whom a job may stop, and what that costs.
_PREEMPTION: list[cfg.Opt] = [
    cfg.ListOpt(
        "preempt",
        item_type=types.String(choices=["priority", "reclaim", "due_gangs", "short_jobs"]),
        default=["priority", "reclaim"],
        help="For what jobs are preempted: priority (higher ones of the same queue), reclaim "
        "(quota that another queue of the cohort lent), due_gangs (gangs whose promise is due), "
        "short_jobs (short ones behind long ones). The first two only as the queue's preemption "
        "allows.",
    ),
    cfg.FloatOpt(
        "min_runtime_s",
        default=1800.0,
        min=0.0,
        help="A job runs so many seconds before it can be preempted.",
    ),
    cfg.IntOpt(
        "max_preemptions", default=5, min=0, help="How often one job loses its place at most."
    ),
    cfg.FloatOpt(
        "lost_s",
        default=600.0,
        min=0.0,
        help="Seconds of work that a preemption is reckoned to cost its victim, a start included.",
    ),
    cfg.BoolOpt(
        "defragment",
        default=False,
        help="Whether preemptible jobs are moved where that starts a waiting gang.",
    ),
]
_SHARES: list[cfg.Opt] = [
    cfg.FloatOpt(
        "usage_half_life_s",
        default=604800.0,
        min=60.0,
        help="GPU time that was had so many seconds ago counts half for fair shares, and for what "
        "is learned of time limits.",
    ),
    cfg.FloatOpt(
        "weight_age", default=1000.0, min=0.0, help="Of order multifactor: the weight of age."
    ),
    cfg.FloatOpt(
        "weight_age_max_s",
        default=604800.0,
        min=1.0,
        help="Of order multifactor: the age, in seconds, that counts in full.",
    ),
    cfg.FloatOpt(
        "weight_fairshare",
        default=1000.0,
        min=0.0,
        help="Of order multifactor: the weight of how far a queue is below its share.",
    ),
    cfg.FloatOpt(
        "weight_size",
        default=100.0,
        min=0.0,
        help="Of order multifactor: the weight of a job's share of all GPUs.",
    ),
    cfg.FloatOpt(
        "weight_priority",
        default=10000.0,
        min=0.0,
        help="Of order multifactor: the weight of priority.",
    ),
]

OPTS: list[cfg.Opt] = [
    cfg.FloatOpt(
        "interval_s", default=1.0, min=0.05, help="The longest time between two passes, in seconds."
    ),
    cfg.FloatOpt(
        "min_interval_s",
        default=0.25,
        min=0.0,
        help="The shortest time between two passes, in seconds: wake-ups within it share one. "
        "After a quiet time of this length the next job is looked at as it comes. Longer times "
        "cost the scheduler less, and jobs that come or end in quick succession wait longer.",
    ),
    cfg.StrOpt(
        "coordination_url",
        default=None,
        help="tooz URL that elects the leader; by default the database. Empty: every scheduler "
        "leads and the epoch decides.",
    ),
    cfg.StrOpt(
        "order",
        default="fair",
        choices=[
            ("fair", "hierarchical weighted fair share by decayed use"),
            ("fifo", "by submission"),
            ("multifactor", "by a weighted sum of age, fair share, size and priority"),
        ],
        help="How jobs of one priority are ordered.",
    ),
    cfg.BoolOpt(
        "backfill",
        default=True,
        help="Whether a job may start before one that is ahead of it and does not fit. Without it "
        "the first job that does not fit blocks all behind it.",
    ),
    cfg.IntOpt(
        "promises",
        default=8,
        min=-1,
        help="How many waiting gangs get a promised start that no other job may delay (1: EASY, "
        "-1: all of them, conservative; 0: none).",
    ),
    cfg.IntOpt(
        "small_promises",
        default=1,
        min=-1,
        help="How many other waiting jobs get a promised start, where due times are used.",
    ),
    cfg.StrOpt(
        "backfill_order",
        default="area_slowdown",
        choices=[
            ("line", "the order of the line"),
            ("short_first", "short time limits first"),
            ("area_slowdown", "small GPU-time first, aged by how long they wait for it"),
        ],
        help="In which order jobs without a promise are tried.",
    ),
    cfg.IntOpt(
        "counterfactuals",
        default=5,
        min=0,
        help="For how many waiting shapes per pass changes are tried that would start them now.",
    ),
    *_DUE,
    *_PREEMPTION,
    *_SHARES,
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group."""
    conf.register_opts(OPTS, group=GROUP)

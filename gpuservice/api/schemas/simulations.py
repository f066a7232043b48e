# SPDX-License-Identifier: Apache-2.0
"""Schemas of what-if simulations: a workload, and a change of the cloud."""

from __future__ import annotations

from gpuservice.api.schemas.pieces import (
    Schema,
    items,
    mapping,
    maybe,
    name,
    one_of,
    record,
    reference,
    text,
    whole,
    wrapped,
)

#: Rows of an inline workload, and bytes of the body that carries them.
MAX_ROWS, MAX_BODY = 10_000, 4 << 20

_NAMED = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"
_TYPE = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


def _number(least: float, most: float) -> Schema:
    return {"type": "number", "minimum": least, "maximum": most}


_SECONDS = _number(0, 315_360_000)
_BY_TYPE = mapping(maybe(whole(0, 1_000_000)), _TYPE, 64)
_YES_NO: Schema = {"type": "boolean"}

#: The columns of the simulator's workload file.
ROW = record(
    ("submit_s", "duration_s"),
    submit_s=_SECONDS,
    duration_s=_SECONDS,
    name=name(),
    project=text(64, 1),
    queue=reference(),
    user=text(64, 1),
    kind=one_of("interactive", "training", "evaluation", "data", "service"),
    priority={"anyOf": [whole(0, 1000), one_of("low", "normal", "high", "urgent")]},
    tasks=whole(1, 10_000),
    min_tasks=whole(1, 10_000),
    gpus_per_task=whole(0, 1024),
    gpu_milli=whole(1, 999),
    gpu_memory_mib=whole(1, 16_777_216),
    gpu_types=items({"type": "string", "pattern": _TYPE, "maxLength": 64}, 32, unique=True),
    min_gpu_memory_mib=whole(0, 16_777_216),
    vcpus=whole(0, 65_536),
    memory_mib=whole(0, 1_073_741_824),
    within=one_of("link_group", "node", "link_domain", "rack", "zone"),
    topology_policy=one_of("required", "preferred"),
    max_runtime_s=maybe(whole(1, 31_536_000)),
    preemptible=_YES_NO,
    array_size=whole(1, 10_000),
    array_max_running=whole(1, 10_000),
    depends_on=items({"type": "string", "pattern": _NAMED, "maxLength": 255}, 32, unique=True),
    deadline_s=_SECONDS,
    outcome=one_of("succeeded", "failed"),
)
_QUEUE = record(
    (),
    weight=whole(1, 1_000_000),
    cohort=maybe(reference()),
    nominal=_BY_TYPE,
    borrowing_limit=_BY_TYPE,
    lending_limit=_BY_TYPE,
    preemption=one_of("none", "lower_priority", "reclaim", "both"),
)
#: Names of ``[scheduler]``.
_POLICY = record(
    (),
    order=one_of("fair", "fifo", "multifactor"),
    backfill=_YES_NO,
    promises=whole(-1, 10_000),
    small_promises=whole(-1, 10_000),
    due_times=_YES_NO,
    backfill_order=one_of("line", "short_first", "area_slowdown"),
    preempt=items(one_of("priority", "reclaim", "due_gangs", "short_jobs"), 4, unique=True),
    min_runtime_s=_SECONDS,
    max_preemptions=whole(0, 1000),
    lost_s=_SECONDS,
    defragment=_YES_NO,
    usage_half_life_s=_number(1, 315_360_000),
    **dict.fromkeys(
        (
            "due_gang_least",
            "due_gang_backlog",
            "due_gang_alike",
            "due_gang_limit",
            "due_small_backlog",
            "due_small_running",
            "due_calm",
        ),
        _number(0, 1_000_000),
    ),
    **dict.fromkeys(
        ("weight_age", "weight_fairshare", "weight_size", "weight_priority"),
        _number(0, 1_000_000_000),
    ),
    weight_age_max_s=_number(1, 315_360_000),
)
_DELTA = whole(-100_000, 100_000)
_CHANGE = record(
    (),
    gpus=mapping(_DELTA, _TYPE, 64),
    pools=mapping(whole(-10_000, 10_000), _NAMED, 64),
    queues=mapping(_QUEUE, _NAMED, 1000),
    quotas=mapping(
        mapping(maybe(whole(-1, 1_000_000)), "^(gpus(:[A-Za-z0-9._-]{1,64})?|jobs:running)$", 64),
        "^[A-Za-z0-9._-]{1,64}$",
        1000,
    ),
    policy=_POLICY,
)
SIMULATION_CREATE = wrapped(
    "simulation",
    record(
        ("name",),
        **{
            "name": name(),
            "from": one_of("now", "empty"),
            "history": maybe(record(("since", "until"), since=text(64, 1), until=text(64, 1))),
            "workload": items(ROW, MAX_ROWS),
            "assumed_runtime_s": whole(1, 31_536_000),
            "change": _CHANGE,
        },
    ),
)

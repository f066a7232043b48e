# SPDX-License-Identifier: Apache-2.0
"""Schemas of pools, nodes, cohorts and queues."""

from __future__ import annotations

from gpuservice.api.schemas.pieces import (
    ACTION_REASON,
    actions,
    items,
    mapping,
    maybe,
    name,
    one_of,
    patch,
    record,
    reference,
    text,
    whole,
    wrapped,
)

_SIZES = {
    "min_nodes": whole(0, 10_000),
    "max_nodes": whole(0, 10_000),
    "target_nodes": whole(0, 10_000),
    "autoscale": {"type": "boolean"},
    "idle_timeout_s": whole(0, 31_536_000),
    "on_shortage": one_of("wait", "fail"),
}
_SHARING = {
    "shared_with": items(text(64, 1), 1000, unique=True),
    "isolation": one_of("node", "device", "none"),
}
POOL_CREATE = wrapped(
    "pool",
    record(
        ("name", "flavor"),
        name=name(),
        flavor=reference(),
        **_SIZES,
        **_SHARING,
        image=maybe(text(255)),
        networks=items(text(255, 1), 16),
        key_name=maybe(text(255)),
        engine=one_of("agent", "none"),
        engine_options=mapping(text(255), "^[a-z_]+$", 32),
        reservation=maybe(reference()),
    ),
)
POOL_PATCH = patch("pool", record((), name=name(), **_SIZES, **_SHARING))
NODE_ACTION = actions(
    cordon=ACTION_REASON, uncordon=ACTION_REASON, drain=ACTION_REASON, repair=ACTION_REASON
)

_COHORT = {"name": name(), "projects": items(text(64, 1), 1000, unique=True)}
COHORT_CREATE = wrapped("cohort", record(("name",), **_COHORT))
COHORT_PATCH = patch("cohort", record((), **_COHORT))

#: Whole GPUs by type; beyond it milli-GPUs no longer fit a database's integer.
_GPUS = whole(0, 1_000_000)
_BY_TYPE = mapping(_GPUS, "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", 64)
_KIND_POLICY = record(
    (),
    priority={"anyOf": [whole(0, 1000), one_of("low", "normal", "high", "urgent")]},
    max_runtime_s=maybe(whole(1, 31_536_000)),
    idle_timeout_s=maybe(whole(1, 31_536_000)),
    preemptible={"type": "boolean"},
)
_QUEUE = {
    "name": name(),
    "projects": items(text(64, 1), 1000, unique=True),
    "pools": items(reference(), 64, unique=True),
    "status": one_of("open", "drained", "closed"),
    "weight": whole(1, 1_000_000),
    "cohort": maybe(reference()),
    "nominal": _BY_TYPE,
    "borrowing_limit": _BY_TYPE,
    "lending_limit": _BY_TYPE,
    "preemption": one_of("none", "lower_priority", "reclaim", "both"),
    "max_priority": whole(0, 1000),
    "placement": one_of("pack", "spread"),
    "kinds": record(
        (),
        **dict.fromkeys(("interactive", "training", "evaluation", "data", "service"), _KIND_POLICY),
    ),
}
QUEUE_CREATE = wrapped("queue", record(("name",), **_QUEUE, project_id=maybe(text(64, 1))))
_BY_TYPE_PATCH = mapping(maybe(_GPUS), "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", 64)
#: Maps are merged: null takes a key away.
QUEUE_PATCH = patch(
    "queue",
    record(
        (),
        **{
            **_QUEUE,
            "nominal": _BY_TYPE_PATCH,
            "borrowing_limit": _BY_TYPE_PATCH,
            "lending_limit": _BY_TYPE_PATCH,
            "kinds": record(
                (),
                **dict.fromkeys(
                    ("interactive", "training", "evaluation", "data", "service"),
                    maybe(_KIND_POLICY),
                ),
            ),
        },
    ),
)

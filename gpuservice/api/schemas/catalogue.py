# SPDX-License-Identifier: Apache-2.0
"""Schemas of GPU types, flavors, hosts, devices, quotas and processes."""

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

_PARTITION = record(
    ("name", "kind"),
    name=reference(),
    kind=one_of("mig", "vgpu"),
    memory_mib=whole(1),
    max_per_device=whole(1, 64),
    compute_fraction={"type": "number", "minimum": 0, "maximum": 1},
)
_GPU_TYPE = record(
    ("name", "vendor", "memory_mib"),
    name=name(),
    vendor=text(64, 1, "^[a-z0-9-]+$"),
    memory_mib=whole(1, 16_777_216),
    pci_ids=items(text(9, 9, "^[0-9a-f]{4}:[0-9a-f]{4}$"), 64, unique=True),
    architecture=maybe(text(64)),
    interconnect=maybe(text(64)),
    partitions=items(_PARTITION, 64),
    resource_class=maybe(text(255, 1, "^[A-Z0-9_]+$")),
    traits=items(text(255, 1, "^[A-Z0-9_]+$"), 64, unique=True),
)
GPU_TYPE_CREATE = wrapped("gpu_type", _GPU_TYPE)
GPU_TYPE_PATCH = patch(
    "gpu_type",
    record((), **{key: value for key, value in _GPU_TYPE["properties"].items() if key != "name"}),
)

_FLAVOR_FREE = {
    "name": name(),
    "public": {"type": "boolean"},
    "projects": items(text(64, 1), 1000, unique=True),
    "price_per_hour": maybe(whole()),
    "numa_policy": maybe(one_of("required", "preferred", "legacy", "socket")),
}
_FLAVOR = record(
    ("name", "gpu_type", "gpu_count"),
    **_FLAVOR_FREE,
    gpu_type=reference(),
    gpu_count=whole(1, 1024),
    mode=one_of("passthrough", "vgpu", "mig", "baremetal"),
    partition=maybe(reference()),
    vcpus=whole(1, 65536),
    memory_mib=whole(1, 2**30),
    disk_gib=whole(0, 2**20),
)
FLAVOR_CREATE = wrapped("flavor", _FLAVOR)
FLAVOR_PATCH = patch("flavor", record((), **_FLAVOR_FREE))
FLAVOR_ACTION = actions(sync=record((), dry_run={"type": "boolean"}))

HOST_ACTION = actions(
    cordon=ACTION_REASON,
    uncordon=ACTION_REASON,
    maintenance=ACTION_REASON,
    drain=record((), reason=text(255), notice_s=whole(0, 31_536_000)),
)
DEVICE_ACTION = actions(quarantine=ACTION_REASON, release=ACTION_REASON, retest=ACTION_REASON)
SERVICE_PATCH = patch("service", record((), status=one_of("enabled", "disabled")))

QUOTA_PATCH = wrapped(
    "quota",
    record(
        ("limits",),
        limits=mapping(
            maybe(whole(-1)),
            "^(gpus|pools|nodes|jobs:queued|jobs:running|gpus:[A-Za-z0-9._-]{1,64})$",
            64,
        ),
    ),
)

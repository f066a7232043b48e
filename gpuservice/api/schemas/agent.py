# SPDX-License-Identifier: Apache-2.0
"""Schemas of what nodes send."""

from __future__ import annotations

from gpuservice.api.schemas.jobs import FAILURE_CLASSES
from gpuservice.api.schemas.pieces import items, maybe, one_of, record, text, whole
from gpuservice.domain.kept import MAX_CHECKPOINT_FILES

_UUID = text(64, 1)
_TIME = maybe(text(40, 10))
_DEVICE = record(
    ("address",),
    address=text(64, 1),
    vendor=maybe(text(64)),
    product_id=maybe(text(64)),
    uuid=maybe(text(255)),
    memory_mib=maybe(whole()),
    index=maybe(whole(0, 1024)),
    numa_node=maybe(whole(-1, 1024)),
    link_group=maybe(text(255)),
)
_FLAG = {"type": "boolean"}
_CAPABILITIES = {
    **record(
        (),
        own_uid=_FLAG,
        namespaces=items(text(16, 1), 16),
        device_filter=_FLAG,
        device_filter_reason=maybe(text(1024)),
        private_tmp=_FLAG,
        cgroups=_FLAG,
    ),
    "additionalProperties": True,
    "maxProperties": 64,
}
_HEALTH = items(
    {
        **record(
            ("address",),
            address=text(64, 1),
            healthy=_FLAG,
            reason=maybe(text(1024, 0, "^[^\\x00]*$")),
        ),
        "additionalProperties": True,
    },
    1024,
)
REGISTER = record(
    ("bootstrap", "secret", "instance", "devices"),
    bootstrap=text(255, 16),
    secret=text(64, 64, "^[0-9a-f]{64}$"),
    instance=_UUID,
    fault=maybe(text(1024)),
    agent_version=text(64),
    devices=items(_DEVICE, 1024),
    health=_HEALTH,
    vcpus=maybe(whole(0, 1_000_000)),
    memory_mib=maybe(whole()),
    capabilities=_CAPABILITIES,
)
TOKEN = record(("secret",), secret=text(64, 64, "^[0-9a-f]{64}$"))
_PIECE = record(
    ("offset",),
    offset=whole(0, 2**50),
    data_b64=text(262_144, 0, "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}(==|[A-Za-z0-9+/]=))?$"),
    end={"type": "boolean"},
)
_REPORT = record(
    ("task_id", "state"),
    task_id=_UUID,
    state=one_of("preparing", "running", "finishing", "gone"),
    started_at=_TIME,
    ended_at=_TIME,
    exit_code=maybe(whole(-(2**31), 2**31 - 1)),
    signal=maybe(whole(0, 255)),
    oom={"type": "boolean"},
    timed_out={"type": "boolean"},
    stopped={"type": "boolean"},
    failure=maybe(
        record(
            ("class",),
            **{"class": one_of(*FAILURE_CLASSES), "evidence": text(4096, 0, "^[^\\x00]*$")},
        )
    ),
    checkpoint_fault=maybe(
        record(
            ("reason",),
            reason=text(64, 1, "^[a-z_]+$"),
            evidence=text(4096, 0, "^[^\\x00]*$"),
        )
    ),
    log=maybe(record((), stdout=maybe(_PIECE), stderr=maybe(_PIECE))),
)
SYNC = record(
    ("epoch", "revision", "instance"),
    epoch=whole(0, 2**53),
    revision=whole(0, 2**53),
    instance=_UUID,
    tasks=items(_REPORT, 5000),
    devices=_HEALTH,
    telemetry={"type": "object", "maxProperties": 1000},
    wait_s={"type": "number", "minimum": 0, "maximum": 20},
)
CHECKPOINT = record(
    ("seq", "files"),
    seq=whole(0, 2**53),
    files=items(
        record(
            ("path", "size", "sha256"),
            path=text(512, 1),
            size=whole(0, 2**50),
            sha256=text(64, 64, "^[0-9a-f]{64}$"),
        ),
        MAX_CHECKPOINT_FILES,
    ),
)
LOG_QUERY = {"stream": one_of("stdout", "stderr"), "offset": whole(0, 2**50)}

# SPDX-License-Identifier: Apache-2.0
"""Schemas of jobs."""

from __future__ import annotations

from gpuservice.api.schemas.pieces import (
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

_YEAR = 31_536_000
_PATH = text(512, 1)
#: Anything but NUL, which the parser refuses already.
_FREE = "^[^\\x00]*$"
_ENV_NAME = "^[A-Za-z_][A-Za-z0-9_]*$"
_LABEL = "^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$"
_URL = text(2048, 1, "^(file|https?|swift|s3)://[^\\x00-\\x20\\x7f]+$")
_UUID = text(36, 36, "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
FAILURE_CLASSES = (
    "user_code",
    "image",
    "data",
    "permission",
    "node_failure",
    "gpu_failure",
    "out_of_memory",
    "time_limit",
    "platform",
)

PRIORITY = {"anyOf": [whole(0, 1000), one_of("low", "normal", "high", "urgent")]}
_RESOURCES = record(
    (),
    gpus=maybe(whole(0, 1024)),
    gpu_fraction={"type": ["number", "null"], "minimum": 0.001, "maximum": 0.999},
    gpu_memory_mib=maybe(whole(1, 16_777_216)),
    gpu_types=items(reference(), 64, unique=True),
    min_gpu_memory_mib=maybe(whole(1, 16_777_216)),
    vcpus=maybe(whole(1, 65_536)),
    memory_mib=maybe(whole(1, 2**30)),
)
_JOB = record(
    ("name",),
    name=name(),
    queue=reference(),
    kind=one_of("interactive", "training", "evaluation", "data", "service"),
    priority=PRIORITY,
    command=maybe({**items(text(65_536, 0, _FREE), 1024), "minItems": 1}),
    script=maybe(text(524_288, 1, _FREE)),
    image=maybe(text(512, 1)),
    env=mapping(text(65_536, 0, _FREE), _ENV_NAME, 256),
    secrets=items(record(("env", "ref"), env=text(255, 1, _ENV_NAME), ref=text(512, 1)), 64),
    workdir=maybe(_PATH),
    tasks=record((), count=whole(1, 10_000), min_count=whole(1, 10_000)),
    resources=_RESOURCES,
    topology=maybe(
        record(
            ("within",),
            within=one_of("link_group", "node", "link_domain", "rack", "zone"),
            policy=one_of("required", "preferred"),
        )
    ),
    max_runtime_s=maybe(whole(1, 10 * _YEAR)),
    deadline_at=maybe(text(40, 10)),
    preemptible={"type": ["boolean", "null"]},
    grace_period_s=whole(0, 86_400),
    signal=one_of("TERM", "INT", "HUP", "USR1", "USR2", "QUIT"),
    checkpoint=maybe(
        record(("path",), path=_PATH, interval_s=whole(1, _YEAR), ranks=one_of("first", "all"))
    ),
    retry=record(
        (),
        max_attempts=whole(1, 100),
        backoff_s=whole(0, 86_400),
        on=items(one_of(*FAILURE_CLASSES), len(FAILURE_CLASSES), unique=True),
    ),
    depends_on=items(
        record(("job",), job=_UUID, condition=one_of("succeeded", "failed", "ended", "started")),
        100,
    ),
    array=maybe(
        record(
            ("size",),
            size=whole(1, 1_000_000),
            max_running=maybe(whole(1, 1_000_000)),
            max_failures=maybe(whole(0, 1_000_000)),
        )
    ),
    inputs=items(record(("source", "path"), source=_URL, path=_PATH), 256),
    outputs=items(record(("path",), path=_PATH, target=_URL), 256),
    notify=items(
        record(
            ("on",), on=items(one_of("started", "ended"), 2, unique=True), channel=one_of("event")
        ),
        16,
    ),
    labels=mapping(text(255), _LABEL, 64),
    hold={"type": "boolean"},
)
JOB_CREATE = wrapped("job", _JOB)
JOB_PATCH = patch(
    "job",
    record(
        (),
        priority=PRIORITY,
        labels=mapping(maybe(text(255)), _LABEL, 64),
        max_runtime_s=maybe(whole(1, 10 * _YEAR)),
        hold={"type": "boolean"},
    ),
)
_SOME = record((), indices=text(4096, 1, "^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"))
_NONE = record(())
JOB_ACTION = actions(
    cancel=_SOME, hold=_NONE, release=_NONE, requeue=_NONE, suspend=_SOME, resume=_SOME
)
LOG_QUERY = {
    "stream": one_of("stdout", "stderr"),
    "task": whole(0, 10_000),
    "index": whole(0, 1_000_000),
    "attempt": whole(1, 10_000),
    "offset": whole(-(2**40), 2**40),
    "wait_s": whole(0, 20),
}

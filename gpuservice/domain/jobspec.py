# SPDX-License-Identifier: Apache-2.0
"""A job's request: defaults filled in, rules between fields checked, and a typed view of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuservice.domain.data_urls import check_source, check_target
from gpuservice.domain.errors import Invalid

PRIORITIES = {"low": 100, "normal": 500, "high": 700, "urgent": 900}

#: Environment names that the service sets itself: a request must not.
RESERVED_ENV = frozenset(
    {
        "RANK",
        "NODE_RANK",
        "WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ASCEND_RT_VISIBLE_DEVICES",
        "MLU_VISIBLE_DEVICES",
        "ZE_AFFINITY_MASK",
    }
)
RESERVED_PREFIX = "GPUSERVICE_"

#: Linux takes no longer argument or variable, its closing NUL included (MAX_ARG_STRLEN).
MAX_WORD_BYTES = 32 * 4096

_RETRY = {"max_attempts": 3, "backoff_s": 10, "on": ["node_failure", "gpu_failure"]}

_DEFAULTS: dict[str, Any] = {
    "kind": "training",
    "priority": "normal",
    "command": None,
    "script": None,
    "image": None,
    "env": {},
    "secrets": [],
    "workdir": None,
    "topology": None,
    "deadline_at": None,
    "grace_period_s": 30,
    "signal": "TERM",
    "checkpoint": None,
    "depends_on": [],
    "array": None,
    "inputs": [],
    "outputs": [],
    "notify": [],
    "labels": {},
    "hold": False,
}

#: What a request may say once a driver does it; until then it is refused, never ignored.
_NO_DRIVER = {
    "secrets": "secret stores; leave out secrets",
    "image": "container images; without image a task runs in its node's own environment",
}

#: What every file system takes (NAME_MAX), and how deep a path below the working directory is.
MAX_NAME_BYTES, MAX_PATH_PARTS = 255, 32

_WINDOWS = re.compile(r"^[A-Za-z]:")


def normalise(
    job: Mapping[str, Any], kinds: Mapping[str, Any], default_runtime: int | None
) -> dict[str, Any]:
    """The request with every default filled in.

    :param job: the body's ``job``, already valid by its schema.
    :param kinds: the queue's policy by workload kind.
    :raises Invalid: naming the field at fault.
    """
    spec: dict[str, Any] = {**_DEFAULTS, **job}
    policy = kinds.get(spec["kind"], {})
    if "priority" not in job and "priority" in policy:
        spec["priority"] = policy["priority"]
    spec["priority"] = priority_of(spec["priority"])
    spec["tasks"] = _tasks(job.get("tasks") or {})
    spec["resources"] = _resources(job.get("resources") or {})
    spec["retry"] = {**_RETRY, **(job.get("retry") or {})}
    if spec.get("max_runtime_s") is None:
        spec["max_runtime_s"] = policy.get("max_runtime_s", default_runtime)
    if spec.get("preemptible") is None:
        spec["preemptible"] = policy.get("preemptible", True)
    if spec["topology"] is not None:
        spec["topology"] = {"policy": "required", **spec["topology"]}
    if spec["array"] is not None:
        spec["array"] = {"max_running": None, "max_failures": None, **spec["array"]}
    if spec["checkpoint"] is not None:
        spec["checkpoint"] = {"interval_s": 600, "ranks": "first", **spec["checkpoint"]}
    _check(spec)
    return spec


def priority_of(value: int | str) -> int:
    """The number of a priority."""
    return PRIORITIES[value] if isinstance(value, str) else value


def _tasks(tasks: Mapping[str, Any]) -> dict[str, int]:
    count = tasks.get("count", 1)
    least = tasks.get("min_count", count)
    if least > count:
        raise Invalid(
            f"min_count is {least}, more than count, which is {count}.",
            pointer="/job/tasks/min_count",
        )
    return {"count": count, "min_count": least}


def _resources(given: Mapping[str, Any]) -> dict[str, Any]:
    amounts = [
        name for name in ("gpus", "gpu_fraction", "gpu_memory_mib") if given.get(name) is not None
    ]
    if len(amounts) > 1:
        raise Invalid(
            f"Only one of gpus, gpu_fraction and gpu_memory_mib may be given, "
            f"not {' and '.join(amounts)}.",
            pointer=f"/job/resources/{amounts[1]}",
        )
    full: dict[str, Any] = {
        "gpus": None,
        "gpu_fraction": None,
        "gpu_memory_mib": None,
        "gpu_types": [],
        "min_gpu_memory_mib": None,
        "vcpus": None,
        "memory_mib": None,
        **given,
    }
    if not amounts:
        full["gpus"] = 1
    return full


def _check(spec: Mapping[str, Any]) -> None:
    given = [name for name in ("command", "script") if spec[name] is not None]
    if len(given) != 1:
        raise Invalid(
            "Exactly one of command and script must be given, not "
            + ("both." if given else "neither."),
            pointer="/job/command",
        )
    _check_words(spec)
    for name in spec["env"]:
        if name in RESERVED_ENV or name.startswith(RESERVED_PREFIX):
            raise Invalid(
                f"The variable {name!r} is set by the service; choose another name.",
                pointer=f"/job/env/{name}",
            )
    for name, what in _NO_DRIVER.items():
        if spec[name]:
            raise Invalid(f"This deployment has no driver for {what}.", pointer=f"/job/{name}")
    if spec["workdir"] is not None:
        check_path(spec["workdir"], "/job/workdir")
    for index, one in enumerate(spec["inputs"]):
        check_path(one["path"], f"/job/inputs/{index}/path")
        check_source(one["source"], one["path"], f"/job/inputs/{index}/source")
    for index, one in enumerate(spec["outputs"]):
        check_path(one["path"], f"/job/outputs/{index}/path")
        if one.get("target") is not None:
            check_target(one["target"], f"/job/outputs/{index}/target")
    if spec["checkpoint"] is not None:
        check_path(spec["checkpoint"]["path"], "/job/checkpoint/path")
    array = spec["array"]
    if array and array["max_running"] is not None and array["max_running"] > array["size"]:
        raise Invalid(
            f"max_running is {array['max_running']}, more than the array's size {array['size']}.",
            pointer="/job/array/max_running",
        )


def _check_words(spec: Mapping[str, Any]) -> None:
    """What execve(2) would refuse on every node is refused here."""
    words = spec["command"] or ()
    if words and not words[0]:
        raise Invalid(
            "The command's first word is empty; it must name the program.",
            pointer="/job/command/0",
        )
    sizes = {f"/job/command/{at}": word for at, word in enumerate(words)}
    sizes |= {f"/job/env/{name}": f"{name}={value}" for name, value in spec["env"].items()}
    for pointer, word in sizes.items():
        # No character takes more than four bytes, so that most need not be encoded.
        if 4 * len(word) >= MAX_WORD_BYTES and len(word.encode()) >= MAX_WORD_BYTES:
            raise Invalid(
                f"{word[:40]!r}... has {len(word.encode())} bytes; a program's argument or "
                f"variable must have less than {MAX_WORD_BYTES}.",
                pointer=pointer,
            )


def check_path(path: str, pointer: str) -> None:
    """A path below the working directory: relative, without ``..``, printable.

    :raises Invalid: otherwise.
    """
    parts = path.rstrip("/").split("/")
    wrong = (
        not path
        or path.startswith("/")
        or "\\" in path
        or _WINDOWS.match(path) is not None
        or any(part in ("", "..") for part in parts)
        or any(ord(letter) < 32 or ord(letter) == 127 for letter in path)
    )
    if wrong:
        raise Invalid(
            f"{path!r} is not a relative path without '..' below the working directory.",
            pointer=pointer,
        )
    if len(parts) > MAX_PATH_PARTS or any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        raise Invalid(
            f"The path {path[:60]!r}... is too long: at most {MAX_PATH_PARTS} folders deep, each "
            f"name at most {MAX_NAME_BYTES} bytes.",
            pointer=pointer,
        )


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The parts of a normalised spec that decide where and how it runs (units as named)."""

    count: int
    min_count: int
    gpu_milli: int
    gpu_memory_mib: int | None
    gpu_types: tuple[str, ...]
    min_gpu_memory_mib: int
    vcpus: int
    memory_mib: int
    within: str | None
    required: bool
    grace_period_s: int
    max_attempts: int
    backoff_s: int
    retry_on: frozenset[str]
    depends_on: tuple[tuple[str, str], ...]

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> JobSpec:
        """Of the normalised ``spec`` of a job row."""
        wants, topology, retry = spec["resources"], spec["topology"] or {}, spec["retry"]
        return cls(
            count=spec["tasks"]["count"],
            min_count=spec["tasks"]["min_count"],
            gpu_milli=gpu_milli(wants),
            gpu_memory_mib=wants["gpu_memory_mib"],
            gpu_types=tuple(sorted(wants["gpu_types"])),
            min_gpu_memory_mib=wants["min_gpu_memory_mib"] or 0,
            vcpus=wants["vcpus"] or 0,
            memory_mib=wants["memory_mib"] or 0,
            within=topology.get("within"),
            required=topology.get("policy") == "required",
            grace_period_s=spec["grace_period_s"],
            max_attempts=retry["max_attempts"],
            backoff_s=retry["backoff_s"],
            retry_on=frozenset(retry["on"]),
            depends_on=tuple(
                (one["job"], one.get("condition", "succeeded")) for one in spec["depends_on"]
            ),
        )


def gpu_milli(resources: Mapping[str, Any]) -> int:
    """Milli-GPUs of one task (0 when asked for by memory: that depends on the device)."""
    if resources["gpu_memory_mib"] is not None:
        return 0
    if resources["gpu_fraction"] is not None:
        return max(1, round(float(resources["gpu_fraction"]) * 1000))
    return 1000 * int(resources["gpus"])


def alone(spec: Mapping[str, Any]) -> dict[str, int]:
    """What the smallest form of the request takes at once, by quota name (milli)."""
    least = spec["tasks"]["min_count"] * gpu_milli(spec["resources"])
    types = spec["resources"]["gpu_types"]
    asked = {"gpus": least, "jobs:running": 1}
    if len(types) == 1:
        asked[f"gpus:{types[0]}"] = least
    return asked

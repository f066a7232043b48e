# SPDX-License-Identifier: Apache-2.0
"""The request of a job: from a file, a script and options, the options last."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from osc_lib import exceptions

from gpuservice.clients.osc.job import priority
from gpuservice.clients.osc.options import Option, collected
from gpuservice.clients.osc.values import boolean, duration, memory, pair

#: Group title -> options.
GROUPS: Mapping[str, tuple[Option, ...]] = {
    "what runs": (
        Option("--name", "Its name, by default the program's"),
        Option("--env", "A variable; repeat for more", pair, "env", "KEY=VALUE", many="map"),
        Option("--workdir", "Directory to run in, relative to the task's own"),
        Option("--image", "Container image, where the service has a driver for them"),
        Option(
            "--input",
            "Fetch PATH from URL first; repeat for more",
            pair,
            "inputs",
            "PATH=URL",
            many="list",
        ),
        Option(
            "--output",
            "Keep PATH in the end, as artifact or at URL; repeat for more",
            str,
            "outputs",
            "PATH[=URL]",
            many="list",
        ),
        Option(
            "--checkpoint",
            "Path of checkpoints: kept, and there again at the next attempt",
            field="checkpoint.path",
        ),
        Option("--checkpoint-interval", "How often", duration, "checkpoint.interval_s"),
        Option("--checkpoint-ranks", "Whose", str, "checkpoint.ranks", choices=("first", "all")),
    ),
    "what each task needs": (
        Option("--gpus", "GPUs", int, "resources.gpus"),
        Option(
            "--gpu-fraction", "A share of one GPU, 0.001 to 0.999", float, "resources.gpu_fraction"
        ),
        Option(
            "--gpu-memory",
            "Memory of one GPU, in MiB or like 20GiB",
            memory,
            "resources.gpu_memory_mib",
        ),
        Option(
            "--gpu-type",
            "A type that will do; repeat for more",
            str,
            "resources.gpu_types",
            many="list",
        ),
        Option(
            "--min-gpu-memory",
            "Only GPUs with so much, in MiB or like 40GiB",
            memory,
            "resources.min_gpu_memory_mib",
        ),
        Option("--vcpus", "CPUs", int, "resources.vcpus"),
        Option("--memory", "Memory, in MiB or like 64GiB", memory, "resources.memory_mib"),
    ),
    "how many, and where": (
        Option("--tasks", "Tasks of the gang", int, "tasks.count"),
        Option("--min-tasks", "So many will do to begin", int, "tasks.min_count"),
        Option(
            "--within",
            "Close together",
            str,
            "topology.within",
            choices=("link_group", "node", "link_domain", "rack", "zone"),
        ),
        Option(
            "--topology-policy",
            "How much that matters",
            str,
            "topology.policy",
            choices=("required", "preferred"),
        ),
        Option("--array-size", "Make it an array of so many", int, "array.size"),
        Option("--array-max-running", "So many of them at once", int, "array.max_running"),
        Option("--array-max-failures", "So many may fail", int, "array.max_failures"),
    ),
    "when, and how long": (
        Option("--queue", "Queue, by default the one named default"),
        Option(
            "--kind",
            "Kind of work",
            choices=("interactive", "training", "evaluation", "data", "service"),
        ),
        Option("--priority", "low, normal, high, urgent, or 0 to 1000", priority),
        Option("--max-runtime", "Time limit, like 90s, 15m, 1h or 2d", duration, "max_runtime_s"),
        Option("--deadline", "Must have ended by then (ISO 8601)", field="deadline_at"),
        Option("--preemptible", "Whether it may be stopped for others: true or false", boolean),
        Option("--grace-period", "From the signal to the kill", duration, "grace_period_s"),
        Option("--signal", "The signal", choices=("TERM", "INT", "HUP", "USR1", "USR2", "QUIT")),
        Option("--max-attempts", "Attempts in all; 1 for no retry", int, "retry.max_attempts"),
        Option(
            "--retry-on",
            "A failure class that is tried again; repeat for more",
            str,
            "retry.on",
            many="list",
        ),
        Option(
            "--depends-on",
            "Only after that job (name or id, then perhaps =succeeded, =failed, =ended or "
            "=started); repeat for more",
            str,
            "depends_on",
            "JOB[=CONDITION]",
            many="list",
        ),
        Option("--hold", "Wait until it is released", const=True),
        Option("--label", "A label; repeat for more", pair, "labels", "KEY=VALUE", many="map"),
    ),
}
OPTIONS = tuple(option for group in GROUPS.values() for option in group)
_AMOUNTS = ("gpus", "gpu_fraction", "gpu_memory_mib")


def request_of(parsed_args: argparse.Namespace) -> dict[str, Any]:
    """The request that the arguments describe.

    :raises osc_lib.exceptions.CommandError: for a file that cannot be read, naming the place.
    """
    request = read_file(parsed_args.file) if parsed_args.file else {}
    given = collected(OPTIONS, parsed_args)
    _reshape(given)
    _merge(request, given)
    if parsed_args.script and parsed_args.argv:
        raise exceptions.CommandError("Give --script or a command, not both.")
    if parsed_args.script:
        request.pop("command", None)
        request["script"] = _text(parsed_args.script)
    elif parsed_args.argv:
        request.pop("script", None)
        request["command"] = list(parsed_args.argv)
    if "name" not in request:
        request["name"] = _name(parsed_args)
    return request


def read_file(path: str) -> dict[str, Any]:
    """The request of a YAML or JSON file, wrapped in ``job:`` or bare."""
    try:
        # Of the YAML loaders this one makes nothing but plain data.
        content = yaml.load(_text(path), Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise exceptions.CommandError(f"{path}{where}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise exceptions.CommandError(f"{path}: {error}") from error
    if isinstance(content, dict) and set(content) == {"job"}:
        content = content["job"]
    if not isinstance(content, dict):
        found = "nothing" if content is None else type(content).__name__
        raise exceptions.CommandError(
            f"{path} must hold the fields of a job (name: ..., command: ...), not {found}."
        )
    strange = [key for key in content if not isinstance(key, str)]
    if strange:
        raise exceptions.CommandError(
            f"{path}: the field {strange[0]!r} is no text. (YAML reads on, off, yes and no as "
            "true and false unless they are quoted.)"
        )
    return content


class _StrictLoader(yaml.SafeLoader):
    """Refuses a field that is there twice, reads times as text and ``on:`` as the word it is."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping without double fields."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.tag == "tag:yaml.org,2002:bool":
                    key.tag = "tag:yaml.org,2002:str"
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the field {key.value!r} is there twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _as_text(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    """Times stay text: that is how the service takes them."""
    return str(loader.construct_scalar(node))


_StrictLoader.add_constructor("tag:yaml.org,2002:timestamp", _as_text)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise exceptions.CommandError(f"{path} is no UTF-8 text.") from error
    except OSError as error:
        raise exceptions.CommandError(f"{path} cannot be read: {error.strerror}.") from error


def _reshape(given: dict[str, Any]) -> None:
    """Shorthand of options as the service's structures."""
    if "inputs" in given:
        given["inputs"] = [{"path": path, "source": url} for path, url in given["inputs"]]
    if "outputs" in given:
        split = [text.partition("=") for text in given["outputs"]]
        given["outputs"] = [
            {"path": path, "target": url} if url else {"path": path} for path, _, url in split
        ]
    if "depends_on" in given:
        pairs = [text.partition("=") for text in given["depends_on"]]
        given["depends_on"] = [
            {"job": job, "condition": condition} if condition else {"job": job}
            for job, _, condition in pairs
        ]
    topology = given.get("topology")
    if topology and "policy" in topology and "within" not in topology:
        topology.setdefault("within", "node")


def _merge(request: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Put options over a file's fields; one way to ask for GPUs replaces another."""
    asked = given.get("resources", {})
    if any(name in asked for name in _AMOUNTS) and isinstance(request.get("resources"), dict):
        for name in _AMOUNTS:
            request["resources"].pop(name, None)
    for name, value in given.items():
        before = request.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            request[name] = {**before, **value}
        else:
            request[name] = value


def _name(parsed_args: argparse.Namespace) -> str:
    """A name made of the program: ``python3 train.py`` gives ``train``."""
    words = [parsed_args.script] if parsed_args.script else parsed_args.argv or []
    scripts = [word for word in words if Path(word).suffix in (".py", ".sh")]
    stem = Path((scripts or words or ["job"])[0]).stem
    kept = "".join(
        one if one.isascii() and (one.isalnum() or one in "._-") else "-" for one in stem
    ).lstrip("._-")[:63]
    return kept or "job"

# SPDX-License-Identifier: Apache-2.0
"""A cluster as JSON: nodes with their places, queues, quotas, outages, reservations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpuservice.planner.snapshot import DeviceState, NodeState, QueueState, Reservation
from gpuservice.simulation.cluster import BOUNDLESS, Cluster, Outage, memory_of, pool_of
from gpuservice.simulation.faults import InputFault

_TOP = ("nodes", "queues", "quotas", "outages", "reservations")
_PREEMPTION = ("none", "lower_priority", "reclaim", "both")
_MISSING = object()


class Entry:
    """One JSON object, whose fields are asked for by name; any other field is refused."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise InputFault(f"{where}: {json.dumps(value)} is wrong; it must be an object")
        self._value: Mapping[str, Any] = value
        self.where = where
        self._asked: set[str] = set()

    def get(self, name: str, kind: type | tuple[type, ...], right: str, default: Any) -> Any:
        """A field; ``default`` if it is absent or null (``_MISSING``: it must be there)."""
        self._asked.add(name)
        found = self._value.get(name)
        if found is None:
            if default is _MISSING:
                raise InputFault(f"{self.where}: '{name}' is missing; it must be {right}")
            return default
        if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
            raise self.fault(name, right)
        return found

    def text(self, name: str, default: Any = _MISSING) -> Any:
        """A word."""
        return self.get(name, str, "a text", default)

    def whole(self, name: str, default: Any = _MISSING, least: int = 0) -> Any:
        """A whole number."""
        right = f"a whole number of at least {least}"
        found = self.get(name, int, right, default)
        if isinstance(found, int) and found < least:
            raise self.fault(name, right)
        return found

    def number(self, name: str, default: Any = _MISSING, least: float = 0.0) -> Any:
        """A number."""
        right = f"a number of at least {least:g}"
        found = self.get(name, (int, float), right, default)
        if isinstance(found, int | float) and not least <= found < float("inf"):
            raise self.fault(name, right)
        return found

    def texts(self, name: str) -> list[str]:
        """A list of words."""
        found = self.get(name, list, "a list of texts", [])
        if not all(isinstance(one, str) for one in found):
            raise self.fault(name, "a list of texts")
        return list(found)

    def items(self, name: str, default: Any = ()) -> list[Entry]:
        """A list of objects."""
        found = self.get(name, list, "a list of objects", default)
        return [Entry(one, f"{self.where}{name}[{number}]") for number, one in enumerate(found)]

    def milli(self, name: str) -> dict[str, int]:
        """GPUs by type, as milli."""
        found = self.get(name, dict, 'GPUs by type, such as {"a100-80gb": 8}', {})
        for gpus in found.values():
            if isinstance(gpus, bool) or not isinstance(gpus, int | float) or gpus < 0:
                raise self.fault(name, 'GPUs by type, such as {"a100-80gb": 8}')
        return {gpu_type: round(1000 * gpus) for gpu_type, gpus in found.items()}

    def fault(self, name: str, right: str) -> InputFault:
        """What is wrong where, and what would be right."""
        value = json.dumps(self._value.get(name))
        return InputFault(f"{self.where}: '{name}': {value} is wrong; it must be {right}")

    def no_more(self) -> None:
        """Refuse fields that nobody asked for: a misspelt one would be passed over."""
        more = sorted(set(self._value) - self._asked)
        if more:
            known = ", ".join(sorted(self._asked))
            raise InputFault(f"{self.where}: there is no field '{more[0]}'; there are {known}")

    def rest(self) -> dict[str, Any]:
        """The fields that nobody asked for."""
        return {name: one for name, one in self._value.items() if name not in self._asked}


def from_json(text: str, path: str) -> Cluster:
    """Read a cluster.

    :raises InputFault: naming the place, its value and what is right.
    """
    try:
        top = Entry(json.loads(text), f"{path}: ")
    except json.JSONDecodeError as error:
        raise InputFault(f"{path}: line {error.lineno}: no JSON: {error.msg}") from None
    nodes = tuple(_node(entry) for entry in top.items("nodes", _MISSING))
    if not nodes:
        raise InputFault(f"{path}: nodes: a cluster has at least one node")
    _unique([node.id for node in nodes], f"{path}: nodes", "name")
    queues = [_queue(entry) for entry in top.items("queues")]
    _unique([queue.id for queue, _, _ in queues], f"{path}: queues", "name")
    names = {node.id for node in nodes}
    made = Cluster(
        nodes,
        tuple(queue for queue, _, _ in queues),
        _headroom(top.items("quotas")),
        tuple(_outage(entry, names) for entry in top.items("outages")),
        tuple(_reservation(entry, nodes) for entry in top.items("reservations")),
        {queue.id: frozenset(members) for queue, members, _ in queues if members},
        {queue.id: protected for queue, _, protected in queues if protected},
    )
    top.no_more()
    return made


def _node(entry: Entry) -> NodeState:
    name, gpus = entry.text("name"), entry.whole("gpus", 0)
    gpu_type = entry.text("gpu_type", "gpu")
    memory = entry.whole("gpu_memory_mib", memory_of(gpu_type), 1)
    groups = _groups(entry, gpus)
    devices = tuple(
        DeviceState(f"{name}/{index}", gpu_type, memory, link_group=groups.get(index))
        for index in range(gpus)
    )
    node = NodeState(
        name,
        pool_of(gpu_type, gpus),
        entry.whole("vcpus", BOUNDLESS),
        entry.whole("memory_mib", BOUNDLESS),
        devices,
        link_domain=entry.text("link_domain", None),
        rack=entry.text("rack", None),
        zone=entry.text("zone", None),
    )
    entry.no_more()
    return node


def _groups(entry: Entry, gpus: int) -> dict[int, str]:
    """The link group of each GPU: the lists that the file has, or all of a node in one."""
    right = f"lists of GPUs, 0 to {gpus - 1}, each GPU at most once, such as [[0, 1], [2, 3]]"
    lists = entry.get("link_groups", list, right, None)
    if lists is None:
        return dict.fromkeys(range(gpus), "0")
    found: dict[int, str] = {}
    for number, group in enumerate(lists):
        for index in group if isinstance(group, list) else [None]:
            if not isinstance(index, int) or not 0 <= index < gpus or index in found:
                raise entry.fault("link_groups", right)
            found[index] = str(number)
    return found


def _queue(entry: Entry) -> tuple[QueueState, list[str], float]:
    preemption = entry.text("preemption", "none")
    if preemption not in _PREEMPTION:
        raise entry.fault("preemption", f"one of {', '.join(_PREEMPTION)}")
    weight = entry.number("weight", 1.0)
    if weight <= 0:
        raise entry.fault("weight", "a number above 0")
    queue = QueueState(
        entry.text("name"),
        (),
        entry.get("open", bool, "true or false", True),
        float(weight),
        entry.text("cohort", None),
        entry.milli("nominal"),
        entry.milli("borrowing_limit"),
        entry.milli("lending_limit"),
        preemption,
        entry.get("spread", bool, "true or false", False),
        entry.whole("default_runtime_s", None, 1),
    )
    members, protected = entry.texts("projects"), float(entry.number("min_runtime_s", 0.0))
    entry.no_more()
    return queue, members, protected


def _headroom(entries: Sequence[Entry]) -> dict[tuple[str, str], int]:
    """``{"project", "gpus", "gpus:TYPE", "jobs:running"}``: -1 is no limit."""
    limits: dict[tuple[str, str], int] = {}
    for entry in entries:
        project = entry.text("project")
        for name in entry.rest():
            if name not in ("gpus", "jobs:running") and not name.startswith("gpus:"):
                raise InputFault(
                    f"{entry.where}: there is no quota '{name}'; there are gpus, gpus:TYPE "
                    "and jobs:running"
                )
            limit = entry.number(name, least=-1.0)
            if limit >= 0:
                limits[project, name] = round(limit * (1 if name == "jobs:running" else 1000))
    return limits


def _outage(entry: Entry, names: set[str]) -> Outage:
    node = entry.text("node")
    if node not in names:
        raise entry.fault("node", "the name of a node of this file")
    outage = Outage(node, entry.number("at_s"), entry.number("for_s"))
    entry.no_more()
    return outage


def _reservation(entry: Entry, nodes: Sequence[NodeState]) -> Reservation:
    """Of named nodes, or of as many GPUs as asked for: then the last nodes of the file."""
    name, queue, project = (
        entry.text("name"),
        entry.text("queue", None),
        entry.text("project", None),
    )
    if (queue is None) == (project is None):
        raise InputFault(f"{entry.where}: exactly one of 'queue' and 'project' says who may use it")
    chosen, gpus = entry.texts("nodes"), entry.whole("gpus", 0)
    if bool(chosen) == bool(gpus):
        raise InputFault(f"{entry.where}: exactly one of 'nodes' and 'gpus' says what is reserved")
    if unknown := set(chosen) - {node.id for node in nodes}:
        raise entry.fault("nodes", f"names of nodes of this file; '{min(unknown)}' is none")
    for node in reversed(nodes):
        if gpus <= 0:
            break
        if node.devices:
            chosen.append(node.id)
            gpus -= len(node.devices)
    if gpus > 0:
        raise entry.fault("gpus", "no more than the cluster has")
    start, end = float(entry.number("start_s")), float(entry.number("end_s"))
    if end <= start:
        raise entry.fault("end_s", f"later than start_s, which is {start:g}")
    entry.no_more()
    return Reservation(name, tuple(chosen), start, end, queue, project)


def _unique(names: Sequence[str], where: str, what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputFault(f"{where}: the {what} '{name}' is there twice")
        seen.add(name)

# SPDX-License-Identifier: Apache-2.0
"""Reads the node and pod lists of the Alibaba openb trace (2023), plain or gzipped CSV.

Columns: ``sn, cpu_milli, memory_mib, gpu, model`` for nodes, and for pods ``name, cpu_milli,
memory_mib, num_gpu, gpu_milli, gpu_spec`` (models joined by ``|``) with optional times in seconds
(``creation_time, deletion_time, scheduled_time``). Further columns are not read.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuservice.simulation.faults import InputFault

#: A whole GPU in milli-GPU.
WHOLE = 1000
#: A number above this is a fault of the file.
LARGEST = 10**12


class ListError(InputFault):
    """A list that cannot be read; the text names file, line, column and value."""


@dataclass(frozen=True, slots=True)
class Node:
    """One host of the list."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class Pod:
    """One request of the list."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    #: Of each GPU; 1000 is a whole one.
    gpu_milli: int
    #: Allowed models, sorted; empty when any will do.
    models: tuple[str, ...]
    created_s: int | None = None
    deleted_s: int | None = None
    scheduled_s: int | None = None


def read_nodes(path: Path) -> list[Node]:
    """The hosts in the order of the file."""
    nodes = [_node(row) for row in _rows(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model"))]
    if not nodes:
        raise ListError(f"{path}: no node in it")
    return nodes


def read_pods(path: Path) -> list[Pod]:
    """The requests in the order of the file."""
    needed = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
    pods = [_pod(row) for row in _rows(path, needed)]
    if not pods:
        raise ListError(f"{path}: no pod in it")
    return pods


class _Row:
    """One line with the words for its faults."""

    def __init__(self, path: Path, line: int, cells: dict[str, str]) -> None:
        self._where = f"{path} line {line}"
        self._cells = cells

    def fault(self, column: str, wanted: str) -> ListError:
        return ListError(f"{self._where}: {column} is {self.text(column)!r}, not {wanted}")

    def text(self, column: str) -> str:
        return self._cells.get(column) or ""

    def name(self, column: str) -> str:
        if not self.text(column):
            raise self.fault(column, "a name")
        return self.text(column)

    def number(self, column: str, most: int = LARGEST) -> int:
        text = self.text(column).strip()
        if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= most:
            return int(text)
        raise self.fault(column, f"a whole number from 0 to {most}")

    def moment(self, column: str) -> int | None:
        """Seconds, where the list has them; the trace leaves out what never happened."""
        text = self.text(column).strip()
        try:
            return int(float(text)) if text else None
        except (ValueError, OverflowError):
            raise self.fault(column, "a number of seconds") from None


def _node(row: _Row) -> Node:
    gpus = row.number("gpu", most=1024)
    return Node(
        name=row.name("sn"),
        cpu_milli=row.number("cpu_milli"),
        memory_mib=row.number("memory_mib"),
        gpus=gpus,
        model=row.name("model") if gpus else row.text("model"),
    )


def _pod(row: _Row) -> Pod:
    gpus = row.number("num_gpu", most=1024)
    milli = row.number("gpu_milli", most=WHOLE)
    if gpus and not milli:
        raise row.fault("gpu_milli", f"above 0, though num_gpu is {gpus}")
    if gpus > 1 and milli < WHOLE:
        raise row.fault("gpu_milli", f"{WHOLE}, though num_gpu is {gpus}")
    return Pod(
        name=row.name("name"),
        cpu_milli=row.number("cpu_milli"),
        memory_mib=row.number("memory_mib"),
        gpus=gpus,
        gpu_milli=milli if gpus else 0,
        models=tuple(sorted({word for word in row.text("gpu_spec").split("|") if word})),
        created_s=row.moment("creation_time"),
        deleted_s=row.moment("deletion_time"),
        scheduled_s=row.moment("scheduled_time"),
    )


def _rows(path: Path, needed: tuple[str, ...]) -> Iterator[_Row]:
    """Each line with something in it, once the header has what is needed."""
    opened: Callable[..., io.TextIOWrapper] = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="") as text:
            lines = csv.reader(text)
            header = next(lines, [])
            for column in needed:
                if column not in header:
                    raise ListError(f"{path} line 1: no column {column!r}, only {header}")
            for cells in lines:
                if not cells:
                    continue
                if len(cells) != len(header):
                    raise ListError(
                        f"{path} line {lines.line_num}: {len(cells)} cells under a header of "
                        f"{len(header)}: {','.join(cells)!r}"
                    )
                yield _Row(path, lines.line_num, dict(zip(header, cells, strict=True)))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as fault:
        raise ListError(f"{path} cannot be read: {fault}") from fault

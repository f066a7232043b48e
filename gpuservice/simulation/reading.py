# SPDX-License-Identifier: Apache-2.0
"""Which reader a file wants: told by its format's name, or found by its first line."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import IO

from gpuservice.simulation.cluster import Cluster, from_spec
from gpuservice.simulation.cluster_json import from_json
from gpuservice.simulation.faults import InputFault
from gpuservice.simulation.traces import (
    ITP_HEADER,
    PHILLY_HEADER,
    read_itp,
    read_philly,
    read_swf,
)
from gpuservice.simulation.workload import Reading, WorkloadJob
from gpuservice.simulation.workload_csv import read_csv

Reader = Callable[[IO[str], Reading, str], tuple[WorkloadJob, ...]]

READERS: dict[str, Reader] = {
    "csv": read_csv,
    "swf": read_swf,
    "itp": read_itp,
    "philly": read_philly,
}
#: The pod list of the Alibaba openb trace, which only ``--mode packing`` takes.
OPENB = "openb"
FORMATS = ("auto", *READERS, OPENB)

_OPENB_COLUMNS = {"cpu_milli", "num_gpu", "gpu_milli"}


def text_of(path: str, what: str) -> str:
    """The text of a file, unpacked if its name ends in .gz.

    :raises InputFault: if it cannot be read.
    """
    try:
        raw = Path(path).read_bytes()
        return (gzip.decompress(raw) if path.endswith(".gz") else raw).decode("utf-8-sig")
    except FileNotFoundError:
        raise InputFault(f"{what} {path}: there is no such file") from None
    except UnicodeDecodeError as error:
        raise InputFault(f"{what} {path}: byte {error.start} is no UTF-8") from None
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputFault(f"{what} {path}: cannot be read: {reason}") from None


def format_of(path: str, text: str) -> str:
    """What a workload file is, by its name and its header."""
    if path.removesuffix(".gz").endswith(".swf") or text.startswith(";"):
        return "swf"
    header = [name.strip() for name in text.partition("\n")[0].split(",")]
    if set(ITP_HEADER) <= set(header):
        return "itp"
    if set(PHILLY_HEADER) <= set(header):
        return "philly"
    return OPENB if set(header) >= _OPENB_COLUMNS else "csv"


def workload(path: str, reading: Reading, form: str = "auto") -> tuple[WorkloadJob, ...]:
    """The jobs of a workload file.

    :raises InputFault: if it is not as it must be.
    """
    text = text_of(path, "--workload")
    if form == "auto":
        form = format_of(path, text)
    if form == OPENB:
        raise InputFault(f"--workload {path}: an openb pod list needs --mode packing")
    jobs = READERS[form](io.StringIO(text), reading, path)
    if not jobs:
        raise InputFault(f"--workload {path}: there is no job in it")
    return jobs


def cluster(given: str) -> Cluster:
    """The cluster of a JSON file, or of a spec.

    :raises InputFault: if it is not as it must be.
    """
    if Path(given).exists() or given.endswith((".json", ".json.gz")):
        return from_json(text_of(given, "--cluster"), given)
    return from_spec(given)

# SPDX-License-Identifier: Apache-2.0
"""Reading the node and pod lists of the openb trace."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gpuservice.simulation.openb import ListError, Node, Pod, read_nodes, read_pods

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time\n"


def _file(folder: Path, text: str, name: str = "list.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_nodes(tmp_path: Path) -> None:
    path = _file(tmp_path, NODES + "n-0,64000,262144,2,P100\nn-1,96000,1024,0,\n")

    assert read_nodes(path) == [
        Node("n-0", 64000, 262144, 2, "P100"),
        Node("n-1", 96000, 1024, 0, ""),
    ]


def test_pods(tmp_path: Path) -> None:
    rows = "p-0,12000,16384,1,460,T4|P100,LS,0,12537496.0\np-1,2000,1,8,1000,,BE,,\n"
    rows += "p-2,500,1,0,0,,,,\n"

    assert read_pods(_file(tmp_path, PODS + rows)) == [
        Pod("p-0", 12000, 16384, 1, 460, ("P100", "T4"), 0, 12537496),
        Pod("p-1", 2000, 1, 8, 1000, ()),
        Pod("p-2", 500, 1, 0, 0, ()),
    ]


def test_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "list.csv.gz"
    path.write_bytes(gzip.compress((NODES + "n-0,1,1,1,T4\n").encode()))

    assert len(read_nodes(path)) == 1


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("p,1,1,1,x,,,0,0", "line 2: gpu_milli is 'x', not a whole number from 0 to 1000"),
        ("p,1,1,1,1001,,,0,0", "line 2: gpu_milli is '1001'"),
        ("p,-1,1,1,500,,,0,0", "line 2: cpu_milli is '-1'"),
        ("p,1,,1,500,,,0,0", "line 2: memory_mib is ''"),
        ("p,1,1,9999,1000,,,0,0", "line 2: num_gpu is '9999'"),
        ("p,1,1,2,500,,,0,0", "line 2: gpu_milli is '500', not 1000, though num_gpu is 2"),
        ("p,1,1,1,0,,,0,0", "line 2: gpu_milli is '0', not above 0, though num_gpu is 1"),
        (",1,1,1,500,,,0,0", "line 2: name is '', not a name"),
        ("p,1,1,1,500,,,soon,0", "line 2: creation_time is 'soon', not a number of seconds"),
        ("p,1,1,1,500,,,inf,0", "line 2: creation_time is 'inf'"),
        ("p,1,1", "line 2: 3 cells under a header of 9: 'p,1,1'"),
        ("", "no pod in it"),
    ],
)
def test_a_fault_names_line_and_value(tmp_path: Path, row: str, fault: str) -> None:
    with pytest.raises(ListError) as raised:
        read_pods(_file(tmp_path, PODS + row + "\n"))

    assert fault in str(raised.value)
    assert "list.csv" in str(raised.value)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(ListError, match="line 1: no column 'model'"):
        read_nodes(_file(tmp_path, "sn,cpu_milli,memory_mib,gpu\n"))


def test_what_is_no_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ListError, match="cannot be read"):
        read_nodes(tmp_path / "none.csv")
    with pytest.raises(ListError, match="cannot be read"):
        read_nodes(_file(tmp_path, "plain text", "list.csv.gz"))
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ListError, match="cannot be read"):
        read_nodes(binary)

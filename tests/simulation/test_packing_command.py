# SPDX-License-Identifier: Apache-2.0
"""gpuservice-simulate --mode packing, from files to files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuservice.cmd.simulate import main

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,8,G2\nn1,96000,262144,8,T4\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"p{index},4000,1024,1,{milli},{spec}\n"
    for index, (milli, spec) in enumerate([(810, ""), (190, "T4"), (1000, "G2|T4"), (470, "")] * 4)
)


@pytest.fixture
def lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


ARGUMENTS = ["--workload", "pods.csv", "--cluster", "nodes.csv", "--mode"]


def test_a_result_of_each_mode(lists: Path) -> None:
    assert main([*ARGUMENTS, "packing", "--policy", "fgd", "--output", "r.json"]) == 0
    result = json.loads((lists / "r.json").read_text())
    assert result["mode"] == "packing"
    assert set(result["summary"]["allocation_ratio"]) >= {"50", "100", "130"}
    assert result["summary"]["placed"] == sum(job["status"] == "placed" for job in result["jobs"])

    settings = ["--set", "packing.hold=true", "--set", "packing.batch=3", "--seed", "7"]
    assert main([*ARGUMENTS, "packing+queue", *settings, "--output", "q.json"]) == 0
    settings = json.loads((lists / "q.json").read_text())["settings"]
    assert (settings["seed"], settings["batch"], settings["hold"]) == (7, 3, True)


def test_the_same_input_gives_the_same_bytes(lists: Path) -> None:
    code = "import sys; from gpuservice.cmd.simulate import main; sys.exit(main(sys.argv[1:]))"
    for seed in ("1", "2"):
        command = [sys.executable, "-c", code, *ARGUMENTS, "packing", "--output", f"{seed}.json"]
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        subprocess.run(command, check=True, env=environment)
    assert (lists / "1.json").read_bytes() == (lists / "2.json").read_bytes()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--policy", "easy"], "--mode packing has default, fgd"),
        (["--set", "scheduler.order=fifo"], "--mode packing takes packing.NAME=VALUE"),
        (["--set", "packing.speed=1"], "no packing option 'speed'"),
        (["--inflation", "0"], "inflation is 0"),
        (["--seed", "-1"], "seed is -1"),
        (["--cluster", "none.csv"], "'none.csv' is neither a file nor"),
        (["--cluster", "pods.csv"], "pods.csv line 1: no column 'sn'"),
    ],
)
def test_mistakes_are_one_line(
    lists: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    assert main([*ARGUMENTS, "packing", *more]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    assert told.err.count("\n") == 1

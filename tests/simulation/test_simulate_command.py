# SPDX-License-Identifier: Apache-2.0
"""gpuservice-simulate, from files to files."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuservice.cmd.simulate import main

WORKLOAD = """submit_s,name,project,kind,tasks,gpus_per_task,duration_s,max_runtime_s
0,half,red,training,1,4,10,10
1,whole,blue,training,1,8,10,10
2,long,red,training,1,4,20,20
3,short,red,interactive,1,4,5,5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "w.csv").write_text(WORKLOAD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*more: str) -> int:
    return main(["--workload", "w.csv", "--cluster", "1x8:a100-80gb", *more])


def result(folder: Path, name: str = "r.json") -> dict[str, Any]:
    return json.loads((folder / name).read_text())


def test_a_result(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--policy", "easy", "--output", "r.json", "--timeline", "t.csv") == 0
    made = result(folder)
    by_name = {job["name"]: job for job in made["jobs"]}
    assert by_name["whole"]["attempts"] == [
        {
            "start_s": 10,
            "end_s": 20,
            "outcome": "succeeded",
            "placement": [
                {"task": 0, "node": "n0000", "devices": [0, 1, 2, 3, 4, 5, 6, 7], "milli": 1000}
            ],
        }
    ]
    assert (by_name["whole"]["wait_s"], by_name["whole"]["status"]) == (9, "succeeded")
    assert by_name["whole"]["promise"] == {"made_s": 1, "start_s": 10, "slip_s": 0}
    summary = made["summary"]
    assert summary["makespan_s"] == 40
    assert summary["utilisation"] == (40 + 80 + 80 + 20) / (8 * 40)
    assert summary["wait_s"] == {"mean": 6.75, "p50": 9, "p90": 18, "p99": 18, "max": 18}
    assert summary["by_project"]["red"]["jobs"] == 3
    assert summary["by_kind"]["interactive"]["wait_s"]["max"] == 0
    assert summary["promises"] == {"made": 2, "late": 0, "max_slip_s": 0}
    assert summary["fragmentation"]["idle_while_waiting"] == pytest.approx((4 * 2 + 4 * 2) / 320)
    rows = list(csv.DictReader((folder / "t.csv").open()))
    assert rows[1] == {
        "time_s": "1",
        "waiting": "1",
        "running": "1",
        "used_milli": "4000",
        "free_milli": "4000",
        "used_milli:blue": "0",
        "used_milli:red": "4000",
    }
    assert rows[-1]["free_milli"] == "8000"
    assert "utilisation 68.8 %" in capsys.readouterr().out


def test_the_same_input_gives_the_same_bytes(folder: Path) -> None:
    for name in ("a", "b"):
        code = "import sys; from gpuservice.cmd.simulate import main; sys.exit(main(sys.argv[1:]))"
        seed = {"a": "1", "b": "2"}[name]
        subprocess.run(
            [
                *(sys.executable, "-c", code, "--workload", "w.csv", "--cluster", "1x8"),
                *("--output", f"{name}.json", "--timeline", f"{name}.csv", "--plot", f"{name}.png"),
            ],
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        )
    for kind in ("json", "csv", "png"):
        assert (folder / f"a.{kind}").read_bytes() == (folder / f"b.{kind}").read_bytes()
    assert (folder / "a.png").read_bytes().startswith(b"\x89PNG")


def test_settings_reach_planner_world_and_reader(folder: Path) -> None:
    assert (
        run("--set", "workload.first=2", "--set", "scheduler.promises=0", "--output", "r.json") == 0
    )
    assert [job["name"] for job in result(folder)["jobs"]] == ["half", "whole"]
    assert result(folder)["summary"]["promises"]["made"] == 0


def test_a_cluster_file_with_an_outage(folder: Path) -> None:
    cluster = {
        "nodes": [{"name": "a", "gpus": 8, "gpu_type": "h100"}],
        "outages": [{"node": "a", "at_s": 5, "for_s": 5}],
    }
    (folder / "c.json").write_text(json.dumps(cluster))
    arguments = ["--workload", "w.csv", "--cluster", "c.json", "--policy", "skip"]
    assert main([*arguments, "--output", "r.json"]) == 0
    half = result(folder)["jobs"][0]
    assert [one["outcome"] for one in half["attempts"]] == ["node_failure", "succeeded"]
    assert result(folder)["summary"]["node_failures"] == 2


def test_results_go_to_standard_output_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--output", "-") == 0
    assert len(json.loads(capsys.readouterr().out)["jobs"]) == 4


def test_two_results_side_by_side(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for policy in ("skip", "easy"):
        run("--policy", policy, "--output", f"{policy}.json")
    capsys.readouterr()
    assert main(["--compare", "skip.json", "easy.json"]) == 0
    assert "by_project.blue.wait_s.mean" in capsys.readouterr().out
    assert main(["--compare", "easy.json", "easy.json"]) == 0
    assert capsys.readouterr().out == "No difference.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workload", "none.csv", "--cluster", "1x8"], "--workload none.csv: there is no such"),
        (["--workload", "w.csv", "--cluster", "8"], "such as 8x8:a100-80gb"),
        (["--workload", "w.csv", "--cluster", "c.json"], "--cluster c.json: there is no such file"),
        (["--workload", "w.csv"], "--cluster is missing"),
        (["--workload", "w.csv", "--cluster", "1x8", "--policy", "x"], "one of default, fifo"),
        (["--workload", "w.csv", "--cluster", "1x8", "--set", "x"], "write GROUP.NAME=VALUE"),
        (
            ["--workload", "w.csv", "--cluster", "1x8", "--output", "no/where.json"],
            "no/where.json: cannot be written: No such file or directory",
        ),
        (
            ["--workload", "w.csv", "--cluster", "1x8", "--mode", "packing", "--policy", "easy"],
            "--mode packing has default, fgd",
        ),
        (["--compare", "w.csv", "w.csv"], "--compare w.csv: line 1: no JSON"),
    ],
)
def test_mistakes_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("gpuservice-simulate: ")
    assert said in told.err
    assert told.err.count("\n") == 1


def test_without_matplotlib_pictures_are_refused_with_the_remedy(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run("--plot", "p.png") == 2
    assert "pip install 'gpuservice[simulate]'" in capsys.readouterr().err


def test_placement_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--workload", "w.csv", "--cluster", "2x8:a100-80gb", "--mode", "packing"]
    assert main([*arguments, "--policy", "bestfit", "--seed", "1", "--output", "r.json"]) == 0
    assert "allocated, % of GPUs" in capsys.readouterr().out
    made = result(folder)
    assert made["mode"] == "packing"
    assert {job["name"].partition("#")[0] for job in made["jobs"]} >= {"half", "whole"}
    (folder / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn,64000,262144,2,P100\n")
    (folder / "pods.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np,1000,1024,1,500,\n"
    )
    lists = ["--workload", "pods.csv", "--cluster", "nodes.csv", "--mode", "packing+queue"]
    assert main([*lists, "--set", "packing.batch=2", "--output", "q.json"]) == 0
    assert result(folder, "q.json")["mode"] == "packing+queue"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("scheduler.order=fifo", "takes packing.NAME=VALUE"),
        ("packing.batch=x", "batch is 'x', not a number"),
        ("packing.x=1", "no packing option 'x'"),
    ],
)
def test_mistakes_of_placement_alone(
    folder: Path, capsys: pytest.CaptureFixture[str], setting: str, said: str
) -> None:
    assert run("--mode", "packing", "--set", setting) == 2
    assert said in capsys.readouterr().err

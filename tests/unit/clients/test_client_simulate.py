# SPDX-License-Identifier: Apache-2.0
"""``gpu simulate``: what its options send, how a workload file becomes rows, how figures look."""

from __future__ import annotations

import argparse
import json

import pytest
from client_answers import Answer
from osc_lib import exceptions

from gpuservice.clients.osc.simulate import story
from gpuservice.clients.osc.simulate_request import named_value, owned_value, rows_of, window

IDENT = "00000000-0000-4000-8000-00000000000a"
SPREAD = {"mean": 10, "p50": 5, "p90": 100, "p99": 110, "max": 120}
FIGURES = {
    "jobs": 3, "never_started": 0, "preemptions": 1, "utilisation": 0.5, "makespan_s": 100,
    "wait_s": SPREAD,
    "by_project": {"vision": {"wait_s": SPREAD}}, "by_queue": {}, "by_kind": {},
}  # fmt: skip
RESULT = {
    "jobs": 4, "running_at_start": 1, "left_out": {"held": 2}, "assumptions": ["Pools stay."],
    "base": FIGURES,
    "changed": {**FIGURES, "utilisation": 0.25, "wait_s": dict.fromkeys(SPREAD, 1)},
    "difference": {},
}  # fmt: skip
SIMULATION = {
    "id": IDENT, "name": "more", "status": "queued", "progress": 0, "generation": 1,
    "result": None, "workload_rows": 0, "change": {},
}  # fmt: skip


def test_what_is_sent(openstack, api, tmp_path):
    workload = tmp_path / "w.csv"
    workload.write_text(
        "submit_s,duration_s,name,gpus_per_task,gpu_milli,gpu_types,depends_on,preemptible,priority\n"
        "0,60,a,2,1000,a100|h100,,yes,high\n"
        "5.5,1,b,1,500,,a:ended,no,7\n"
    )
    api.on("POST", "/v1/simulations", Answer(202, {"simulation": SIMULATION}))
    ran = openstack(
        "gpu", "simulate", "create", "more", "--gpus", "a100-80gb=-8", "--pool", "shared=1",
        "--queue", "vision:weight=2", "--queue", "vision:nominal.a100-80gb=8",
        "--queue", "speech:borrowing-limit.a100-80gb=none", "--quota", "vision:gpus=8",
        "--quota", "speech:jobs:running=none", "--policy", "order=fifo",
        "--policy", "preempt=priority,reclaim", "--policy", "due-times=false",
        "--assumed-runtime", "2h", "--from", "empty", "--history", "2026-01-01/2026-01-02",
        "--workload", str(workload),
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert api.asked[-1].body == {
        "simulation": {
            "name": "more",
            "from": "empty",
            "history": {"since": "2026-01-01", "until": "2026-01-02"},
            "assumed_runtime_s": 7200,
            "change": {
                "gpus": {"a100-80gb": -8},
                "pools": {"shared": 1},
                "policy": {
                    "order": "fifo", "preempt": ["priority", "reclaim"], "due_times": False,
                },
                "queues": {
                    "vision": {"weight": 2, "nominal": {"a100-80gb": 8}},
                    "speech": {"borrowing_limit": {"a100-80gb": None}},
                },
                "quotas": {"vision": {"gpus": 8}, "speech": {"jobs:running": None}},
            },
            "workload": [
                {"submit_s": 0, "duration_s": 60, "name": "a", "gpus_per_task": 2,
                 "gpu_types": ["a100", "h100"], "preemptible": True, "priority": "high"},
                {"submit_s": 5.5, "duration_s": 1, "name": "b", "gpu_milli": 500,
                 "depends_on": ["a:ended"], "preemptible": False, "priority": 7},
            ],
        }
    }  # fmt: skip


def test_wait_shows_both_runs_side_by_side(openstack, api):
    api.on("POST", "/v1/simulations", Answer(202, {"simulation": SIMULATION}))
    done = {**SIMULATION, "status": "succeeded", "progress": 100, "result": RESULT}
    api.on("GET", f"/v1/simulations/{IDENT}", Answer(200, {"simulation": done}))
    ran = openstack("gpu", "simulate", "create", "more", "--wait")
    assert ran.code == 0, ran.err
    assert "4 jobs, of which 1 run already." in ran.text
    lines = [line.split() for line in ran.text.splitlines()]
    assert ["utilisation,", "%", "50.0", "25.0", "-25.0"] in lines
    assert ["wait,", "s:", "p90", "100.0", "1.0", "-99.0"] in lines
    assert ["P90", "wait,", "s:", "project", "vision", "100.0", "100.0", "+0.0"] in lines
    ran = openstack("gpu", "simulate", "show", IDENT, "-f", "json")
    assert json.loads(ran.text)["result"] == RESULT


def test_what_was_left_out_is_told() -> None:
    assert "Left out: 2 (held)." in story(RESULT)


@pytest.mark.parametrize(
    ("convert", "text"),
    [
        (named_value, "order"), (named_value, "=x"), (owned_value, "vision"),
        (owned_value, ":a=1"), (owned_value, "vision:a"), (window, "2026-01-01"), (window, "/x"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_refused(convert, text) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        convert(text)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("submit_s,duration_s\n0\n", "line 2 has not as many values"),
        ("submit_s,duration_s\n0,1,2\n", "line 2 has not as many values"),
        ("submit_s,tasks\n0,many\n", "line 2: column tasks: 'many' is no number"),
    ],
)
def test_a_wrong_workload_names_the_place(tmp_path, content, words) -> None:
    path = tmp_path / "w.csv"
    path.write_text(content)
    with pytest.raises(exceptions.CommandError, match=words):
        rows_of(str(path))
    with pytest.raises(exceptions.CommandError, match=r"nosuch\.csv"):
        rows_of(str(tmp_path / "nosuch.csv"))

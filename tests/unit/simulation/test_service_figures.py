# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of the benchmarks that run the service: workloads, figures, verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.programs import GPUS, HOSTS
from benchmarks.scheduling import slurm, slurm_cluster, through_service
from benchmarks.scheduling.timed_jobs import Played, TimedJob, marks, read, score, script, seeded

ROWS = "submit_s,team,nodes,gpus_per_node,duration_s\n0.5,red,1,4,10\n2,blue,2,8,5\n3,red,1,1,1\n"


@pytest.fixture
def jobs(tmp_path: Path) -> list[TimedJob]:
    file = tmp_path / "workload.csv"
    file.write_text(ROWS, encoding="utf-8")
    return read(file)


def test_a_seed_changes_the_order_alone(jobs: list[TimedJob]) -> None:
    assert seeded(jobs, 0) == jobs
    other = seeded(jobs, 3)
    assert [one.submit_s for one in other] == [0.5, 2.0, 3.0]
    assert [one.number for one in other] == [0, 1, 2]
    assert sorted((one.team, one.all_gpus) for one in other) == [
        ("blue", 16), ("red", 1), ("red", 4),
    ]  # fmt: skip
    assert seeded(jobs, 3) == other


def test_figures_of_a_run(jobs: list[TimedJob]) -> None:
    played = [
        Played(jobs[0], 0.5, 1.5, 12.0),
        Played(jobs[1], 2.0, 12.0, 17.0),
        Played(jobs[2], 3.0, 3.0, 4.0),
    ]
    found = score(played, 64)
    assert found["mean_wait_s"] == round(11 / 3, 2)
    assert found["p90_wait_s"] == found["big_p90_wait_s"] == 10.0
    assert found["makespan_s"] == 16.5
    assert found["utilisation"] == round((40 + 80 + 1) / (64 * 16.5), 4)
    assert found["mean_wait_by_team"] == {"blue": 10.0, "red": 0.5}
    assert found["mean_overhead_s"] == round(0.5 / 3, 3)


def test_processes_mark_their_moments(jobs: list[TimedJob], tmp_path: Path) -> None:
    words = script(tmp_path, jobs[1], "$RANK")
    assert f"{tmp_path}/1.$RANK.start" in words
    assert "sleep 5\n" in words
    (tmp_path / "1.0.start").write_text("7.5\n", encoding="ascii")
    (tmp_path / "1.1.start").write_text("8.5\n", encoding="ascii")
    (tmp_path / "11.0.start").write_text("1\n", encoding="ascii")
    (tmp_path / "1.0.end").write_text("", encoding="ascii")
    assert sorted(marks(tmp_path, jobs[1], "start")) == [7.5, 8.5]
    assert marks(tmp_path, jobs[1], "end") == []


def test_sides_are_compared_by_their_means() -> None:
    def run(ours: float, theirs: float) -> dict[str, Any]:
        sides = {}
        for side, value in (("service", ours), ("slurm", theirs)):
            figures: dict[str, Any] = dict.fromkeys(slurm.COMPARED, value)
            sides[side] = {**figures, "big_p90_wait_s": None}
        return {"seed": 0, **sides}

    found = slurm.compared([run(1.0, 3.0), run(4.0, 3.0)])
    assert found["mean_wait_s"] == {"slurm": 3.0, "service": 2.5, "no_worse": True}
    assert "big_p90_wait_s" not in found
    assert not slurm.compared([run(4.0, 3.0)])["makespan_s"]["no_worse"]


def test_no_slurm_is_told_plainly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slurm_cluster, "missing", lambda: ["slurmctld", "munge"])
    with pytest.raises(SystemExit) as ended:
        slurm.main(["workload.csv"])
    assert ended.value.code == 2
    assert "apt-get install --no-install-recommends slurmctld munge" in capsys.readouterr().err


def test_a_stream_fills_what_it_says() -> None:
    stream = through_service.stream(3000, 15.0, 0.8)
    work = sum(one.nodes * one.gpus * one.seconds for one in stream)
    assert work / (3000 / 15.0) == pytest.approx(0.8 * HOSTS * GPUS)
    assert {one.team for one in stream} == set(through_service.TEAMS)
    assert through_service.stream(3000, 15.0, 0.8) == stream
    job = stream[0].body["job"]
    assert float(job["env"]["NOFORK_SECONDS"]) == pytest.approx(stream[0].seconds, abs=0.01)


@pytest.mark.parametrize(
    "change",
    [
        {"succeeded": 9},
        {"failed_looks": ["refused"]},
        {"scheduler_core_share": 0.5},
        {"list": {"p99_ms": 150.0}},
        {"explain": {"p99_ms": 151.0}},
    ],
)
def test_each_floor_counts(change: dict[str, Any]) -> None:
    good = {
        "jobs": 10, "succeeded": 10, "failed_looks": [], "scheduler_core_share": 0.4,
        "list": {"p99_ms": 10.0}, "explain": {"p99_ms": 10.0},
    }  # fmt: skip
    assert through_service.holds(good)
    assert not through_service.holds({**good, **change})

# SPDX-License-Identifier: Apache-2.0
"""Mixed jobs with known ends, the witness file their tasks write, and events replayed."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster import Cluster
from programs import TaskKey, until
from rest import Rest

PROJECTS = tuple(f"project-{number}" for number in range(6))
ENDED = frozenset({"succeeded", "failed", "cancelled", "timed_out"})
#: Beats (seconds) at which a task says in the witness file that it still runs.
BEAT_S = 0.5

#: Each line: job, index, attempt, rank, pid, start, end (so far).
_SCRIPT = """#!/bin/sh
start=$(date +%s.%N)
exec 9>>"$WITNESS"
note() {
  flock 9
  echo "$GPUSERVICE_JOB_ID $GPUSERVICE_ARRAY_INDEX $GPUSERVICE_ATTEMPT $RANK $$ $start" \
    "$(date +%s.%N)" >&9
  flock -u 9
}
note
beat=0
while [ "$beat" -lt "$BEATS" ]; do
  sleep 0.5
  beat=$((beat + 1))
  note
done
echo "rank $RANK of $WORLD_SIZE ends"
exit "$(eval echo \\$EXIT_$RANK | grep . || echo "$EXIT")"
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One job and how it must end."""

    kind: str
    body: Mapping[str, Any]
    status: str
    failure_class: str | None = None
    exit_code: int | None = None
    cancel: str | None = None
    job_id: str = ""


def script_job(name: str, witness: Path, beats: int, code: int = 0, **more: Any) -> dict[str, Any]:
    """A job that writes to the witness file for ``beats`` beats and exits with ``code``."""
    env = {"WITNESS": str(witness), "BEATS": str(beats), "EXIT": str(code), **more.pop("env", {})}
    return {
        "name": name,
        "script": _SCRIPT,
        "env": env,
        "grace_period_s": 1,
        "retry": {"max_attempts": 100, "backoff_s": 0},
        "max_runtime_s": 3000,
        **more,
    }


def mixed(count: int, witness: Path, seed: int = 1) -> list[Wanted]:
    """``count`` jobs: single ones, gangs, fractions, arrays, failures of several kinds, cancels."""
    dice = random.Random(seed)
    makers = (
        _single,
        _gang,
        _fraction,
        _array,
        _exits,
        _not_found,
        _cancelled_at_once,
        _cancelled_running,
        _bad_rank,
        _too_long,
    )
    return [makers[number % len(makers)](f"job-{number}", witness, dice) for number in range(count)]


def slower(one: Wanted, times: int) -> Wanted:
    """The same job, its beats so many times as many."""
    env = one.body.get("env", {})
    beats = int(env.get("BEATS", 2000))
    if beats >= 2000:
        return one
    longer = {**env, "BEATS": str((beats + 1) * times)}
    return replace(one, body={**one.body, "env": longer})


def _single(name: str, witness: Path, dice: random.Random) -> Wanted:
    gpus = dice.choice((0, 1, 1, 2))
    return Wanted(
        "single",
        script_job(name, witness, dice.randint(0, 4), resources={"gpus": gpus}),
        "succeeded",
        None,
        0,
    )


def _gang(name: str, witness: Path, dice: random.Random) -> Wanted:
    body = script_job(
        name,
        witness,
        dice.randint(0, 4),
        tasks={"count": dice.randint(2, 4)},
        resources={"gpus": dice.randint(1, 2)},
    )
    return Wanted("gang", body, "succeeded", None, 0)


def _fraction(name: str, witness: Path, dice: random.Random) -> Wanted:
    share = dice.choice((0.125, 0.25, 0.5))
    return Wanted(
        "fraction",
        script_job(name, witness, dice.randint(0, 4), resources={"gpu_fraction": share}),
        "succeeded",
        None,
        0,
    )


def _array(name: str, witness: Path, dice: random.Random) -> Wanted:
    body = script_job(name, witness, 1, array={"size": dice.randint(3, 6), "max_running": 3})
    return Wanted("array", body, "succeeded")


def _exits(name: str, witness: Path, dice: random.Random) -> Wanted:
    return Wanted(
        "exits", script_job(name, witness, dice.randint(0, 2), 3), "failed", "user_code", 3
    )


def _not_found(name: str, witness: Path, dice: random.Random) -> Wanted:
    return Wanted("not found", {"name": name, "command": ["/no/such/program"]}, "failed", "image")


def _cancelled_at_once(name: str, witness: Path, dice: random.Random) -> Wanted:
    return Wanted(
        "cancelled at once",
        script_job(name, witness, 2000),
        "cancelled",
        "cancelled",
        cancel="at once",
    )


def _cancelled_running(name: str, witness: Path, dice: random.Random) -> Wanted:
    body = script_job(name, witness, 2000, tasks={"count": 2})
    return Wanted("cancelled running", body, "cancelled", "cancelled", cancel="running")


def _bad_rank(name: str, witness: Path, dice: random.Random) -> Wanted:
    body = script_job(name, witness, 2000, tasks={"count": 2}, env={"EXIT_1": "5", "BEATS": "2"})
    return Wanted("bad rank", body, "failed", "user_code", 5)


def _too_long(name: str, witness: Path, dice: random.Random) -> Wanted:
    body = {**script_job(name, witness, 2000), "max_runtime_s": 2}
    return Wanted("too long", body, "timed_out", "time_limit")


# -- submitting and waiting ---------------------------------------------------------------------
def submit_all(cluster: Cluster, jobs: Sequence[Wanted]) -> list[Wanted]:
    """Each project's share submitted by a thread of its own, all at once, cancels included."""
    made: list[Wanted] = []
    faults: list[BaseException] = []

    def run(number: int) -> None:
        caller = cluster.caller(PROJECTS[number])
        try:
            for one in jobs[number :: len(PROJECTS)]:
                made.append(_submit(caller, one))
            for one in [one for one in made if one.cancel == "running"]:
                if one.body["name"] in {job.body["name"] for job in jobs[number :: len(PROJECTS)]}:
                    _cancel_running(caller, one.job_id)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(PROJECTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return made


def _submit(caller: Rest, one: Wanted) -> Wanted:
    job = caller.submit(**one.body)
    if one.cancel == "at once":
        caller.cancel(job["id"])
    return replace(one, job_id=job["id"])


def _cancel_running(caller: Rest, job_id: str) -> None:
    until(lambda: caller.job(job_id)["status"] == "running", f"the run of {job_id}", 600)
    caller.cancel(job_id)


def wait_for_ends(
    cluster: Cluster, ids: Iterable[str], patience_s: float
) -> dict[str, dict[str, Any]]:
    """The jobs when all of them have ended."""
    wanted = set(ids)

    def look() -> dict[str, dict[str, Any]]:
        jobs = {
            job["id"]: job
            for job in cluster.admin.all("jobs", all_projects="true")
            if job["id"] in wanted
        }
        open_ = [job for job in jobs.values() if job["status"] not in ENDED]
        last[:] = [f"{job['name']} {job['status']} {job['waiting']}" for job in open_]
        return {} if open_ else jobs

    last: list[str] = []
    try:
        return until(look, "the end of all jobs", patience_s)
    except AssertionError as late:
        raise AssertionError(f"{late}: {last}") from late


def check_ends(jobs: Sequence[Wanted], ended: Mapping[str, Mapping[str, Any]]) -> None:
    """Each job ended as it should."""
    wrong = []
    for one in jobs:
        job = ended[one.job_id]
        got = (job["status"], job["failure_class"], job["exit_code"])
        want = (
            one.status,
            one.failure_class,
            job["exit_code"] if one.exit_code is None else one.exit_code,
        )
        if got != want:
            wrong.append(
                f"{one.kind} {one.body['name']}: {got}, not {want} "
                f"(attempt {job['attempt']}: {job['status_reason']})"
            )
    assert not wrong, "\n".join(wrong)


# -- the witness ----------------------------------------------------------------------------------
def read_witness(path: Path) -> dict[tuple[TaskKey, str], list[tuple[float, float]]]:
    """Everything written: (job, index, attempt, rank) and pid -> spans (start, end)."""
    found: dict[tuple[TaskKey, str], list[tuple[float, float]]] = {}
    for line in path.read_text().splitlines():
        job, index, attempt, rank, pid, start, end = line.split()
        key = ((job, int(index), int(attempt), int(rank)), f"{pid}@{start}")
        found.setdefault(key, []).append((float(start), float(end)))
    return found


def check_witness(path: Path, forgiven: Mapping[TaskKey, tuple[float, float]] | None = None) -> int:
    """No two runs of one (job, index, rank) overlap; returns how many runs there were.

    :param forgiven: tasks that were frozen -> the span (after the thaw) in which what they still
        wrote is no fault.
    """
    runs: dict[tuple[str, int, int], list[tuple[float, float, int]]] = {}
    attempts: dict[TaskKey, set[str]] = {}
    for (task, life), spans in read_witness(path).items():
        low, high = (forgiven or {}).get(task, (0.0, 0.0))
        ends = [end for _, end in spans if not low <= end <= high]
        if ends:
            job, index, attempt, rank = task
            runs.setdefault((job, index, rank), []).append((spans[0][0], max(ends), attempt))
            attempts.setdefault(task, set()).add(life)
    twice = {task: lives for task, lives in attempts.items() if len(lives) > 1}
    assert not twice, f"attempts that ran twice: {twice}"
    for key, spans_of in runs.items():
        ordered = sorted(spans_of)
        for before, after in itertools.pairwise(ordered):
            assert before[1] <= after[0], f"{key} overlaps: {before} and {after}"
    return sum(map(len, runs.values()))


# -- events ---------------------------------------------------------------------------------------
def replay(caller: Rest) -> dict[str, str]:
    """The final status of every job, from ``/v1/events`` alone."""
    status: dict[str, str] = {}
    elements: dict[tuple[str, int], str] = {}
    for event in caller.all("events", all_projects="true", target_type="job"):
        detail, job = event["detail"], event["target_id"]
        if "to" not in detail:
            continue
        if "index" in detail:
            before = elements.get((job, detail["index"]), "queued")
            if detail["from"] != detail["to"]:
                assert before == detail["from"], f"{event} follows {before}"
                elements[job, detail["index"]] = detail["to"]
        else:
            assert status.get(job, "") in (detail.get("from", ""), "queued", "running"), event
            status[job] = detail["to"]
    return status

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From nothing to a finished job: the story of gpuservice, told by the openstack command.

Starts ``gpuservice-all-in-one`` with 8 simulated hosts of 8 GPUs and lets a user work with it:
real training, an impossible job, a full cluster, a lost node, two failures. Everything is done
and looked at through ``openstack gpu ...``. Ends with 0 only if every check held.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from story import Command, Place, StoryError, chapter, check, python, service, tell, until

ENDED = {"succeeded", "failed", "cancelled", "timed_out"}
WANTED_ACCURACY = 0.94


def submit(gpu: Command, path: str) -> str:
    """Submit a job file and return the id of the job."""
    return str(gpu.ask("job", "create", "--file", path, shown=True)["id"])


def job_of(gpu: Command, job: str) -> dict[str, Any]:
    """Return the job as ``job show`` tells it."""
    shown: dict[str, Any] = gpu.ask("job", "show", job)
    return shown


def ended(gpu: Command, job: str, seconds: float) -> dict[str, Any]:
    """Wait for the end of a job and return it."""
    found: dict[str, Any] = until(
        "the job to end",
        seconds,
        lambda: next((it for it in [job_of(gpu, job)] if it["status"] in ENDED), None),
    )
    return found


def attempts_of(gpu: Command, job: str, shown: bool = False) -> list[dict[str, Any]]:
    """Return the attempts of a job, the first one first."""
    found: list[dict[str, Any]] = gpu.ask("job", "attempts", job, "--long", shown=shown)
    return sorted(found, key=lambda attempt: int(attempt["number"]))


def nodes_of(attempt: dict[str, Any]) -> list[str]:
    """Return the names of the nodes of an attempt, by rank."""
    return [task["node_name"] for task in sorted(attempt["tasks"], key=lambda it: int(it["rank"]))]


def explained(gpu: Command, job: str, code: str) -> dict[str, Any]:
    """Wait until the planner has looked at the job and return the explanation."""

    def probe() -> dict[str, Any] | None:
        answer: dict[str, Any] = gpu.ask("job", "explain", job)
        codes = [reason["code"] for reason in answer["reasons"] or []]
        return answer if codes and codes != ["evaluating"] else None

    answer: dict[str, Any] = until(f"the reason {code}", 30, probe)
    return answer


def train_on_two_nodes(gpu: Command, place: Place) -> None:
    """A gang of two tasks trains; its log is followed, its results come home."""
    chapter("1. A training job on two nodes")
    tell(
        "The job asks for two tasks of eight GPUs that start together, on two nodes. Each trains "
        "on its part of every batch; they add up their gradients over the network."
    )
    job = submit(gpu, place.job("digits", command=[python(), "train.py"]))
    lines = gpu.follow(job, lambda line: False)
    check(any("finished" in line for line in lines), "the log was followed to its end")
    shown = ended(gpu, job, 30)
    check(shown["status"] == "succeeded", "the job succeeded")
    nodes = nodes_of(attempts_of(gpu, job)[-1])
    check(len(set(nodes)) == 2, f"it ran on two nodes: {', '.join(nodes)}")
    target = place.root / "results"
    gpu.say("job", "download", job, "--dest", str(target))
    metrics = [json.loads(path.read_text()) for path in sorted(target.rglob("metrics.json"))]
    check(len(metrics) == 2 and metrics[0] == metrics[1], "both ranks hold the same network")
    check(len(list(target.rglob("model.npz"))) == 1, "the model was downloaded")
    accuracy = metrics[0]["test_accuracy"]
    check(accuracy >= WANTED_ACCURACY, f"its accuracy on unseen digits is {accuracy:.1%}")


def ask_too_much(gpu: Command, place: Place) -> None:
    """A job that no state of the cluster can hold is told so, with what would start."""
    chapter("2. A job that can never start")
    tell("The cluster has 64 GPUs. This job wants 65 tasks of one GPU at the same time.")
    path = place.job(
        "too-large", command=["true"], tasks={"count": 65}, resources={"gpus": 1}, inputs=[]
    )
    job = submit(gpu, path)
    answer = explained(gpu, job, "impossible")
    tell(answer["summary"])
    check(answer["reasons"][0]["code"] == "impossible", "the explanation says: impossible")
    ways = answer["would_start_now_if"]
    check(bool(ways), f"and what would start now: {json.dumps([way['change'] for way in ways])}")
    gpu.say("job", "cancel", job)
    check(ended(gpu, job, 30)["status"] == "cancelled", "the job is cancelled")


def wait_for_room(gpu: Command, place: Place) -> None:
    """A waiting job knows its place, who is in its way, and when it will start."""
    chapter("3. A full cluster")
    tell("One job takes all 64 GPUs for at most ten minutes; another one has to wait.")
    sleeper = {"command": ["sleep", "600"], "inputs": [], "outputs": [], "checkpoint": None}
    everything = {"tasks": {"count": 8}, "resources": {"gpus": 8}, "max_runtime_s": 600}
    holder = submit(gpu, place.job("holder", **sleeper | everything))
    until("the holder to run", 60, lambda: job_of(gpu, holder)["status"] == "running")
    small = {"command": ["true"], "tasks": {"count": 1}, "resources": {"gpus": 1}}
    waiting = submit(gpu, place.job("waiting", **sleeper | small))
    answer = explained(gpu, waiting, "insufficient_gpus")
    tell(answer["summary"])
    check(answer["position"] == 1, "it is the first in line")
    names = [entry["job_id"] for entry in answer["holders"]]
    check(holder in names, f"the GPUs are held by {holder}")
    start = answer["estimated_start_at"]
    check(bool(start), f"it is expected to start at {start} ({answer['estimate_basis']})")
    gpu.say("job", "cancel", holder)
    check(ended(gpu, waiting, 60)["status"] == "succeeded", "with the holder gone it ran at once")
    check(ended(gpu, holder, 60)["status"] == "cancelled", "the holder is cancelled")


def lose_a_node(gpu: Command, place: Place) -> None:
    """A training job survives the loss of a node and goes on from its checkpoint."""
    chapter("4. A node dies under a running job")
    command = [python(), "train.py", "--epochs", "30", "--epoch-seconds", "0.7"]
    checkpoint = {"path": "ckpt/", "interval_s": 1, "ranks": "first"}
    job = submit(gpu, place.job("survivor", command=command, checkpoint=checkpoint))
    gpu.follow(job, lambda line: "epoch 8/" in line)
    victim = nodes_of(attempts_of(gpu, job)[-1])[-1]
    words = ["gpuservice-manage", "simulated", "--state-dir", str(place.state / "cloud")]
    words += ["lose-node", victim]
    print(f"   $ {' '.join(words)}", flush=True)
    program = str(Path(sys.executable).with_name(words[0]))
    subprocess.run([program, *words[1:]], check=True, stdin=subprocess.DEVNULL, timeout=60)
    began = time.monotonic()
    until("a second attempt", 120, lambda: job_of(gpu, job)["attempt"] == 2)
    tell(f"The loss was noticed and the job started again after {time.monotonic() - began:.0f} s.")
    shown = ended(gpu, job, 120)
    check(shown["status"] == "succeeded", "the job succeeded after all")
    attempts = attempts_of(gpu, job, shown=True)
    outcomes = [attempt["outcome"] for attempt in attempts]
    check(outcomes == ["node_failure", "succeeded"], f"its attempts: {', '.join(outcomes)}")
    nodes = nodes_of(attempts[-1])
    check(victim not in nodes, f"not on {victim} again, but on {', '.join(nodes)}")
    log = gpu.say("job", "logs", job)
    resumed = next((line for line in log.splitlines() if "resumed after epoch" in line), "")
    check(bool(resumed), f"it went on from its checkpoint: {resumed}")


def fail_in_two_ways(gpu: Command, place: Place) -> None:
    """A fault of the program and a missing program are two different things."""
    chapter("5. Two failures, two classes")
    alone: dict[str, Any] = {"tasks": {"count": 1}, "resources": {"gpus": 1}}
    alone |= {"inputs": [], "outputs": [], "checkpoint": None}
    script = "#!/bin/sh\necho 'this goes wrong' >&2\nexit 3\n"
    path = place.job("exits-with-3", **alone, command=None, script=script)
    first = submit(gpu, path)
    second = submit(gpu, place.job("not-there", **alone, command=["no-such-program"]))
    shown = ended(gpu, first, 60)
    check(shown["failure_class"] == "user_code", "the script that exits with 3: user_code")
    check(shown["exit_code"] == 3, "its exit code is kept: 3")
    shown = ended(gpu, second, 60)
    check(shown["failure_class"] == "image", "the program that does not exist: image")
    for job in (first, second):
        failure = gpu.ask("job", "explain", job)["failure"]
        tell(f"{failure['class']}: {failure['what_to_do']}")


CHAPTERS: tuple[Callable[[Command, Place], None], ...] = (
    train_on_two_nodes,
    ask_too_much,
    wait_for_room,
    lose_a_node,
    fail_in_two_ways,
)


def clear_away(gpu: Command) -> None:
    """Leave no job behind: tasks would outlive the service for a while."""
    for job in gpu.ask("job", "list"):
        identity = job.get("id") or job["ID"]
        if (job.get("status") or job["Status"]) not in ENDED:
            gpu.say("job", "cancel", identity)
            ended(gpu, identity, 60)


def main() -> int:
    """Tell all chapters and return the exit status."""
    began = time.monotonic()
    # Started by root, the service gives tasks a /tmp and a /var/tmp of their own; they have to see
    # what we lay out for them.
    home = "/var/lib" if os.geteuid() == 0 else "/var/tmp"
    with tempfile.TemporaryDirectory(prefix="gpuservice-demo-", dir=home) as folder:
        place = Place(Path(folder))
        place.furnish()
        try:
            with service(place) as gpu:
                try:
                    for tale in CHAPTERS:
                        tale(gpu, place)
                finally:
                    clear_away(gpu)
        except StoryError as error:
            print(f"\n{error}", file=sys.stderr)
            return 1
    print(f"\nThe story is told and every check held ({time.monotonic() - began:.0f} s).")
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""The all-in-one program's own promises: what it hides, keeps, and how it ends."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from cluster import PLACES, free_port
from programs import Program, kill_all, processes_naming, task_processes, until
from rest import Rest

#: Longer than the lease that clouds without power-off would have here.
AWAY_S = 11
_SPY = """
for file in "$STATE"/* "$STATE"/*/*; do
  case $file in "$STATE"/agents) continue;; esac
  cat "$file" > /dev/null 2>&1 && echo "read $file"
  ls "$file"/* > /dev/null 2>&1 && echo "listed $file"
done
python3 - <<'END'
import os
try:
    os.open(os.environ["STATE"] + "/gpuservice.sqlite-wal", os.O_RDONLY)
    print("opened")
except OSError as error:
    print("refused")
END
"""

_WRONG = {
    "WRONG": "[agent]\nlease_s = ten\n",
    "CLOUD": "[cloud]\ndriver = foo\n",
    "DATABASE": "[database]\nconnection = foo://x\n",
    "USERS": "[api]\nauth_strategy = http_basic\nhttp_basic_user_file = /no/such/file\n",
}


class AllInOne:
    """The program on one state directory, at one port after another."""

    def __init__(self, place: Path) -> None:
        self.place, self.state, self.log = place, place / "state", place / "log"
        self.options = place / "options.conf"
        self.program: Program | None = None
        self.port = 0

    def arguments(self, port: int) -> list[str]:
        """Its command line."""
        return [
            "gpuservice.cmd.all_in_one",
            *("--state-dir", str(self.state), "--listen", f"127.0.0.1:{port}"),
            *("--hosts", "1", "--gpus-per-host", "4"),
            *(("--config-file", str(self.options)) if self.options.exists() else ()),
        ]

    def start(self) -> Rest:
        """Start it; returns a caller once it is ready."""
        self.port = port = free_port()
        before = self.text.count("ready at")
        self.program = Program("all-in-one", "all-in-one", self.arguments(port), self.log)
        self.program.start()
        until(lambda: self.text.count("ready at") > before, "the program")
        return Rest([f"http://127.0.0.1:{port}"], "somebody")

    @property
    def text(self) -> str:
        """All that it ever printed."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def end(self, number: int = signal.SIGTERM) -> int | None:
        """End it."""
        assert self.program is not None
        return self.program.end(number)


@pytest.fixture
def all_in_one() -> Iterator[AllInOne]:
    with tempfile.TemporaryDirectory(prefix="gpuservice-", dir=PLACES) as folder:
        place = Path(folder)
        place.chmod(0o711)
        running = AllInOne(place)
        try:
            yield running
        finally:
            if running.program is not None:
                running.program.end(signal.SIGKILL)
            kill_all(list(processes_naming(place)))


def ended(caller: Rest, job_id: str) -> dict[str, object]:
    """A job at its end."""
    until(lambda: caller.job(job_id)["ended_at"], "the job's end", 90)
    return dict(caller.job(job_id))


def healthy(port: int) -> bool:
    """Whether the program answers."""
    try:
        return requests.get(f"http://127.0.0.1:{port}/healthcheck", timeout=5).status_code == 200
    except requests.RequestException:
        return False


def test_a_suspended_job_goes_on_where_it_was(all_in_one: AllInOne) -> None:
    caller = all_in_one.start()
    job_id = str(
        caller.submit(
            name="long",
            script="#!/bin/sh\n"
            'state="$GPUSERVICE_CHECKPOINT_DIR/state"\n'
            '[ "$GPUSERVICE_RESUMED" = 1 ] && { cat "$state"; exit 0; }\n'
            "trap 'echo half > \"$state\"; exit 143' TERM\n"
            "echo begun\n"
            "while :; do sleep 0.2; done\n",
            checkpoint={"path": "ckpt/", "interval_s": 600},
            retry={"max_attempts": 1},
            grace_period_s=20,
        )["id"]
    )

    def says(word: str) -> bool:
        return word in caller.text(f"/jobs/{job_id}/logs")

    until(lambda: caller.job(job_id)["status"] == "running" and says("begun"), "its start")
    queued_at = caller.job(job_id)["queued_at"]
    shown = caller.post(f"/jobs/{job_id}/action", {"suspend": None})["job"]
    assert (shown["status"], shown["hold"]) == ("preempting", True)
    until(lambda: caller.job(job_id)["status"] == "held", "its stop")
    assert caller.job(job_id)["status_reason"] == "suspended"
    assert not task_processes(job_id)
    caller.post(f"/jobs/{job_id}/action", {"resume": None})
    job = ended(caller, job_id)
    assert (job["status"], job["attempt"], job["queued_at"]) == ("succeeded", 2, queued_at)
    assert says("half")
    outcomes = [one["outcome"] for one in caller.get(f"/jobs/{job_id}/attempts")["attempts"]]
    assert outcomes == ["succeeded", "preempted"]
    assert all_in_one.end() == 0


def test_an_urgent_job_takes_the_place_of_one_that_can_wait(all_in_one: AllInOne) -> None:
    all_in_one.options.write_text("[scheduler]\nmin_runtime_s = 0\n")
    caller = all_in_one.start()
    admin = Rest([f"http://127.0.0.1:{all_in_one.port}"], "operators", "admin")
    (queue,) = admin.get("/queues?name=default")["queues"]
    shares = {"preemption": "lower_priority", "max_priority": 900}
    admin.call("PATCH", f"/queues/{queue['id']}", {"queue": shares})
    patient = caller.submit(
        name="patient",
        script="#!/bin/sh\n"
        '[ "$GPUSERVICE_ATTEMPT" = 1 ] || exit 0\n'
        "trap 'exit 143' TERM\n"
        "while :; do sleep 0.2; done\n",
        resources={"gpus": 4},
        retry={"max_attempts": 1},
        max_runtime_s=3600,
    )
    first = str(patient["id"])
    until(lambda: caller.job(first)["status"] == "running", "the first job's start")
    urgent = caller.submit(
        name="urgent", command=["true"], resources={"gpus": 4}, priority="urgent", max_runtime_s=60
    )
    assert ended(caller, str(urgent["id"]))["status"] == "succeeded"
    job = ended(caller, first)
    assert (job["status"], job["attempt"], job["preempted_count"]) == ("succeeded", 2, 1)
    assert job["queued_at"] == patient["queued_at"]
    (told,) = [
        one
        for one in caller.get(f"/jobs/{first}/events")["events"]
        if one["action"] == "job.preempting"
    ]
    assert (told["reason"], told["detail"]["for_job"]) == ("priority", urgent["id"])
    assert all_in_one.end() == 0
    assert "Traceback" not in all_in_one.text


def test_a_restart_elsewhere_loses_neither_tasks_nor_results(all_in_one: AllInOne) -> None:
    caller = all_in_one.start()
    target = f"file://{all_in_one.state}/data/out/"
    runs = str(caller.submit(name="runs", command=["sleep", "25"])["id"])
    ends = str(
        caller.submit(
            name="ends",
            script="sleep 6; mkdir -p o; echo result > o/r\n",
            outputs=[{"path": "o/"}, {"path": "o/r", "target": target}],
        )["id"]
    )
    until(lambda: task_processes(runs) and task_processes(ends), "both tasks")
    before = task_processes(runs)
    assert all_in_one.end() == 0
    stopped = time.monotonic()
    until(lambda: time.monotonic() - stopped > AWAY_S, "a long absence")
    assert task_processes(runs) == before and not task_processes(ends)
    caller = all_in_one.start()
    for job_id in (runs, ends):
        job = ended(caller, job_id)
        assert (job["status"], job["attempt"]) == ("succeeded", 1), job
    artifacts = caller.get(f"/jobs/{ends}/artifacts")["artifacts"]
    assert [one["path"] for one in artifacts] == ["1/0/o/r"]
    assert (all_in_one.state / "data" / "out" / "r").read_text() == "result\n"
    assert all_in_one.end() == 0
    assert "Traceback" not in all_in_one.text and "Eventlet" not in all_in_one.text


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_task_sees_nothing_of_the_state_directory(all_in_one: AllInOne) -> None:
    caller = all_in_one.start()
    job = caller.submit(name="spy", script=_SPY, env={"STATE": str(all_in_one.state)})
    assert ended(caller, str(job["id"]))["status"] == "succeeded"
    assert caller.text(f"/jobs/{job['id']}/logs").split() == ["refused"]
    # Where no mounts can hide it, the rights must.
    for path in all_in_one.state.rglob("*"):
        inner = path.relative_to(all_in_one.state).parts
        if inner[0] not in ("agents", "data") and len(inner) == 1:
            assert not path.stat().st_mode & 0o077, path


def test_one_state_directory_is_served_by_one_process(all_in_one: AllInOne) -> None:
    all_in_one.start()
    assert all_in_one.program is not None
    second = subprocess.run(
        [sys.executable, "-m", *all_in_one.arguments(free_port())],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert second.returncode == 1 and second.stdout == ""
    assert re.fullmatch(
        rf".*another one \(process {all_in_one.program.pid}\) uses .*\n", second.stderr
    )


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--hosts", "0"], "--hosts: '0' is not a whole number from 1 to 4000"),
        (["--gpus-per-host", "1000"], "--gpus-per-host"),
        (["--listen", "127.0.0.1:99999"], "HOST:PORT"),
        (["--listen", ":9899"], "HOST:PORT"),
        (["--listen", "192.0.2.1:9899"], "192.0.2.1"),
        (["--listen", "127.0.0.1:TAKEN"], "cannot listen on 127.0.0.1 port"),
        (["--state-dir", "/dev/null/state"], "state directory cannot be used"),
        (["--config-file", "WRONG"], "lease_s"),
        (["--config-file", "CLOUD"], "all-in-one: There is no cloud driver 'foo'"),
        (["--config-file", "DATABASE"], "all-in-one: [database] connection cannot be used (foo)"),
        (["--config-file", "USERS"], "all-in-one: /no/such/file cannot be read"),
    ],
)
def test_wrong_arguments_are_told_in_words(
    all_in_one: AllInOne, more: list[str], word: str
) -> None:
    for name, text in _WRONG.items():
        (all_in_one.place / f"{name}.conf").write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = {name: f"{all_in_one.place}/{name}.conf" for name in _WRONG}
        given["TAKEN"] = str(taken.getsockname()[1])
        for key, value in given.items():
            more = [one.replace(key, value) for one in more]
        refused = subprocess.run(
            [sys.executable, "-m", *all_in_one.arguments(free_port()), *more],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert refused.returncode != 0 and word in refused.stderr, refused.stderr
    assert "Traceback" not in refused.stderr


def test_hosts_without_files_enough_are_refused(all_in_one: AllInOne) -> None:
    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, 1024))

    refused = subprocess.run(
        [sys.executable, "-m", *all_in_one.arguments(free_port()), "--hosts", "100"],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=few_files,
    )
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert "100 hosts need 1872 open files, and 1024 are allowed" in refused.stderr


def test_idle_nodes_are_not_given_up(all_in_one: AllInOne) -> None:
    """A node that only waits for news is not silent, though the service may power it off."""
    caller = all_in_one.start()
    began = time.monotonic()
    job = ended(caller, str(caller.submit(name="long", command=["sleep", "16"])["id"]))
    assert (job["status"], job["attempt"]) == ("succeeded", 1), job
    assert time.monotonic() - began > 15
    assert "ending 1 tasks" not in all_in_one.text


def test_many_silent_connections_do_not_end_it(all_in_one: AllInOne) -> None:
    caller = all_in_one.start()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[socket.socket] = []
    try:
        for _ in range(min(1150, soft - 200)):
            one = socket.socket()
            one.settimeout(0.5)
            held.append(one)
            with contextlib.suppress(OSError):
                one.connect(("127.0.0.1", all_in_one.port))
    finally:
        for one in held:
            one.close()
    # Taking leave of so many costs it a moment, on a busy machine several.
    until(lambda: healthy(all_in_one.port), "an answer", 120)
    job = ended(caller, str(caller.submit(name="after", command=["true"])["id"]))
    assert job["status"] == "succeeded"
    assert "Too many open files" not in all_in_one.text
    assert "out of range in select" not in all_in_one.text

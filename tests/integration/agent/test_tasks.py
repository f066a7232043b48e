# SPDX-License-Identifier: Apache-2.0
"""Real tasks under a real agent: how they end and what is said of it."""

from __future__ import annotations

import os
import signal
import time

import pytest

from gpuservice.agent import process_tree
from tests.integration.agent.conftest import until

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
ESCAPE = """#!/bin/sh
trap '' TERM
(setsid sh -c 'trap "" TERM; (sleep 300 &) ; sleep 300' &)
(setsid nohup env -u GPUSERVICE_TASK_PLACE sleep 300 >/dev/null 2>&1 &)
sleep 300 & wait; wait; sleep 300
"""


def test_a_task_begins_with_the_usual_meaning_of_every_signal(api, agent):
    """Its supervisor ignores and handles some, and so does the interpreter it is forked from."""
    api.want("t1", command=["cat", "/proc/self/status"])
    assert api.until_gone("t1")["exit_code"] == 0
    facts = dict(line.split(":", 1) for line in api.log("t1").decode().splitlines())
    assert {int(facts[name], 16) for name in ("SigIgn", "SigBlk", "SigCgt")} == {0}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"command": ["true"]}, {"exit_code": 0, "failure": None}),
        ({"command": ["sh", "-c", "exit 3"]}, {"exit_code": 3, "failure": None}),
        ({"command": ["sh", "-c", "kill -SEGV $$"]}, {"signal": 11, "exit_code": None}),
        ({"script": "echo from script; exit 4\n"}, {"exit_code": 4}),
        ({"script": "#!/bin/sh -e\nfalse\n"}, {"exit_code": 1}),
    ],
    ids=["true", "exit 3", "signal", "no shebang", "shebang"],
)
def test_ends(api, agent, spec, expected):
    api.want("t1", **spec)
    report = api.until_gone("t1")
    assert {key: report[key] for key in expected} == expected
    assert report["started_at"] <= report["ended_at"]
    assert not (agent.state / "tasks" / "t1" / "box").exists()
    api.want("t2", command=["true"])
    until(lambda: not (agent.state / "tasks" / "t1").exists(), "the clean-up")


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"command": ["/no/such/program"]}, "not found"),
        ({"command": ["no-such-program"]}, "not found"),
        ({"command": ["/etc/passwd"]}, "not executable"),
        ({"script": "#!/no/such/interpreter\n"}, "interpreter"),
    ],
)
def test_program_faults_are_the_image_class(api, agent, spec, word):
    api.want("t1", **spec)
    report = api.until_gone("t1")
    assert report["failure"]["class"] == "image"
    assert word in report["failure"]["evidence"]
    assert report["exit_code"] is None


def test_environment_and_log(api, agent):
    api.want(
        "t1",
        env={"RANK": "0", "X": "a b"},
        workdir="sub/dir",
        script='echo "$X|$RANK|$CUDA_VISIBLE_DEVICES|$GPUSERVICE_RESUMED"; pwd; env >&2\n',
        devices=[
            {"address": "a", "index": 3, "vendor": "nvidia", "uuid": None},
            {"address": "b", "index": 1, "vendor": "nvidia", "uuid": None},
        ],
    )
    api.until_gone("t1")
    lines = api.log("t1").decode().splitlines()
    assert lines[0] == "a b|0|1,3|0"
    assert lines[1].endswith("/work/sub/dir")
    assert b"token" not in api.log("t1", "stderr")
    assert api.secret.encode() not in api.log("t1", "stderr")


def test_a_task_inherits_its_three_streams_and_nothing_else(api, agent):
    api.want("t1", command=["ls", "/proc/self/fd"])
    api.until_gone("t1")
    assert api.log("t1").split() == [b"0", b"1", b"2", b"3"]  # 3: the listing's own


def test_a_raised_time_limit_reaches_a_running_task(api, agent):
    api.want("t1", command=["sleep", "2"], time_limit_s=1)
    api.want("t2", command=["sleep", "2"], time_limit_s=1)
    api.limit("t1", 60)
    api.limit("t2", None)
    for task_id in ("t1", "t2"):
        report = api.until_gone(task_id)
        assert (report["exit_code"], report["timed_out"]) == (0, False)


def test_a_lowered_time_limit_counts_from_the_start_of_the_task(api, agent):
    api.want("t1", command=["sleep", "300"], time_limit_s=600, grace_s=1)
    api.until_state("t1", "running")
    started = time.monotonic()
    api.limit("t1", 2)
    report = api.until_gone("t1")
    assert (report["signal"], report["timed_out"]) == (15, True)
    assert 1 < time.monotonic() - started < 4
    api.want("t2", command=["sleep", "300"], grace_s=1)
    api.until_state("t2", "running")
    seen = time.monotonic()
    until(lambda: time.monotonic() - seen > 1.5, "some time of running")
    api.limit("t2", 1)  # is over already
    assert api.until_gone("t2")["timed_out"]


def test_a_limit_changed_while_no_agent_was_there_is_taken_at_adoption(api, agent):
    api.want("t1", command=["sleep", "300"], time_limit_s=600, grace_s=1)
    api.until_state("t1", "running")
    agent.end(signal.SIGKILL)
    api.limit("t1", 1)
    agent.start()
    assert api.until_gone("t1")["timed_out"]


def test_time_limit_and_a_task_that_ends_at_it(api, agent):
    api.want("over", command=["sleep", "60"], time_limit_s=1, grace_s=1)
    api.want("at", command=["sleep", "1"], time_limit_s=1)
    at, over = api.until_gone("at"), api.until_gone("over")
    assert (at["exit_code"], at["timed_out"]) == (0, False)
    assert (over["signal"], over["timed_out"]) == (15, True)


def open_the_way_to(place):
    """Let every user pass to a test's directory, as to a state directory in its usual place."""
    for folder in (place, *place.parents):
        if folder.stat().st_uid == os.geteuid() and folder != folder.parent:
            folder.chmod(folder.stat().st_mode | 0o011)


@pytest.mark.parametrize(
    "settings",
    [{}, {"namespaces": False}, {"namespaces": False, "own_uid": False}],
    ids=["namespaces", "own user", "plain"],
)
def test_a_stopped_tree_is_gone_whatever_it_did(api, make_agent, tmp_path, settings):
    open_the_way_to(tmp_path)
    agent = make_agent(**settings).start()
    api.want("t1", script=ESCAPE)
    api.until_state("t1", "running")
    until(lambda: len(agent.processes(["t1"])) >= 7, "the tree")
    tree = agent.processes(["t1"]) - agent.processes()
    asked = time.monotonic()
    api.stop("t1", grace_s=0.5)
    report = api.until_gone("t1")
    assert time.monotonic() - asked < 4
    assert report["signal"] == 9
    assert [pid for pid in tree if process_tree.start_time(pid) is not None] == []


def test_absent_task_is_killed(api, agent):
    api.want("t1", command=["sleep", "300"])
    api.until_state("t1", "running")
    api.drop("t1")
    until(lambda: agent.processes_of("t1") == [], "the kill")
    until(lambda: not (agent.state / "tasks" / "t1").exists(), "the clean-up")


def test_log_cap_and_rotation(api, make_agent):
    make_agent(log_segment_bytes=10_000, log_chunk_bytes=7000).start()
    api.want("t1", command=["sh", "-c", "seq 100000; echo done >&2"], log_max_bytes=200_000)
    api.until_gone("t1")
    whole = "".join(f"{number}\n" for number in range(1, 100001)).encode()
    assert api.log("t1") == whole[:200_000]
    assert api.log("t1", "stderr") == b"done\n"


def test_output_is_shipped_while_running(api, agent):
    api.want("t1", script="echo hello; sleep 300\n")
    api.until(lambda: api.log("t1") == b"hello\n", "the output")
    api.stop("t1", grace_s=0)
    api.until_gone("t1")


@root_only
def test_own_user_and_namespaces(api, agent):
    assert api.registrations == [] or api.registrations[0]["capabilities"]["own_uid"]
    for name in ("t1", "t2"):
        api.want(
            name,
            script="id -u; id -G; echo $$; ls -A /tmp; touch /tmp/x mine; "
            f"cat {agent.state}/identity.json; sleep 1\n",
        )
    logs = []
    for name in ("t1", "t2"):
        api.until_gone(name)
        logs.append(api.log(name).decode().split())
        assert b"identity.json" in api.log(name, "stderr")
    assert logs[0][0] == logs[0][1] != "0"
    assert logs[0][0] != logs[1][0]
    granted = api.registrations[0]["capabilities"]
    assert ("pid" in granted["namespaces"]) == (int(logs[0][2]) < 10)
    assert (agent.state / "identity.json").stat().st_mode & 0o777 == 0o600


@root_only
def test_out_of_memory_is_noticed(api, agent):
    api.until(lambda: api.registrations, "the registration")
    if not api.registrations[0]["capabilities"]["cgroups"]:
        return
    api.want(
        "t1",
        memory_mib=64,
        command=["python3", "-c", "x = bytearray(500 * 1024 * 1024); print(len(x))"],
    )
    report = api.until_gone("t1")
    assert report["oom"] and report["signal"] == 9

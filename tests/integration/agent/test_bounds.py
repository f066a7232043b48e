# SPDX-License-Identifier: Apache-2.0
"""What a task cannot do to the node, nor to who comes after it."""

from __future__ import annotations

import os
import resource
import signal

import pytest

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@root_only
def test_scratch_directories_are_the_task_s_own(api, agent):
    places = [one for one in ("/tmp", "/var/tmp", "/run/lock", "/dev/shm") if os.path.isdir(one)]
    leave = "; ".join(f"echo x > {one}/left-by-t1" for one in places)
    look = "; ".join(f"ls {one}" for one in places)
    api.want("t1", script=f"set -e; {leave}\n")
    assert api.until_gone("t1")["exit_code"] == 0
    if "mount" not in api.registrations[0]["capabilities"]["namespaces"]:
        return
    api.want("t2", script=f"{look}\n")
    assert api.until_gone("t2")["exit_code"] == 0
    assert b"left-by-t1" not in api.log("t2")
    assert not any(os.path.exists(f"{one}/left-by-t1") for one in places)


FORKS = """
import os, time
made = 0
try:
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except OSError as error:
    print("refused after", made, flush=True)
print(open("/proc/self/oom_score_adj").read(), flush=True)
"""


@root_only
def test_a_task_that_forks_without_end_hurts_itself_alone(api, make_agent):
    make_agent(max_processes=50).start()
    api.want("t1", command=["python3", "-c", FORKS])
    assert api.until_gone("t1")["exit_code"] == 0
    first, score = api.log("t1").decode().split("\n")[:2]
    assert first.startswith("refused after") and 40 <= int(first.split()[-1]) < 50
    assert int(score) > 0


@root_only
def test_a_task_that_asks_for_no_memory_gets_no_more_than_the_default(api, make_agent):
    make_agent(default_memory_mib=64).start()
    api.until(lambda: api.registrations, "the registration")
    if not api.registrations[0]["capabilities"]["cgroups"]:
        return
    hog = ["python3", "-c", "x = bytearray(500 * 1024 * 1024); print(len(x))"]
    api.want("t1", command=hog)
    report = api.until_gone("t1")
    assert report["oom"] and report["signal"] == 9
    api.want("t2", command=hog, memory_mib=700)
    assert api.until_gone("t2")["exit_code"] == 0


def test_more_tasks_than_an_agent_can_watch(api, make_agent):
    """Whoever has no file left to watch a task by looks at it now and then, and loses none."""
    agent = make_agent(log_interval_s=60)
    agent.files = 48
    agent.start()
    names = [f"t{number}" for number in range(40)]
    for name in names:
        api.want(name, script="trap 'exit 3' TERM; while :; do sleep 0.5; done\n")
    for name in names:
        api.until_state(name, "running", 60)
    agent.end(signal.SIGKILL)
    before = len(api.registrations)
    agent.start()
    api.until(lambda: len(api.registrations) > before, "the next agent")
    api.stop("t0", grace_s=0)
    assert api.until_gone("t0")["signal"] == signal.SIGKILL
    assert api.gone.keys() == {"t0"} and agent.process.poll() is None
    for name in names[1:]:
        api.stop(name)
    for name in names[1:]:
        report = api.until_gone(name, 60)
        assert (report["exit_code"], report["failure"]) == (3, None)


def test_tasks_have_the_limit_of_files_that_the_agent_was_started_with(api, make_agent):
    agent = make_agent()
    agent.files = 2048
    agent.start()
    api.want("t1", script="ulimit -Sn; ulimit -Hn\n")
    assert api.until_gone("t1")["exit_code"] == 0
    assert api.log("t1") == b"1024\n2048\n"
    assert resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE) == (2048, 2048)

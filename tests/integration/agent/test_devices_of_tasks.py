# SPDX-License-Identifier: Apache-2.0
"""The device filter on this machine's kernel: by every means it has, and under a real agent."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from gpuservice.agent import cgroups, device_nodes
from tests.integration.agent.conftest import supervisor_pid

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

OPEN = """for one in null full zero; do
  (: < /dev/$one) 2> /dev/null && echo $one
done
true"""


def opened(group):
    """Which of three devices a process of a group can open."""
    return subprocess.run(
        ["sh", "-c", OPEN],
        check=True,
        capture_output=True,
        text=True,
        preexec_fn=group.join,
        cwd="/",
    ).stdout.split()


@root_only
def test_every_means_of_this_kernel_filters():
    for number, base in enumerate(cgroups.device_bases()):
        group = cgroups.TaskGroup({"devices": base}, f"test-{os.getpid()}-{number}")
        try:
            try:
                group.create(None, None, device_nodes.FOR_PROBE)
            except PermissionError:
                continue  # this machine forbids it; the agent finds out by its probe
            assert opened(group) == ["null", "zero"], base
        finally:
            group.remove()


def capabilities(api):
    api.until(lambda: api.registrations, "the registration")
    return api.registrations[0]["capabilities"]


@root_only
def test_a_task_opens_its_own_devices_and_no_others(api, make_agent):
    """Where devices are filtered: ``/dev/fuse`` is open to all users, so only the filter can
    refuse it."""
    make_agent(allowed_devices=[]).start()
    granted = capabilities(api)
    if not granted["device_filter"]:
        assert granted["device_filter_reason"]
        return
    script = f"{OPEN}; (: < /dev/fuse) 2> /dev/null && echo fuse; true"
    api.want("t1", script=script)
    assert api.until_gone("t1")["exit_code"] == 0
    assert api.log("t1").split() == [b"null", b"full", b"zero"]


@root_only
def test_further_devices_are_open_to_every_task(api, make_agent):
    make_agent(allowed_devices=["/dev/fuse"]).start()
    api.want("t1", script="(: < /dev/fuse) 2> /dev/null && echo fuse; true")
    assert api.until_gone("t1")["exit_code"] == 0
    if os.path.exists("/dev/fuse") and os.stat("/dev/fuse").st_mode & 0o004:
        assert api.log("t1") == b"fuse\n"


@root_only
def test_groups_go_with_their_task(api, make_agent):
    agent = make_agent().start()
    for name, spec in (("t1", ["true"]), ("t2", ["sleep", "300"])):
        api.want(name, command=spec)
    api.until_gone("t1")
    api.until_state("t2", "running")
    os.kill(supervisor_pid(agent.state, "t2"), signal.SIGKILL)
    api.until_gone("t2")
    left = [
        one
        for base in cgroups.device_bases()
        for one in os.listdir(base)
        if one.endswith(("-t1", "-t2"))
    ]
    assert left == []


def test_without_the_filter_the_reason_is_told(api, make_agent):
    make_agent(device_filter=False).start()
    granted = capabilities(api)
    assert granted["device_filter"] is False
    assert "switched off" in granted["device_filter_reason"]

# SPDX-License-Identifier: Apache-2.0
"""What the device filter is told, without a kernel that obeys it."""

from __future__ import annotations

import os
import struct

import pytest

from gpuservice.agent import cgroups, device_nodes, device_program
from gpuservice.agent.device_nodes import BASIC, DeviceNode, DeviceNodes, Unfilterable
from gpuservice.agent.probes.nvml import NvmlProbe
from tests.unit.agent.test_parts import FakeNvml

GPU = DeviceNode("c", 195, 3)


def ask(program, kind, major, minor):
    """Run a program as the kernel would: the few instructions it is made of."""
    asked = struct.pack("=III", 0x2 << 16 | {"b": 1, "c": 2}[kind], major, minor)
    code = list(struct.iter_unpack("=BBhi", program))
    registers, at = {}, 0
    while True:
        operation, places, offset, value = code[at]
        target = places & 15
        at += 1
        if operation == 0x61:
            registers[target] = struct.unpack_from("=I", asked, offset)[0]
        elif operation == 0x54:
            registers[target] &= value
        elif operation == 0x55:
            at += offset if registers[target] != value else 0
        elif operation == 0xB7:
            registers[target] = value
        else:
            assert operation == 0x95
            return registers[0]


def test_the_program_allows_what_is_listed_and_nothing_else():
    program = device_program.program([*BASIC, GPU, DeviceNode("b", 8, None)])
    for kind, major, minor in [("c", 1, 3), ("c", 136, 7), ("c", 195, 3), ("b", 8, 17)]:
        assert ask(program, kind, major, minor) == 1
    for kind, major, minor in [("c", 195, 2), ("c", 1, 1), ("b", 195, 3), ("c", 8, 1), ("b", 9, 0)]:
        assert ask(program, kind, major, minor) == 0
    assert ask(device_program.program([]), "c", 1, 3) == 0


def test_version_1_denies_all_and_then_allows(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(cgroups, "_write", lambda path, text: written.append((path, text)))
    group = cgroups.TaskGroup({"devices": str(tmp_path), "memory": str(tmp_path)}, "t1")
    group.create(None, None, [GPU, ("c", 136, None)])
    place = f"{tmp_path}/{cgroups.group_name('t1')}"
    assert os.path.isdir(place)
    assert written == [
        (f"{place}/devices.deny", "a"),
        (f"{place}/devices.allow", "c 195:3 rwm"),
        (f"{place}/devices.allow", "c 136:* rwm"),
    ]
    group.remove()
    assert not os.path.exists(place)


def test_a_task_without_filter_gets_no_group(tmp_path):
    cgroups.TaskGroup({"devices": str(tmp_path)}, "t1").create(None, None, None)
    assert os.listdir(tmp_path) == []


def test_version_2_gets_a_program(tmp_path, monkeypatch):
    attached = []
    monkeypatch.setattr(device_program, "attach", lambda *given: attached.append(given))
    place = tmp_path / cgroups.group_name("t1")
    place.mkdir()
    (place / "cgroup.controllers").touch()
    cgroups.TaskGroup({"devices": str(tmp_path)}, "t1").create(None, None, [GPU])
    assert attached == [(str(place), [GPU])]


def test_places_for_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "_own_paths", lambda: {"devices": "/own"})
    assert cgroups.device_bases(str(tmp_path)) == []
    (tmp_path / "devices" / "own").mkdir(parents=True)
    (tmp_path / "devices" / "own" / "devices.deny").touch()
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified" / "cgroup.controllers").touch()
    assert cgroups.device_bases(str(tmp_path)) == [
        f"{tmp_path}/devices/own",
        f"{tmp_path}/unified/gpuservice-agent",
    ]


class Nvml(FakeNvml):
    """With the calls that tell device nodes."""

    partitioned = False

    def nvmlDeviceGetMinorNumber(self, handle):
        return handle + 4

    def nvmlDeviceGetMigMode(self, handle):
        return (int(self.partitioned), 0)


def test_device_nodes_of_nvidia_cards():
    library = Nvml()
    probe = NvmlProbe(library)
    nodes = DeviceNodes(probe, [one.address for one in probe.devices()], ())
    assert nodes.fault() is None
    allowed = nodes.allowed(["00000000:02:00.0"])
    assert {DeviceNode("c", 195, 5), DeviceNode("c", 195, 255)} <= set(allowed)
    assert DeviceNode("c", 195, 4) not in allowed
    assert set(nodes.allowed([])) == set(BASIC)
    with pytest.raises(Unfilterable, match="cannot be asked"):
        nodes.allowed(["0000:77:00.0"])
    library.partitioned = True
    assert "partitioned" in (nodes.fault() or "")


def test_further_devices_by_pattern(tmp_path):
    (tmp_path / "file").touch()
    found = DeviceNodes(NvmlProbe(Nvml()), (), ["/dev/nul?", f"{tmp_path}/*", "/dev/none*"])
    assert found.allowed([]) == BASIC
    assert device_nodes.numbers_of("/dev/null") == DeviceNode("c", 1, 3)


def test_processes_are_bounded_by_a_group_of_their_own(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(cgroups, "_write", lambda path, text: written.append((path, text)))
    group = cgroups.TaskGroup({"pids": str(tmp_path)}, "t1")
    group.create(None, None, processes=70)
    group.join()
    place = f"{tmp_path}/{cgroups.group_name('t1')}"
    assert written == [(f"{place}/pids.max", "70"), (f"{place}/cgroup.procs", "0")]

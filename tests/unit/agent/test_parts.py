# SPDX-License-Identifier: Apache-2.0
"""The agent's smaller parts, without processes."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from gpuservice.agent import isolation, lease_writer, probing, sandbox, task_files
from gpuservice.agent.credentials import IdentityFile, StateDirectoryBusy
from gpuservice.agent.data import beneath
from gpuservice.agent.data.addresses import AddressRefused, AddressRules
from gpuservice.agent.device_nodes import DeviceNodes
from gpuservice.agent.journal import Journal
from gpuservice.agent.lease import LeaseReader
from gpuservice.agent.lease_writer import LeaseWriter
from gpuservice.agent.logfiles import SegmentReader, SegmentWriter
from gpuservice.agent.orders import TaskOrder
from gpuservice.agent.preparing import visible_devices
from gpuservice.agent.probes.fake import FakeProbe
from gpuservice.agent.probes.nvml import NvmlProbe, NvmlUnavailable
from gpuservice.agent.settings import AgentSettings, SettingsError, UserData
from gpuservice.agent.spawning import event_of
from gpuservice.agent.uids import UidPool, UidsExhausted
from gpuservice.agent.wire import Device


def test_journal_keeps_ids_and_mends_a_cut_line(tmp_path):
    path = str(tmp_path / "journal")
    Journal(path).record(["a", "b"])
    with open(path, "a") as file:
        file.write("cut")
    again = Journal(path)
    assert ("a" in again, "b" in again, "cut" in again) == (True, True, False)
    again.record(["c"])
    assert "c" in Journal(path)


def test_a_journal_that_could_be_written_in_part_only_is_as_before(tmp_path, monkeypatch):
    path, write = str(tmp_path / "journal"), os.write
    journal = Journal(path)
    journal.record(["a"])
    pieces = [1]

    def full(handle, data):
        if not pieces:
            raise OSError(28, "no space left")
        return write(handle, bytes(data)[: pieces.pop()])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="no space"):
        journal.record(["lost"])
    monkeypatch.undo()
    journal.record(["b"])
    again = Journal(path)
    assert ("a" in again, "b" in again, "lost" in again) == (True, True, False)


def test_a_long_journal_keeps_the_newest_ids_and_those_in_hand(tmp_path, monkeypatch):
    path = str(tmp_path / "journal")
    journal = Journal(path, kept=10)
    ids = [f"t{number}" for number in range(100)]
    for one in ids:
        journal.record([one], in_hand={"t3", one})
    for known in (journal, Journal(path, kept=10)):
        assert "t3" in known and all(one in known for one in ids[-10:])
        assert not any(one in known for one in ids[4:70])
    assert len((tmp_path / "journal").read_text().splitlines()) < 25
    monkeypatch.setattr(os, "replace", lambda *_: os.stat("/no/such/place"))  # a failing disk
    more = [f"u{number}" for number in range(50)]
    journal.record(more)
    assert all(one in Journal(path) for one in more)
    monkeypatch.undo()
    journal.record(["v"])
    assert "v" in Journal(path) and "u0" not in Journal(path)


def test_segments(tmp_path):
    writer = SegmentWriter(str(tmp_path), "stdout", max_bytes=25, segment_bytes=10)
    reader = SegmentReader(str(tmp_path), "stdout")
    assert reader.size() == 0
    writer.write(b"0123456789abcdefghijklmnopqrstuvwxyz")
    assert (writer.written, writer.dropped, reader.size()) == (25, 11, 25)
    assert reader.read(5, 10) == (5, b"56789abcde")
    reader.forget(12)
    assert reader.read(0, 100) == (10, b"abcdefghijklmno")
    reader.forget(25)
    assert reader.size() == 25


def test_lease_never_gets_shorter_and_counts_absence(tmp_path):
    path = str(tmp_path / "lease")
    writer = LeaseWriter(path)
    reader = LeaseReader(path)
    writer.renew(100.0, 10)
    writer.renew(95.0, 10)
    assert reader.look() == 110.0
    assert LeaseWriter(path).deadline == 110.0
    reader.look()
    assert reader.unattended_s > 0
    writer.touch()
    reader.look()
    assert reader.unattended_s == 0
    writer.renew(100.0, None)
    assert reader.look() == 0


def test_a_deadline_of_another_start_of_the_machine_is_void(tmp_path, monkeypatch):
    path = str(tmp_path / "lease")
    LeaseWriter(path).renew(1000.0, 10)
    monkeypatch.setattr(lease_writer, "boot_id", lambda: "another")
    writer = LeaseWriter(path)
    assert (writer.deadline, LeaseReader(path).look()) == (0, 0)
    writer.renew(5.0, 10)
    assert LeaseReader(path).look() == 15.0


@pytest.mark.parametrize(
    ("settings", "works", "proved"),
    [
        ({}, lambda one: True, (True, ("mount", "pid", "ipc"))),
        ({}, lambda one: not one.namespaces, (True, ())),
        ({}, lambda one: not one.own_uid, None),
        ({}, lambda one: False, None),
        ({"own_uid": False}, lambda one: False, (False, ())),
        ({"own_uid": False}, lambda one: True, (False, ("mount", "pid", "ipc"))),
    ],
)
def test_root_runs_no_task_as_root_unless_told_to(tmp_path, monkeypatch, settings, works, proved):
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def try_out(one, script):
        return f"{5000 if one.own_uid else 0} 2 0 0 0" if works(one) else None

    def prove():
        return sandbox.Sandbox.prove(
            str(tmp_path), AgentSettings(**settings), DeviceNodes(FakeProbe(()), (), ()), try_out
        )

    if proved is None:
        with pytest.raises(probing.CannotIsolate, match="own_uid"):
            prove()
    else:
        assert (prove().own_uid, prove().namespaces) == proved


@pytest.mark.parametrize("cause", ["lease", "orphan", "limit", "lost"])
def test_a_probe_that_was_ended_says_nothing(tmp_path, monkeypatch, cause):
    monkeypatch.setattr(probing.time, "sleep", lambda _: None)
    results = [task_files.Result(cause=cause), task_files.Result(exit_code=0)]
    (tmp_path / "out").write_text("5000 2 0 0")

    def probe():
        return probing.verdict(results.pop(0), str(tmp_path / "out"))

    assert probing.patiently(probe) == "5000 2 0 0"
    results[:] = [task_files.Result(cause=cause)] * 3
    with pytest.raises(probing.CannotIsolate, match="could not be found out"):
        probing.patiently(probe)
    results[:] = [task_files.Result(exit_code=1)]
    assert probing.patiently(probe) is None


def test_what_is_covered_hides_the_directories_above_as_well(tmp_path, monkeypatch):
    modes = {}
    monkeypatch.setattr(os, "stat", lambda path: SimpleNamespace(st_mode=modes.get(path, 0o755)))
    state = "/var/lib/all/agents/one"
    assert isolation.cover_of(state) == state
    assert isolation.cover_of(state, "/var/lib/all") == "/var/lib/all"
    modes["/var/lib/all/agents"] = 0o700
    assert isolation.cover_of(state) == "/var/lib/all/agents"
    assert isolation.cover_of(state, "/var/lib/all") == "/var/lib/all"
    modes["/var/lib"] = 0o700
    assert isolation.cover_of(state, "/var/lib/all") == "/var/lib"


def test_uids_are_exclusive_and_stale_claims_are_taken_over(tmp_path):
    pool = UidPool(str(tmp_path / "uids"), 5000, 2)
    place = tmp_path / "task"
    place.mkdir()
    held = {pool.claim(str(place)), pool.claim(str(place))}
    assert held == {5000, 5001}
    with pytest.raises(UidsExhausted):
        pool.claim(str(place))
    pool.release(5001, "another agent's task")
    with pytest.raises(UidsExhausted):
        pool.claim(str(place))
    pool.release(5001, str(place))
    assert pool.claim(str(tmp_path / "vanished")) == 5001
    assert pool.claim(str(place)) == 5001


def test_claim_is_won_once(tmp_path):
    assert task_files.claim(str(tmp_path), {"pid": 1})
    assert not task_files.claim(str(tmp_path), {"pid": 2})
    assert task_files.read_json(str(tmp_path / "supervisor")) == {"pid": 1}


def test_identity_is_made_once_and_private(tmp_path):
    one = IdentityFile(str(tmp_path), "n")
    secret = one.load().secret
    assert len(secret) == 64
    assert IdentityFile(str(tmp_path), "n").load().secret == secret
    assert IdentityFile(str(tmp_path), "other").load().secret != secret
    assert (tmp_path / "identity.json").stat().st_mode & 0o777 == 0o600
    one.hold()
    with pytest.raises(StateDirectoryBusy):
        IdentityFile(str(tmp_path), "n").hold()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "169.254.169.254",
        "fe80::1%eth0",
        "0.0.0.0",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "100.100.100.200",
        "fd00:ec2::254",
        "10.1.2.3",
        "224.0.0.1",
    ],
)
def test_refused_addresses(address):
    with pytest.raises(AddressRefused):
        AddressRules(("10.0.0.0/8",)).check(address)


def test_allowed_addresses():
    assert str(AddressRules().check("10.1.2.3")) == "10.1.2.3"
    assert str(AddressRules(allow_loopback=True).check("127.0.0.1")) == "127.0.0.1"


@pytest.mark.parametrize("path", ["/etc", "../x", "a/../../b", "a\0b", "a/" * 100])
def test_unsafe_paths(path):
    with pytest.raises(beneath.UnsafePath):
        beneath.parts(path)


def test_beneath_follows_no_link(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("x")
    (tmp_path / "in" / "way").symlink_to("/etc")
    (tmp_path / "in" / "link").symlink_to("file")
    os.mkfifo(tmp_path / "in" / "pipe")
    root = os.open(tmp_path / "in", os.O_RDONLY)
    assert sorted(beneath.walk(root, [])) == [
        (["file"], "file"),
        (["link"], "other"),
        (["pipe"], "other"),
        (["way"], "other"),
    ]
    for names in (["way", "passwd"], ["link"]):
        with pytest.raises(OSError):
            beneath.open_regular(root, names)
        with pytest.raises(OSError):
            beneath.create(root, names)
    with pytest.raises(beneath.UnsafePath):
        beneath.open_regular(root, ["pipe"])
    os.close(root)


def test_visible_devices():
    order = TaskOrder.parse(
        {
            "task_id": "t",
            "job_id": "j",
            "attempt": 1,
            "action": "stop",
            "devices": [
                {"address": "b", "index": 2, "vendor": "nvidia", "uuid": "MIG-7"},
                {"address": "a", "index": 0, "vendor": "nvidia", "uuid": "GPU-1"},
            ],
        }
    )
    amd = Device(address="c", vendor="amd", product_id="1", memory_mib=1, index=0)
    assert visible_devices(order, ()) == {"CUDA_VISIBLE_DEVICES": "0,MIG-7"}
    none = TaskOrder.parse({"task_id": "t", "job_id": "j", "attempt": 1, "action": "stop"})
    assert visible_devices(none, (amd,)) == {"ROCR_VISIBLE_DEVICES": ""}
    assert set(visible_devices(none, ()).values()) == {""}


def test_settings():
    settings = AgentSettings.from_mapping(
        {
            "devices": [
                {
                    "address": "a",
                    "vendor": "nvidia",
                    "product_id": "20b2",
                    "memory_mib": 1,
                    "index": 0,
                }
            ]
        }
    )
    assert settings.devices[0].address == "a"
    with pytest.raises(SettingsError):
        AgentSettings.from_mapping({"no_such": 1})
    with pytest.raises(SettingsError):
        UserData.parse({"api_url": "x"})


class FakeNvml:
    """Answers as pynvml does."""

    rows = (0, 0, 0, 0)

    def nvmlInit(self):
        """Nothing."""

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetPciInfo(self, handle):
        return SimpleNamespace(
            busId=f"00000000:{handle + 1:02X}:00.0".encode(), pciDeviceId=0x20B210DE
        )

    def nvmlDeviceGetUUID(self, handle):
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(total=80 * 2**30)

    def nvmlDeviceGetRemappedRows(self, handle):
        return self.rows if handle else (0, 0, 0, 0)


def test_nvml():
    library = FakeNvml()
    probe = NvmlProbe(library)
    first, second = probe.devices()
    assert (first.address, first.product_id, first.memory_mib, second.index) == (
        "0000:01:00.0",
        "20b2",
        81920,
        1,
    )
    library.rows = (0, 1, 0, 1)
    assert [one.healthy for one in probe.health()] == [True, False]
    library.nvmlInit = lambda: 1 / 0
    with pytest.raises(NvmlUnavailable):
        NvmlProbe(library)


@pytest.mark.parametrize(
    "data",
    [
        b"not json",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b"null",
        b"{}",
        b'{"event": "started"}',
        b'{"event": 1, "task_id": "t"}',
        b'{"event": "started", "task_id": "../other"}',
    ],
)
def test_nonsense_from_the_spawners_socket_is_dropped(data):
    assert event_of(data) is None
    assert event_of(b'{"event": "started", "task_id": "t"}') is not None

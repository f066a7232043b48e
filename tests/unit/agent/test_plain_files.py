# SPDX-License-Identifier: Apache-2.0
"""Small files by system calls: short writes, and what a full disk leaves of a claim."""

from __future__ import annotations

import errno
import os

import pytest

from gpuservice.agent import plain_files, task_files


def test_everything_is_written_however_little_a_call_takes(tmp_path, monkeypatch):
    path, real = tmp_path / "f", os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, bytes(data[:3])))
    handle = os.open(path, os.O_WRONLY | os.O_CREAT)
    plain_files.write_all(handle, b"0123456789")
    os.close(handle)
    monkeypatch.undo()
    assert path.read_bytes() == plain_files.read(str(path)) == b"0123456789"


def test_a_large_file_is_read_to_its_end(tmp_path):
    (tmp_path / "f").write_bytes(b"x" * 200_001)
    assert len(plain_files.read(str(tmp_path / "f"))) == 200_001


@pytest.mark.parametrize("written", [0, 5])
def test_a_disk_that_is_full_gives_the_task_to_nobody(tmp_path, monkeypatch, written):
    real, room = os.write, [written]

    def full(handle, data):
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = real(handle, bytes(data[: room[0]]))
        room[0] -= count
        return count

    monkeypatch.setattr(os, "write", full)
    assert not task_files.claim(str(tmp_path), {"pid": 1})
    monkeypatch.undo()
    assert os.listdir(tmp_path) == [task_files.SUPERVISOR]
    assert (tmp_path / task_files.SUPERVISOR).read_bytes() == b""
    assert not task_files.claim(str(tmp_path), {"pid": 2})
    assert sorted(os.listdir(tmp_path)) == [task_files.SUPERVISOR]

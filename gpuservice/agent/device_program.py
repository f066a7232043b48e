# SPDX-License-Identifier: Apache-2.0
"""The device filter of control groups version 2: a BPF program of a few comparisons.

Version 2 has no files for it; the kernel asks a program for each opening of a device node
(linux/bpf.h, BPF_PROG_TYPE_CGROUP_DEVICE). It is put together here rather than compiled, since
nothing but these comparisons is ever needed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable, Sequence

#: (kind, major, minor), as ``device_nodes.DeviceNode`` or read back from JSON.
Numbers = Sequence[str | int | None]

_SYSCALL = {"x86_64": 321, "aarch64": 280, "ppc64le": 361, "s390x": 351, "riscv64": 280}
_PROG_LOAD, _PROG_ATTACH = 5, 8
_TYPE_CGROUP_DEVICE, _ATTACH_CGROUP_DEVICE, _ALLOW_MULTI = 15, 6, 2
_KIND = {"b": 1, "c": 2}

# Opcodes: linux/bpf.h and Documentation/bpf/standardization/instruction-set.rst.
_LOAD_WORD, _AND, _JUMP_UNLESS_EQUAL, _SET, _EXIT = 0x61, 0x54, 0x55, 0xB7, 0x95


def _instruction(
    code: int, target: int = 0, source: int = 0, offset: int = 0, value: int = 0
) -> bytes:
    return struct.pack("=BBhi", code, source << 4 | target, offset, value)


def program(allowed: Iterable[Numbers]) -> bytes:
    """Instructions that allow these nodes and no other.

    Register 1 points to what is asked: access (upper half) and kind (lower half), major, minor.
    """
    code = [
        _instruction(_LOAD_WORD, 2, 1, 0),
        _instruction(_AND, 2, value=0xFFFF),
        _instruction(_LOAD_WORD, 3, 1, 4),
        _instruction(_LOAD_WORD, 4, 1, 8),
    ]
    for kind, major, minor in allowed:
        tests = [(2, _KIND[str(kind)]), (3, int(major or 0))]
        if minor is not None:
            tests.append((4, int(minor)))
        for place, (register, value) in enumerate(tests):
            past = len(tests) - place - 1 + 2  # the other tests and the two of the verdict
            code.append(_instruction(_JUMP_UNLESS_EQUAL, register, offset=past, value=value))
        code += [_instruction(_SET, 0, value=1), _instruction(_EXIT)]
    return b"".join([*code, _instruction(_SET, 0, value=0), _instruction(_EXIT)])


def attach(directory: str, allowed: Iterable[Numbers]) -> None:
    """Filter the devices of a control group; the filter lives as long as the group.

    :raises OSError: when the kernel or the rights of this process do not allow it.
    """
    code = program(allowed)
    instructions = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"Apache-2.0")
    loaded = _bpf(
        _PROG_LOAD,
        struct.pack(
            "=IIQQIIQII16s",
            _TYPE_CGROUP_DEVICE,
            len(code) // 8,
            ctypes.addressof(instructions),
            ctypes.addressof(licence),
            0,
            0,
            0,
            0,
            0,
            b"gpuservice",
        ),
    )
    try:
        group = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = _ALLOW_MULTI  # programs of groups above are asked as well
            _bpf(_PROG_ATTACH, struct.pack("=IIII", group, loaded, _ATTACH_CGROUP_DEVICE, flags))
        finally:
            os.close(group)
    finally:
        os.close(loaded)


def _bpf(command: int, attributes: bytes) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"bpf(2) on {platform.machine()} is not known")
    held = ctypes.create_string_buffer(attributes, len(attributes))
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(
        libc.syscall(
            ctypes.c_long(number),
            ctypes.c_int(command),
            ctypes.byref(held),
            ctypes.c_uint(len(attributes)),
        )
    )
    if result < 0:
        raise OSError(ctypes.get_errno(), f"bpf: {os.strerror(ctypes.get_errno())}")
    return result

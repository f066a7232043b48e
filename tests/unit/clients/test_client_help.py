# SPDX-License-Identifier: Apache-2.0
"""Every command has help with an example that works as it stands."""

from __future__ import annotations

import importlib
import shlex
from importlib import metadata

import pytest

from gpuservice.clients.osc.generic import GpuCommand

pytestmark = pytest.mark.a11

COMMANDS = sorted(metadata.entry_points(group="openstack.gpu.v1"), key=lambda one: one.name)


def test_every_command_is_there():
    assert len(COMMANDS) >= 60


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda one: one.name)
def test_every_command_has_help_with_an_example_of_itself(entry):
    kind = entry.load()
    assert issubclass(kind, GpuCommand)
    words = "openstack " + entry.name.replace("_", " ")
    assert kind.example.startswith(words), kind.example
    for cls in kind.__mro__:
        if cls is kind:
            assert (cls.__doc__ or "").strip()


def test_every_example_parses(openstack, api):
    shell = importlib.import_module("openstackclient.shell")
    app = shell.OpenStackShell()
    for entry in COMMANDS:
        kind = entry.load()
        for line in kind.example.splitlines():
            words = shlex.split(line.split(" | ")[0])
            rest = words[1 + len(entry.name.split("_")) :]
            parser = kind(app, None).get_parser("x")
            assert parser.parse_args(rest)


def test_help_shows_the_example(openstack):
    ran = openstack("help", "gpu", "job", "create")
    assert ran.code == 0
    assert "Example:\n  $ openstack gpu job create --queue vision --gpus 4" in ran.text

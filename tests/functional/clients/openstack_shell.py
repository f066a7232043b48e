# SPDX-License-Identifier: Apache-2.0
"""The real ``openstack`` shell, run in this process: a new one takes a second to start."""

from __future__ import annotations

import logging

import pytest
from openstackclient import shell
from openstackclient.common import clientmanager


def run_openstack(capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """The exit status, output and error output of ``openstack ARGV``."""
    capfd.readouterr()
    # The shell keeps one client a process.
    vars(clientmanager.clientmanager.ClientManager)["gpu"]._handle = None
    # It leaves log handlers behind that write to the streams of this run.
    before = set(logging.getLogger().handlers)
    try:
        code = shell.main(list(argv))
    except SystemExit as ended:  # the parser's way of refusing an option
        code = int(ended.code or 0)
    finally:
        for handler in set(logging.getLogger().handlers) - before:
            logging.getLogger().removeHandler(handler)
    out, err = capfd.readouterr()
    return code, out, err

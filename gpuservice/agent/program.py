# SPDX-License-Identifier: Apache-2.0
"""The program ``gpuservice-agent``: one agent for this machine."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from gpuservice.agent import open_files
from gpuservice.agent.agent import Agent, AgentRefused
from gpuservice.agent.credentials import StateDirectoryBusy
from gpuservice.agent.probes.nvml import NvmlUnavailable
from gpuservice.agent.settings import AgentSettings, SettingsError, UserData

LOG = logging.getLogger(__name__)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuservice-agent", description="Runs the service's tasks on this GPU node."
    )
    parser.add_argument(
        "--user-data",
        required=True,
        metavar="FILE",
        help="JSON with api_url, ca_file, node_id and the bootstrap token",
    )
    parser.add_argument(
        "--state-dir",
        required=True,
        metavar="DIR",
        help="where the agent keeps its identity, journal and tasks",
    )
    parser.add_argument("--config-file", metavar="FILE", help="JSON with settings of the agent")
    parser.add_argument(
        "--stop-tasks",
        action="store_true",
        help="end all tasks when the agent is told to end (SIGTERM)",
    )
    parser.add_argument("--debug", action="store_true", help="log more")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns 0 then, 1 when refused, 2 for wrong files."""
    given = _parser().parse_args(argv)
    logging.basicConfig(
        level=logging.DEBUG if given.debug else logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    os.umask(0o077)
    open_files.raise_limit()
    reading = f"the user data ({given.user_data})"
    try:
        with open(given.user_data, encoding="utf-8") as file:
            user_data = UserData.parse(json.load(file))
        settings = AgentSettings()
        if given.config_file:
            reading = f"the configuration ({given.config_file})"
            with open(given.config_file, encoding="utf-8") as file:
                settings = AgentSettings.from_mapping(json.load(file))
    except (OSError, ValueError) as error:
        LOG.error("%s cannot be read: %s", reading, error)
        return 2
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    try:
        Agent(user_data, given.state_dir, settings).run(stop, stop_tasks=given.stop_tasks)
    except (AgentRefused, NvmlUnavailable, StateDirectoryBusy, SettingsError) as error:
        LOG.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

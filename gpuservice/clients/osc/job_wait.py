# SPDX-License-Identifier: Apache-2.0
"""``gpu job wait``: until jobs have ended."""

from __future__ import annotations

import argparse

from gpuservice.clients.osc.generic import NounCommand
from gpuservice.clients.osc.job_progress import LiveLine
from gpuservice.clients.osc.values import duration


class WaitJob(NounCommand):
    """Wait until jobs have ended; ends with 0 if all succeeded, else with 1."""

    noun = "job"
    example = "openstack gpu job wait resnet-sweep --timeout 2h"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """For which, how long."""
        parser = super().get_parser(prog_name)
        self.add_target(parser, "+")
        parser.add_argument(
            "--timeout",
            type=duration,
            metavar="<duration>",
            help="Give up after this, like 90s, 15m or 2h, with exit code 1",
        )
        parser.add_argument("--quiet-wait", action="store_true", help="Show nothing meanwhile")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Wait for each."""
        succeeded = True
        for target in parsed_args.target:
            line = LiveLine(self.app.stderr)
            try:
                job = self.gpu.wait_for_job(
                    self.one(target).id,
                    timeout_s=parsed_args.timeout,
                    seen=None if parsed_args.quiet_wait else line.show,
                )
            finally:
                line.close()
            succeeded = succeeded and job.status == "succeeded"
        return 0 if succeeded else 1

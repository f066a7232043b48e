# SPDX-License-Identifier: Apache-2.0
"""``gpu job create``: the everyday form, from a file, from a script, dry, waited for, followed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from osc_lib import exceptions

from gpuservice.clients.osc.generic import ShowCommand
from gpuservice.clients.osc.job_explain import story
from gpuservice.clients.osc.job_logs import follow
from gpuservice.clients.osc.job_progress import LiveLine
from gpuservice.clients.osc.job_request import GROUPS, request_of
from gpuservice.clients.osc.options import add_all
from gpuservice.clients.sdk.v1._base import is_id
from gpuservice.clients.sdk.v1.job import Job

#: What a shell gives a program that the user interrupted.
INTERRUPTED = 130


class CreateJob(ShowCommand):
    """Put a job in line.

    The program and its arguments stand behind "--". With --wait the command ends with 0 when the
    job succeeded, with 1 when it did not.
    """

    noun = "job"
    example = (
        "openstack gpu job create --queue vision --gpus 4 --gpu-type a100-80gb --tasks 2 "
        "--max-runtime 1h --wait -- python3 train.py\n"
        "openstack gpu job create --file job.yaml --priority high --follow"
    )
    _code = 0
    _silent = False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The request, and what happens then."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--file",
            metavar="<file>",
            help="YAML or JSON with the job's fields; options go before them",
        )
        parser.add_argument(
            "--script",
            metavar="<file>",
            help="Run this file (by its #! line) in place of a command",
        )
        for title, options in GROUPS.items():
            add_all(parser.add_argument_group(title), options)
        then = parser.add_mutually_exclusive_group()
        then.add_argument(
            "--dry-run", action="store_true", help="Only say where and when it would run"
        )
        then.add_argument("--wait", action="store_true", help="Wait for its end, showing its stage")
        then.add_argument(
            "--follow", action="store_true", help="Wait for its end, showing the first task's log"
        )
        parser.add_argument(
            "--project", metavar="<project>", help="As this project (only without authentication)"
        )
        parser.add_argument(
            "argv", nargs="*", metavar="-- <program> <argument>", help="What to run"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Submit it, and do what was asked for then."""
        request = request_of(parsed_args)
        if parsed_args.project and not self.be_project(parsed_args.project):
            raise exceptions.CommandError("Choose the project with --os-project-id.")
        self._resolve_dependencies(request)
        self.sent = {"job": request}
        if parsed_args.dry_run:
            return self._dry_run(parsed_args, request)
        job = self.gpu.create_job(request)
        if parsed_args.wait or parsed_args.follow:
            job = self._see_through(job, parsed_args.follow)
        return self.shown(parsed_args, job)

    def _resolve_dependencies(self, request: dict[str, Any]) -> None:
        """Names of jobs as the ids that the service takes; what is no list it will refuse."""
        wanted = request.get("depends_on")
        for one in wanted if isinstance(wanted, list) else ():
            name = one.get("job") if isinstance(one, dict) else None
            if isinstance(name, str) and name and not is_id(name):
                one["job"] = self.one(name).id

    def _dry_run(
        self, parsed_args: argparse.Namespace, request: dict[str, Any]
    ) -> tuple[Sequence[str], Sequence[Any]]:
        answer = self.gpu.dry_run_job(request)["dry_run"]
        explanation = answer.get("explanation")
        if explanation and parsed_args.formatter == "table":
            self.app.stderr.write(story(explanation) + "\n")
            answer = {name: value for name, value in answer.items() if name != "explanation"}
        return self.shown(parsed_args, answer)

    def _see_through(self, job: Job, following: bool) -> Job:
        """The job at its end; its success becomes the command's."""
        line = LiveLine(self.app.stderr)
        try:
            if following:
                self.app.stderr.write(f"Job {job.id}\n")
                self._silent = True
                for piece in follow(self.gpu, job.id, line):
                    sys.stdout.buffer.write(piece)
                    sys.stdout.buffer.flush()
            job = self.gpu.wait_for_job(job.id, seen=line.show)
        except KeyboardInterrupt:
            line.close()
            self.app.stderr.write(f"\nThe job {job.id} goes on.\n")
            self._code = INTERRUPTED
            return job
        line.close()
        self._code = 0 if job.status == "succeeded" else 1
        return job

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]
    ) -> int:
        """The job; nothing behind a followed log."""
        if not self._silent:
            super().produce_output(parsed_args, column_names, data)
        return self._code

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run it; the exit code is the job's own when it was waited for."""
        return super().run(parsed_args) or self._code

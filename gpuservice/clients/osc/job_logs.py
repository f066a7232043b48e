# SPDX-License-Identifier: Apache-2.0
"""``gpu job logs``: bytes of a task's log, once or as they come."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from osc_lib import exceptions

from gpuservice.clients.osc.generic import NounCommand
from gpuservice.clients.osc.job_progress import LiveLine
from gpuservice.clients.osc.values import harmless
from gpuservice.clients.sdk import Proxy
from gpuservice.clients.sdk.v1._logs import LogStream

_POLL_S = 1.0
#: How far back from the end lines are looked for at first; doubled until there are enough.
_TAIL_BYTES = 16_384


def follow(
    gpu: Proxy,
    job_id: str,
    line: LiveLine | None = None,
    *,
    name: str = "stdout",
    task: int = 0,
    index: int | None = None,
    attempt: int | None = None,
    offset: int = 0,
) -> Iterator[bytes]:
    """Generate a job's log over all its attempts from the last one on, until the job has ended.

    :param line: shows why the job waits, until its first byte comes.
    :param attempt: only that attempt's.
    """
    while True:
        job = gpu.get_job(job_id)
        number = attempt or job.attempt or 0
        if number == 0 and not job.is_ended and index is None:
            if line is not None:
                line.show(job)
            time.sleep(_POLL_S)
            continue
        if line is not None:
            line.show(job)
            line.close()
        stream = LogStream(
            name, task, index, attempt or (number or None) if index is None else attempt
        )
        yield from gpu.follow_job_log(job_id, stream, offset=offset)
        offset = 0
        if attempt is not None or not _next_attempt(gpu, job_id, number, index):
            return


def _next_attempt(gpu: Proxy, job_id: str, number: int, index: int | None) -> bool:
    """Wait until a job has another attempt (True) or none any more (False)."""
    while True:
        job = gpu.get_job(job_id)
        if job.is_ended or index is not None:
            # A job may have begun another attempt and ended between two looks.
            return index is None and (job.attempt or 0) > number
        if (job.attempt or 0) > number:
            return True
        time.sleep(_POLL_S)


class ShowLogs(NounCommand):
    """Print a task's log, as it is or as it grows.

    On a terminal, escape sequences and control characters of the log are left out (see --raw).
    """

    noun = "job"
    example = (
        "openstack gpu job logs resnet-sweep --follow\n"
        "openstack gpu job logs sweep --index 7 --stderr --tail 20"
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Which stream, from where, how long."""
        parser = super().get_parser(prog_name)
        self.add_target(parser)
        parser.add_argument("--follow", action="store_true", help="Go on until the job has ended")
        parser.add_argument(
            "--task", type=int, default=0, metavar="<rank>", help="Of this task of the gang (0)"
        )
        parser.add_argument("--index", type=int, metavar="<n>", help="Of this element of the array")
        parser.add_argument("--attempt", type=int, metavar="<n>", help="Of this attempt (the last)")
        parser.add_argument("--stderr", action="store_true", help="The standard error stream")
        where = parser.add_mutually_exclusive_group()
        where.add_argument("--tail", type=int, metavar="<lines>", help="Only the last lines")
        where.add_argument(
            "--offset",
            type=int,
            default=0,
            metavar="<bytes>",
            help="From this byte; negative: from the end",
        )
        parser.add_argument(
            "--raw", action="store_true", help="Also on a terminal every byte as it is"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print it."""
        job = self.one(parsed_args.target)
        name = "stderr" if parsed_args.stderr else "stdout"
        stream = LogStream(name, parsed_args.task, parsed_args.index, parsed_args.attempt)
        if parsed_args.tail is not None and parsed_args.tail < 0:
            raise exceptions.CommandError("--tail must be 0 or more.")
        clean = not parsed_args.raw and sys.stdout.isatty()
        try:
            if parsed_args.tail is not None:
                data, offset = self._tail(job.id, stream, parsed_args.tail)
                _write(data, clean)
            else:
                offset = parsed_args.offset
            if not parsed_args.follow:
                if parsed_args.tail is None:
                    self._print(job.id, stream, offset, clean)
                return
            for piece in follow(
                self.gpu,
                job.id,
                name=name,
                task=parsed_args.task,
                index=parsed_args.index,
                attempt=parsed_args.attempt,
                offset=offset,
            ):
                _write(piece, clean)
        except KeyboardInterrupt:
            self.app.stderr.write("\n")
        except BrokenPipeError:
            # The reader (head, say) has enough; Python must not complain about it at its exit.
            sys.stdout = None

    def _print(self, job_id: str, stream: LogStream, offset: int, clean: bool) -> None:
        while True:
            piece = self.gpu.read_job_log(job_id, stream, offset=offset)
            if not piece.data:
                return
            _write(piece.data, clean)
            offset = piece.offset

    def _tail(self, job_id: str, stream: LogStream, lines: int) -> tuple[bytes, int]:
        """The last lines, and where they end."""
        back = _TAIL_BYTES
        while True:
            piece = self.gpu.read_job_log(job_id, stream, offset=-back)
            data, offset = piece.data, piece.offset
            while True:
                piece = self.gpu.read_job_log(job_id, stream, offset=offset)
                if not piece.data:
                    break
                data, offset = data + piece.data, piece.offset
            ends = data.splitlines(keepends=True)
            if len(ends) > lines or len(data) < back:
                return b"".join(ends[len(ends) - min(lines, len(ends)) :]), offset
            back *= 2


def _write(data: bytes, clean: bool) -> None:
    sys.stdout.buffer.write(harmless(data) if clean else data)
    sys.stdout.buffer.flush()

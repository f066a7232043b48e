# SPDX-License-Identifier: Apache-2.0
"""``gpu job artifacts`` and ``gpu job download``: result files."""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from osc_lib import exceptions

from gpuservice.clients.osc.generic import NounCommand
from gpuservice.clients.osc.job import BelowJob
from gpuservice.clients.osc.options import Option
from gpuservice.clients.sdk.v1.job import Artifact

_CHUNK = 1 << 16


class ListArtifacts(BelowJob):
    """List a job's artifacts."""

    below = "job_artifacts"
    columns = ("path", "index", "size", "sha256")
    long_columns = ("id", "attempt", "rank", "created_at")
    filters = (
        Option("--index", "Of this element of the array", int),
        Option("--attempt", "Of the attempt with this number", int),
        Option("--rank", "Of this task of the gang", int),
    )
    example = "openstack gpu job artifacts resnet-sweep"


class DownloadArtifacts(NounCommand):
    """Download a job's artifacts into a directory.

    Those of an array go below a directory a number. A file appears whole or not at all.
    """

    noun = "job"
    example = "openstack gpu job download resnet-sweep --dest results"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Which, and where to."""
        parser = super().get_parser(prog_name)
        self.add_target(parser)
        parser.add_argument(
            "--path",
            action="append",
            default=[],
            metavar="<path>",
            help="Only this one, or those below it, as gpu job artifacts names "
            "them; repeat for more",
        )
        parser.add_argument("--index", type=int, metavar="<n>", help="Of this element of the array")
        parser.add_argument(
            "--dest", default=".", metavar="<directory>", help="Where to (the current directory)"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Download each, telling its path."""
        job = self.one(parsed_args.target)
        query = {} if parsed_args.index is None else {"index": parsed_args.index}
        found = [
            one
            for one in self.gpu.job_artifacts(job, **query)
            if _wanted(one.path, parsed_args.path)
        ]
        if not found:
            raise exceptions.CommandError(
                "The job has no such artifacts (they appear when an attempt has ended)."
            )
        root = Path(parsed_args.dest)
        root.mkdir(parents=True, exist_ok=True)
        for artifact in found:
            inner = f"{artifact.index}/{artifact.path}" if job.array else artifact.path
            target = below(root, inner)
            self._fetch(job, artifact, target)
            self.app.stdout.write(f"{target}\n")

    def _fetch(self, job: Any, artifact: Artifact, target: Path) -> None:
        """Write it beside its place, check it, then put it there."""
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".download-", dir=target.parent)
        digest = hashlib.sha256()
        try:
            with (
                os.fdopen(handle, "wb") as file,
                self.gpu.open_job_artifact(
                    job, artifact.path, artifact.index if job.array else None
                ) as response,
            ):
                for chunk in response.iter_content(_CHUNK):
                    digest.update(chunk)
                    file.write(chunk)
            if artifact.sha256 and digest.hexdigest() != artifact.sha256:
                raise exceptions.CommandError(f"{artifact.path} did not arrive whole; try again.")
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _wanted(path: str, asked: Sequence[str]) -> bool:
    return not asked or any(path == one or path.startswith(one.rstrip("/") + "/") for one in asked)


def below(root: Path, path: str) -> Path:
    """The place of a path that the service named, surely below a directory.

    :raises osc_lib.exceptions.CommandError: for a path that leads elsewhere, by itself or by a
        link that lies there.
    """
    parts = path.split("/")
    wrong = (
        any(part in ("", ".", "..") for part in parts)
        or "\\" in path
        or any(ord(one) < 32 or ord(one) == 127 for one in path)
        or Path(path).is_absolute()
    )
    target = root.joinpath(*parts)
    if wrong or not target.parent.resolve().is_relative_to(root.resolve()):
        raise exceptions.CommandError(
            f"The service named the artifact {path!r}, which leads out of {str(root)!r}; "
            "nothing was written there."
        )
    return target

# SPDX-License-Identifier: Apache-2.0
"""What an ended (or long-running) task leaves for others: outputs and checkpoints, uploaded."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from gpuservice.agent.client import AgentClient
from gpuservice.agent.errors import ApiAway, Refused
from gpuservice.agent.hand import TaskInHand
from gpuservice.agent.preparing import NoLongerWanted, patiently
from gpuservice.agent.runner import Runner

LOG = logging.getLogger(__name__)
_CHUNK = 1 << 20
#: Statuses that say "too much", not "something is broken".
_TOO_MUCH = (403, 413)


class CheckpointTooLarge(Exception):
    """A checkpoint, or one file of it, is larger than what is kept."""


class Handover:
    """Uploads of one task. ``wanted`` says whether they still have a purpose.

    ``checkpoint_bytes`` bounds a checkpoint as a whole; each of its files is bounded as artifacts
    are.
    """

    def __init__(
        self,
        hand: TaskInHand,
        runner: Runner,
        client: AgentClient,
        wanted: Callable[[], bool],
        patience_s: float,
        max_files: int,
        checkpoint_bytes: int,
    ) -> None:
        self._hand, self._runner, self._client = hand, runner, client
        self._wanted, self._patience_s, self._max_files = wanted, patience_s, max_files
        self._checkpoint_bytes = checkpoint_bytes
        self._task_id = hand.order.task_id

    def outputs(self) -> None:
        """Deliver every output; what could not be is noted in the task's stderr.

        An output that was refused, or given up, is a failure of the task.
        """
        count = 0
        with self._runner.helper(self._task_id, "outputs") as messages:
            for message in messages:
                content, file = message.content, message.file
                if not self._wanted():
                    raise NoLongerWanted
                if "skipped" in content:
                    self._hand.logs.note(f"output {content['skipped']!r}: {content['why']}")
                elif "lost" in content:
                    self._give_up(content["lost"], content["class"], content["why"])
                elif "failure" in content:
                    self._give_up(
                        "outputs", content["failure"]["class"], content["failure"]["evidence"]
                    )
                elif file is not None:
                    count += 1
                    if count > self._max_files:
                        self._give_up("outputs", "quota", f"more than {self._max_files} files")
                        return
                    self._upload(str(content["file"]), file)

    def _upload(self, path: str, file: IO[bytes]) -> None:
        try:
            patiently(lambda: self._put("artifacts", path, file), self._patience_s, self._wanted)
        except Refused as error:
            kind = "quota" if error.status in _TOO_MUCH else "platform"
            self._give_up(path, kind, str(error))
        except ApiAway as error:
            self._give_up(path, "platform", str(error))

    def _put(self, where: str, path: str, file: IO[bytes]) -> None:
        file.seek(0)
        self._client.put_file(self._task_id, where, path, file)

    def _give_up(self, what: str, kind: str, evidence: str) -> None:
        self._hand.logs.note(f"output {what!r} was not kept: {evidence}")
        self._hand.fail(kind, f"output {what!r} was not kept: {evidence}")

    def checkpoint(self) -> bool:
        """Upload the checkpoint as it is now; false if it was changing, or there is none.

        Files are copied first, so that the task may go on; one that changed under the copy spoils
        the set, and nothing half is ever completed.

        :raises CheckpointTooLarge: before any byte of what is too large is copied.
        """
        with self._hand.checkpoint_lock:
            seq = max(self._hand.checkpoint_seq + 1, int(time.time()))
            files: list[dict[str, Any]] = []
            with self._runner.helper(self._task_id, "checkpoint") as messages:
                for message in messages:
                    if not self._wanted():
                        raise NoLongerWanted
                    if {"failure", "skipped", "lost"} & message.content.keys():
                        LOG.warning("task %s: checkpoint: %s", self._task_id, message.content)
                    elif message.file is not None:
                        self._bound(files, str(message.content["file"]), message.file)
                        entry = self._keep(seq, str(message.content["file"]), message.file)
                        if entry is None:
                            return False
                        files.append(entry)
            if not files:
                return False
            patiently(
                lambda: self._client.complete_checkpoint(self._task_id, seq, files),
                self._patience_s,
                self._wanted,
            )
            self._hand.checkpoint_seq = seq
            return True

    def _bound(self, kept: Sequence[Mapping[str, Any]], path: str, file: IO[bytes]) -> None:
        """Refuse what is too much: a task may say any size of a file without having written it."""
        spec, size = self._hand.order.spec, os.fstat(file.fileno()).st_size
        if spec is not None and size > spec.artifact_max_bytes:
            raise CheckpointTooLarge(
                f"{path!r} has {size} bytes, more than {spec.artifact_max_bytes}"
            )
        if size + sum(one["size"] for one in kept) > self._checkpoint_bytes:
            raise CheckpointTooLarge(f"it has more than {self._checkpoint_bytes} bytes")
        if len(kept) >= self._max_files:
            raise CheckpointTooLarge(f"it has more than {self._max_files} files")

    def _keep(self, seq: int, path: str, file: IO[bytes]) -> dict[str, Any] | None:
        with tempfile.TemporaryFile(dir=self._runner.log_directory(self._task_id)) as copy:
            before, digest, size = os.fstat(file.fileno()), hashlib.sha256(), 0
            while size <= before.st_size and (piece := file.read(_CHUNK)):
                if not self._wanted():
                    raise NoLongerWanted
                digest.update(piece)
                copy.write(piece)
                size += len(piece)
            after = os.fstat(file.fileno())
            if size != before.st_size or (before.st_mtime_ns, before.st_size) != (
                after.st_mtime_ns,
                after.st_size,
            ):
                return None
            patiently(
                lambda: self._put(f"checkpoints/{seq}", path, copy), self._patience_s, self._wanted
            )
        return {"path": path, "size": size, "sha256": digest.hexdigest()}

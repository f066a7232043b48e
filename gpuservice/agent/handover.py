# SPDX-License-Identifier: Apache-2.0
"""What an ended (or long-running) task leaves for others: outputs and checkpoints, uploaded."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from gpuservice.agent.client import AgentClient, checkpoint_body
from gpuservice.agent.errors import ApiAway, Refused
from gpuservice.agent.hand import TaskInHand
from gpuservice.agent.preparing import NoLongerWanted, patiently
from gpuservice.agent.runner import DataMessage, Runner
from gpuservice.domain.kept import MAX_CHECKPOINT_FILES, MAX_CHECKPOINT_LIST

LOG = logging.getLogger(__name__)
_CHUNK = 1 << 20
#: Statuses that say "too much", not "something is broken".
_TOO_MUCH = (403, 413)
#: The status of a name that the service keeps nothing under, though it seemed fit here.
_UNFIT = 400
#: So many of the files that a checkpoint goes without are named.
_NAMED = 100
#: Characters shown of a path.
_SHOWN = 300


class CheckpointNotKept(Exception):
    """A checkpoint is larger than what is kept (``too_large``), or could not be read."""

    def __init__(self, evidence: str, reason: str = "too_large") -> None:
        super().__init__(evidence)
        self.reason = reason


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
            self._give_up(path, "data" if error.status == _UNFIT else kind, str(error))
        except (ApiAway, OSError) as error:
            self._give_up(path, "platform", str(error))
        except ValueError as error:  # no name that can be sent
            self._give_up(path, "data", str(error))

    def _put(self, where: str, path: str, file: IO[bytes]) -> None:
        file.seek(0)
        self._client.put_file(self._task_id, where, path, file)

    def _give_up(self, what: str, kind: str, evidence: str) -> None:
        text = f"output {what[:_SHOWN]!r} was not kept: {evidence}"
        self._hand.logs.note(text)
        self._hand.fail(kind, text)

    def checkpoint(self) -> bool:
        """Upload the checkpoint as it is now; false if it was changing, or there is none.

        The files of a running task are copied first, so that it may go on; one that changed since
        they were listed spoils the set, and nothing half is ever completed.

        :raises CheckpointNotKept: before any byte of it is copied, if it is too large.
        """
        with self._hand.checkpoint_lock:
            seq = max(self._hand.checkpoint_seq + 1, int(time.time()))
            with self._runner.helper(self._task_id, "checkpoint") as messages:
                files = self._keep_all(seq, messages, self._listed(seq, messages))
            if not files:
                return False
            patiently(
                lambda: self._client.complete_checkpoint(self._task_id, seq, files),
                self._patience_s,
                self._wanted,
            )
            self._hand.checkpoint_seq = seq
            return True

    def _listed(self, seq: int, messages: Iterator[DataMessage]) -> dict[str, int]:
        """Sizes of the files of a checkpoint that is not too large: a task may say any size of a
        file without having written it."""
        spec, sizes = self._hand.order.spec, dict[str, int]()
        most = self._checkpoint_bytes
        if spec is not None and spec.checkpoint_max_bytes is not None:
            most = min(most, spec.checkpoint_max_bytes)
        total, lost = 0, 0
        for message in messages:
            content = self._heard(message)
            if "all_listed" in content:
                break
            if "lost" in content:
                lost += 1
                self._leave_out(lost, content)
            elif "listed" in content:
                path, size = str(content["listed"]), int(content["size"])
                sizes[path], total = size, total + size
                if spec is not None and size > spec.artifact_max_bytes:
                    raise CheckpointNotKept(
                        f"{path!r} has {size} bytes, more than {spec.artifact_max_bytes}"
                    )
                if total > most:
                    raise CheckpointNotKept(f"it has more than {most} bytes")
                if len(sizes) > min(self._max_files, MAX_CHECKPOINT_FILES):
                    raise CheckpointNotKept(f"it has more than {len(sizes) - 1} files")
        listed = [{"path": one, "size": sizes[one], "sha256": "0" * 64} for one in sizes]
        if len(checkpoint_body(seq, listed)) > MAX_CHECKPOINT_LIST:
            raise CheckpointNotKept(f"the names of its {len(sizes)} files are too long together")
        return sizes

    def _keep_all(
        self, seq: int, messages: Iterator[DataMessage], sizes: dict[str, int]
    ) -> list[dict[str, Any]]:
        """Upload what was listed; nothing is complete unless all of it came as listed."""
        files: list[dict[str, Any]] = []
        lost = 0
        for message in messages if sizes else ():
            content, path = self._heard(message), str(message.content.get("file"))
            try:
                if "lost" in content:
                    sizes.pop(str(content["lost"]), None)
                    lost += 1
                    self._leave_out(lost, content)
                elif message.file is not None:
                    if sizes.pop(path, None) != os.fstat(message.file.fileno()).st_size:
                        return []
                    entry = self._keep(seq, path, message.file)
                    if entry is None:
                        return []
                    files.append(entry)
            except Refused as error:
                if error.status != _UNFIT:
                    raise
                lost += 1
                self._leave_out(lost, {"lost": path, "why": str(error)})
        return [] if sizes else files

    def _heard(self, message: DataMessage) -> Mapping[str, Any]:
        """What the helper says of a checkpoint.

        :raises CheckpointNotKept: it could not go on. :raises NoLongerWanted: nor should it.
        """
        if not self._wanted():
            raise NoLongerWanted
        failure = message.content.get("failure")
        if failure is not None:
            raise CheckpointNotKept(str(failure["evidence"]), "unreadable")
        return message.content

    def _leave_out(self, count: int, content: Mapping[str, Any]) -> None:
        """Say at the task's end (its stderr is its own before) what a checkpoint goes without."""
        if count <= _NAMED and self._hand.result is not None:
            self._hand.logs.note(
                f"the last checkpoint was kept without {content['lost']!r}: {content['why']}"
            )
        elif count == 1:
            self._hand.checkpoint_fault(
                "file_left_out",
                f"kept without {content['lost'][:_SHOWN]!r}: {content['why']}",
            )

    def _keep(self, seq: int, path: str, file: IO[bytes]) -> dict[str, Any] | None:
        """Upload one file as it is now, null if it was changing.

        Of a task that ended nothing changes any more: that needs no copy, so no room either.
        """
        if self._hand.result is not None:
            digest, size = hashlib.sha256(), 0
            while piece := file.read(_CHUNK):
                if not self._wanted():
                    raise NoLongerWanted
                digest.update(piece)
                size += len(piece)
            self._put_of_set(seq, path, file)
            return {"path": path, "size": size, "sha256": digest.hexdigest()}
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
            self._put_of_set(seq, path, copy)
        return {"path": path, "size": size, "sha256": digest.hexdigest()}

    def _put_of_set(self, seq: int, path: str, file: IO[bytes]) -> None:
        patiently(
            lambda: self._put(f"checkpoints/{seq}", path, file), self._patience_s, self._wanted
        )

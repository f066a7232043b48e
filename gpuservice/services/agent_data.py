# SPDX-License-Identifier: Apache-2.0
"""What nodes hand over of their tasks, and fetch for them: logs, artifacts, checkpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, BinaryIO

from gpuservice.domain.context import Cause
from gpuservice.domain.errors import (
    Conflict,
    GpuServiceError,
    Invalid,
    NotFound,
    QuotaExceeded,
    TooLarge,
)
from gpuservice.domain.happenings import happening
from gpuservice.domain.kept import (
    MAX_CHECKPOINT_FILES,
    check_kept_path,
    checkpoints_of,
    drop_unfinished,
    place_of,
)
from gpuservice.domain.ports import Hint, Ids, StoredObject
from gpuservice.domain.ports_store import Page, UnitOfWork, Where
from gpuservice.domain.states import TaskStatus
from gpuservice.domain.work import Artifact, CheckpointSet, Event, Task
from gpuservice.services.agent_nodes import AgentNodes
from gpuservice.services.deps import Deps
from gpuservice.services.job_logs import log_key


class AgentData:
    """Data of a node's own tasks; the tasks of others do not exist for it."""

    def __init__(self, deps: Deps, nodes: AgentNodes) -> None:
        self._deps = deps
        self._nodes = nodes

    def logs(
        self,
        secret: str | None,
        epoch: int | None,
        task_id: str,
        stream: str,
        offset: int,
        data: bytes,
    ) -> tuple[int, bool]:
        """Append to a log; (next offset wanted, cap reached)."""
        task = self._task(secret, epoch, task_id)
        key = log_key(task.job_id, task.attempt_id, task.id, stream)
        outcome = self._deps.logs.append(key, offset, data, self._deps.conf.logs.max_bytes)
        self._deps.hints.send(Hint("logs", (task.job_id,)))
        return outcome

    def put_artifact(
        self, secret: str | None, epoch: int | None, task_id: str, path: str, stream: BinaryIO
    ) -> StoredObject:
        """Keep a result file; a second one of the same path replaces the first."""
        check_kept_path(path, "/path")
        conf = self._deps.conf.artifacts

        def room(uow: UnitOfWork, hold: bool = False) -> tuple[Task, Artifact | None]:
            task = self._live(uow, secret, epoch, task_id, hold=hold)
            known = uow.artifacts.find(Where("task_id", "eq", task_id), Where("path", "eq", path))
            if (
                not known
                and uow.artifacts.count(Where("task_id", "eq", task_id)) >= conf.max_per_task
            ):
                raise QuotaExceeded(
                    f"The task has {conf.max_per_task} artifacts; no more are kept.",
                    meta={"limit": "artifacts", "value": conf.max_per_task},
                )
            return task, known[0] if known else None

        task, _ = self._deps.store.read(room)  # before the bytes come, and again after
        key = f"{place_of(task)}/artifacts/{object_name(path)}"
        stored = self._deps.objects.put(key, stream, conf.max_bytes)

        def work(uow: UnitOfWork) -> None:
            task, known = room(uow, hold=True)
            if known is not None:
                uow.artifacts.change(known.id, {"size": stored.size, "sha256": stored.sha256})
                return
            uow.artifacts.add(
                Artifact(
                    id=self._deps.ids.new(),
                    job_id=task.job_id,
                    attempt_id=task.attempt_id,
                    task_id=task.id,
                    index=task.index,
                    attempt=task.attempt,
                    rank=task.rank,
                    project_id=task.project_id,
                    path=path,
                    size=stored.size,
                    sha256=stored.sha256,
                    object_key=key,
                    created_at=uow.now(),
                )
            )

        self._deps.store.write(work)
        return stored

    def put_checkpoint(
        self,
        secret: str | None,
        epoch: int | None,
        task_id: str,
        seq: int,
        path: str,
        stream: BinaryIO,
    ) -> StoredObject:
        """Keep one file of a checkpoint that is not complete yet; with the first file of one, what
        was put of others that never were completed goes.

        :raises TooLarge, QuotaExceeded: when the set would be larger than is kept.
        """
        check_kept_path(path, "/path")

        def look(uow: UnitOfWork) -> Task:
            task = self._live(uow, secret, epoch, task_id)
            if _is_complete(uow, task, seq):
                raise Conflict(f"Checkpoint {seq} is complete: nothing is added to it.")
            return task

        task = self._deps.store.read(look)
        if str(seq) not in self._deps.objects.names(checkpoints_of(task)):
            self._drop_unfinished(task)
        prefix, name = f"{checkpoints_of(task)}/{seq}", object_name(path)
        stored = self._put_bounded(prefix, name, stream)
        try:
            self._task(secret, epoch, task_id)
        except GpuServiceError:  # it ended meanwhile, and this was not seen when it did
            self._deps.objects.delete(f"{prefix}/{name}")
            raise
        return stored

    def _put_bounded(self, prefix: str, name: str, stream: BinaryIO) -> StoredObject:
        conf = self._deps.conf.artifacts
        others = {**self._deps.objects.sizes(prefix)}
        others.pop(name, None)
        if len(others) >= MAX_CHECKPOINT_FILES:
            raise QuotaExceeded(
                f"The checkpoint has {MAX_CHECKPOINT_FILES} files; no more are kept.",
                meta={"limit": "checkpoint_files", "value": MAX_CHECKPOINT_FILES},
            )
        room = max(conf.checkpoint_max_bytes - sum(others.values()), 0)
        try:
            return self._deps.objects.put(f"{prefix}/{name}", stream, min(conf.max_bytes, room))
        except TooLarge as error:
            if room >= conf.max_bytes:
                raise
            raise TooLarge(
                f"The checkpoint is larger than {conf.checkpoint_max_bytes} bytes.",
                meta={"max_bytes": conf.checkpoint_max_bytes},
            ) from error

    def _drop_unfinished(self, task: Task) -> None:
        """Delete what was put of checkpoints that nobody completed."""

        def work(uow: UnitOfWork) -> None:
            # The lock keeps them from being completed at this moment.
            uow.tasks.find(Where("id", "eq", task.id), lock=True)
            sets = uow.checkpoints.find(*_sets_of(task), Where("attempt", "eq", task.attempt))
            drop_unfinished(
                self._deps.objects, checkpoints_of(task), {one.object_prefix for one in sets}
            )

        if self._deps.objects.names(checkpoints_of(task)):
            self._deps.store.write(work)

    def complete_checkpoint(
        self,
        secret: str | None,
        epoch: int | None,
        task_id: str,
        seq: int,
        files: Sequence[Mapping[str, Any]],
    ) -> None:
        """From now on the set may be restored; older sets of the same task go, and unfinished ones.

        :raises Invalid: when a file of it was not put, or is not as long as said.
        """
        for index, one in enumerate(files):
            check_kept_path(one["path"], f"/files/{index}/path")

        def work(uow: UnitOfWork) -> tuple[Task, list[str]]:
            task = self._live(uow, secret, epoch, task_id, hold=True)
            prefix, where = f"{checkpoints_of(task)}/{seq}", _sets_of(task)
            if _is_complete(uow, task, seq):
                return task, []
            self._check_complete(prefix, files)
            older = uow.checkpoints.find(*where, order=(("created_at", "desc"),))
            for one in older[1:]:
                uow.checkpoints.remove(one.id)
            uow.checkpoints.add(
                CheckpointSet(
                    id=self._deps.ids.new(),
                    job_id=task.job_id,
                    index=task.index,
                    attempt=task.attempt,
                    rank=task.rank,
                    seq=seq,
                    project_id=task.project_id,
                    files=tuple(dict(one) for one in files),
                    object_prefix=prefix,
                    created_at=uow.now(),
                )
            )
            return task, [one.object_prefix for one in older[1:]]

        task, gone = self._deps.store.write(work)
        for prefix in gone:
            self._deps.objects.delete(prefix)
        self._drop_unfinished(task)

    def _check_complete(self, prefix: str, files: Sequence[Mapping[str, Any]]) -> None:
        sizes = self._deps.objects.sizes(prefix)
        for index, one in enumerate(files):
            size = sizes.get(object_name(one["path"]))
            if size is None:
                raise Invalid(
                    f"The file {one['path'][:200]!r} of the checkpoint is missing.",
                    pointer=f"/files/{index}/path",
                )
            if size != one["size"]:
                raise Invalid(
                    f"The file {one['path'][:200]!r} has {size} bytes, not {one['size']}.",
                    pointer=f"/files/{index}/size",
                )

    def checkpoint(self, secret: str | None, epoch: int | None, task_id: str) -> CheckpointSet:
        """The newest complete set of an earlier attempt for this rank; raises ``NotFound``."""

        def work(uow: UnitOfWork) -> CheckpointSet:
            task = self._live(uow, secret, epoch, task_id)
            job = uow.jobs.get(task.job_id)
            rule = (job.spec.get("checkpoint") or {}) if job is not None else {}
            rank = 0 if rule.get("ranks", "first") == "first" else task.rank
            sets = uow.checkpoints.find(
                Where("job_id", "eq", task.job_id),
                Where("index", "eq", task.index),
                Where("rank", "eq", rank),
                Where("attempt", "lt", task.attempt),
                order=(("attempt", "desc"), ("seq", "desc")),
                limit=1,
            )
            if not sets:
                raise NotFound.of("checkpoint of task", task_id)
            return sets[0]

        return self._deps.store.read(work)

    def checkpoint_file(
        self, secret: str | None, epoch: int | None, task_id: str, path: str
    ) -> BinaryIO:
        """One file of the set that :meth:`checkpoint` names."""
        found = self.checkpoint(secret, epoch, task_id)
        if all(one["path"] != path for one in found.files):
            raise NotFound.of("checkpoint file", path[:200])
        return self._deps.objects.open(f"{found.object_prefix}/{object_name(path)}")

    def _task(self, secret: str | None, epoch: int | None, task_id: str) -> Task:
        return self._deps.store.read(lambda uow: self._live(uow, secret, epoch, task_id))

    def _live(
        self,
        uow: UnitOfWork,
        secret: str | None,
        epoch: int | None,
        task_id: str,
        *,
        hold: bool = False,
    ) -> Task:
        """The task, if it is this node's, of its present epoch, and not gone.

        :param hold: it may not go until the unit of work ends: what is added to it is seen by
            whoever ends its attempt.
        """
        node = self._nodes.recognise(uow, secret, epoch)
        rows = uow.tasks.find(Where("id", "eq", task_id), lock="share" if hold else False)
        task = rows[0] if rows else None
        if task is None or task.node_id != node.id or task.node_epoch != node.epoch:
            raise NotFound.of("task", task_id)
        if task.status == TaskStatus.GONE:
            raise Conflict("The task is gone: nothing more is taken of it.")
        return task


def _sets_of(task: Task) -> tuple[Where, ...]:
    """Complete sets of the task's rank, of each attempt."""
    return (
        Where("job_id", "eq", task.job_id),
        Where("index", "eq", task.index),
        Where("rank", "eq", task.rank),
    )


def _is_complete(uow: UnitOfWork, task: Task, seq: int) -> bool:
    return bool(
        uow.checkpoints.count(
            *_sets_of(task), Where("attempt", "eq", task.attempt), Where("seq", "eq", seq)
        )
    )


def object_name(path: str) -> str:
    """The name of a file in the object store: of one length, whatever its path is, so that no
    store meets a name that is too long, or a file where another path has a folder."""
    return hashlib.sha256(path.encode()).hexdigest()


_FAULT = "job.checkpoint_fault"
#: Of so many ranks at most a job's owner is told the same reason.
_RANKS_TOLD = 100


def checkpoint_faults(
    ids: Ids, uow: UnitOfWork, faults: Iterable[tuple[Task, Mapping[str, Any]]]
) -> list[Event]:
    """The events for jobs' owners that running tasks' checkpoints were not kept, or not whole;
    one for each rank and reason, however often a node says so."""
    made: dict[tuple[Any, ...], Event] = {}
    for task, fault in faults:
        rank = (task.index, task.attempt, task.rank)
        known = uow.events.page(
            Page(
                where=(
                    Where("target_id", "eq", task.job_id),
                    Where("action", "eq", _FAULT),
                    Where("reason", "eq", fault["reason"]),
                ),
                sort=(("seq", "desc"),),
                limit=_RANKS_TOLD,
            )
        )
        if len(known) < _RANKS_TOLD and rank not in {
            tuple(one.detail.get(name) for name in _RANK) for one in known
        }:
            key = (task.job_id, *rank, fault["reason"])
            made[key] = _fault_event(ids, uow.now(), task, fault)
    return list(made.values())


_RANK = ("index", "attempt", "rank")


def _fault_event(ids: Ids, at: datetime, task: Task, fault: Mapping[str, Any]) -> Event:
    return happening(
        ids,
        at,
        Cause(actor="node"),
        _FAULT,
        "job",
        task.job_id,
        project_id=task.project_id,
        outcome="failure",
        reason=fault["reason"],
        detail={
            "index": task.index,
            "attempt": task.attempt,
            "rank": task.rank,
            "message": fault.get("evidence", ""),
        },
    )


def epoch_of(text: str | None) -> int | None:
    """The epoch header; raises ``Invalid``."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 18):
        raise Invalid("OpenStack-GPU-Node-Epoch must be a whole number.")
    return int(text)

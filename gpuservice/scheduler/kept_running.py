# SPDX-License-Identifier: Apache-2.0
"""Live attempts kept between passes: only those that changed are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gpuservice.domain.jobspec import JobSpec
from gpuservice.domain.ports_scheduling import LiveGang, Marks
from gpuservice.domain.ports_store import UnitOfWork
from gpuservice.planner import snapshot as plan_input
from gpuservice.planner.requests import request_of
from gpuservice.scheduler.gang_rows import Gang
from gpuservice.scheduler.running_state import held_milli, running_gang, running_gangs


class KeptRunning:
    """The attempts, and the planner's view of them: the same objects while nothing changed."""

    def __init__(self, protected_s: float) -> None:
        self._protected_s = protected_s
        self._marks: dict[str, tuple[int, int, int]] = {}
        self._wants: dict[str, tuple[plan_input.Request, int]] = {}
        self._states: dict[str, plan_input.RunningGang] = {}
        #: By attempt, those too that hold nothing any more.
        self.gangs: dict[str, LiveGang] = {}
        #: Milli-GPUs by attempt.
        self.held: dict[str, int] = {}
        self.states: tuple[plan_input.RunningGang, ...] = ()

    def forget(self) -> None:
        """Read everything anew."""
        self._marks = {}
        self.gangs, self.held, self._states, self.states = {}, {}, {}, ()

    def follow(self, uow: UnitOfWork, marks: Marks, specs: Mapping[str, JobSpec]) -> None:
        """The state of the moment of these marks, which were read in the same transaction.

        :param specs: of jobs, as far as they are known.
        """
        if marks.gangs == self._marks:
            return
        changed = [ident for ident, mark in marks.gangs.items() if self._marks.get(ident) != mark]
        for kept in (self.gangs, self.held, self._states):
            for ident in kept.keys() - marks.gangs.keys():
                del kept[ident]
        # What tasks hold changes only when one of them is gone.
        same = [
            ident
            for ident in changed
            if ident in self._states
            and ident in self._marks
            and self._marks[ident][2] == marks.gangs[ident][2]
        ]
        if same:
            self._follow_gangs(uow.scheduling.live_gangs(same))
        other = [ident for ident in changed if ident not in set(same)]
        if other:
            self._read(uow, other, specs)
        self._list_states()
        self._marks = dict(marks.gangs)

    def began(self, gangs: Sequence[Gang], specs: Mapping[str, JobSpec]) -> None:
        """A transaction of this process started these: they need not be read. What others changed
        meanwhile has another mark."""
        for gang in gangs:
            job, attempt = gang.job, gang.attempt
            if job.is_array or job.id not in specs:
                continue  # their elements are read
            live = LiveGang(
                attempt.id, job.id, attempt.project_id, attempt.queue_id, job.user_id,
                attempt.status, job.priority, job.preemptible, job.max_runtime_s,
                attempt.created_at, attempt.started_at, attempt.promised_end_at,
                attempt.stop_requested_at, attempt.preempted_for, job.preempted_count,
            )  # fmt: skip
            shares: dict[str, list[tuple[str, int]]] = {}
            for one in gang.allocations:
                shares.setdefault(one.task_id, []).append((one.device_id, one.milli))
            places = tuple(
                plan_input.TaskPlacement(
                    task.rank, task.node_id, tuple(sorted(shares.get(task.id, ()))),
                    task.vcpus, task.memory_mib,
                )
                for task in sorted(gang.tasks, key=lambda task: task.rank)
            )  # fmt: skip
            self._wants[job.id] = _wanted(specs[job.id])
            self.gangs[attempt.id] = live
            self.held[attempt.id] = sum(one.milli for one in gang.allocations)
            self._states[attempt.id] = running_gang(
                live, places, self._wants[job.id], self._protected_s
            )
            # The start is the one change of the row since it was locked.
            self._marks[attempt.id] = (attempt.version, job.version + 1, len(places))
        self._list_states()

    def _list_states(self) -> None:
        self.states = tuple(self._states[ident] for ident in sorted(self._states))

    def _follow_gangs(self, gangs: Sequence[LiveGang]) -> None:
        """Attempts that hold what they held."""
        for gang in gangs:
            ident = gang.attempt_id
            self.gangs[ident] = gang
            held = self._states[ident].tasks
            self._states[ident] = running_gang(
                gang, held, self._wants.get(gang.job_id), self._protected_s
            )

    def _read(
        self, uow: UnitOfWork, changed: Collection[str], specs: Mapping[str, JobSpec]
    ) -> None:
        # More than half: all in one go.
        some = None if 2 * len(changed) > len(self.gangs) else sorted(changed)
        gangs, tasks = uow.scheduling.live_gangs(some), uow.scheduling.live_tasks(some)
        self.gangs.update((gang.attempt_id, gang) for gang in gangs)
        jobs = {gang.job_id for gang in self.gangs.values()}
        self._wants = {ident: self._wants[ident] for ident in jobs & self._wants.keys()}
        for ident in (jobs & specs.keys()) - self._wants.keys():
            self._wants[ident] = _wanted(specs[ident])
        missing = sorted(jobs - self._wants.keys())
        for ident, spec in uow.scheduling.specs(missing).items():
            self._wants[ident] = _wanted(JobSpec.from_dict(spec))
        held = held_milli(tasks)
        states = {
            one.gang_id: one for one in running_gangs(gangs, tasks, self._wants, self._protected_s)
        }
        for gang in gangs:
            ident = gang.attempt_id
            if some is None and ident in self._states and self._states[ident] == states.get(ident):
                continue  # read along with others
            self.held[ident] = held.get(ident, 0)
            self._states.pop(ident, None)
            if ident in states:
                self._states[ident] = states[ident]


def _wanted(spec: JobSpec) -> tuple[plan_input.Request, int]:
    return request_of(spec), spec.grace_period_s

# SPDX-License-Identifier: Apache-2.0
"""The laws of scheduling that hold for any single plan, checked without the planner's own code."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from planner_worlds import after, given_by, policies, snapshots

from gpuservice.planner.plan import plan
from gpuservice.planner.plan_types import Start
from gpuservice.planner.snapshot import (
    NodeState,
    PendingJob,
    Policy,
    Request,
    Snapshot,
    TaskPlacement,
)


def _job_of(snapshot: Snapshot) -> dict[str, PendingJob]:
    return {job.job_id: job for job in snapshot.pending}


def _holdings(snapshot: Snapshot, starts: tuple[Start, ...]) -> list[tuple[str, TaskPlacement]]:
    """(project, task) of everything that runs once the plan was committed."""
    project_of = {job.job_id: job.project_id for job in snapshot.pending}
    held = [(gang.project_id, task) for gang in snapshot.running for task in gang.tasks]
    held.extend((project_of[start.job_id], task) for start in starts for task in start.tasks)
    return held


@given(snapshots(), policies)
def test_l1_nothing_holds_more_than_it_has(snapshot: Snapshot, policy: Policy) -> None:
    held = _holdings(snapshot, plan(snapshot, policy).starts)
    devices: Counter[str] = Counter()
    cpus: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for _, task in held:
        cpus[task.node_id] += task.vcpus
        memory[task.node_id] += task.memory_mib
        for device, milli in task.devices:
            assert milli > 0
            devices[device] += milli
    assert all(milli <= 1000 for milli in devices.values())
    for node in snapshot.nodes:
        assert cpus[node.id] <= node.vcpus
        assert memory[node.id] <= node.memory_mib


@given(snapshots(), policies)
def test_l2_a_gang_is_placed_whole_and_no_element_twice(snapshot: Snapshot, policy: Policy) -> None:
    starts = plan(snapshot, policy).starts
    jobs = _job_of(snapshot)
    for start in starts:
        request = jobs[start.job_id].request
        assert request.min_count <= len(start.tasks) <= request.count
        assert [task.rank for task in start.tasks] == list(range(len(start.tasks)))
    for job_id, number in Counter(start.job_id for start in starts).items():
        assert number <= jobs[job_id].elements
        assert jobs[job_id].blocked is None


@given(snapshots(), policies)
def test_l3_every_hard_constraint_holds(snapshot: Snapshot, policy: Policy) -> None:
    jobs = _job_of(snapshot)
    nodes = {node.id: node for node in snapshot.nodes}
    queues = {queue.id: queue for queue in snapshot.queues}
    for start in plan(snapshot, policy).starts:
        job = jobs[start.job_id]
        queue = queues[job.queue_id]
        placed = [nodes[task.node_id] for task in start.tasks]
        assert queue.open
        assert all(node.ready and node.pool_id in queue.pool_ids for node in placed)
        assert len({node.pool_id for node in placed}) == 1
        for task, node in zip(start.tasks, placed, strict=True):
            _check_task(job.request, task, node)
        if job.request.required:
            _check_topology(str(job.request.within), start, placed)


def _check_task(request: Request, task: TaskPlacement, node: NodeState) -> None:
    assert (task.vcpus, task.memory_mib) == (request.vcpus, request.memory_mib)
    devices = {device.id: device for device in node.devices}
    for ident, milli in task.devices:
        device = devices[ident]
        assert device.healthy
        assert not request.gpu_types or device.gpu_type in request.gpu_types
        assert device.memory_mib >= request.min_gpu_memory_mib
        if request.gpu_memory_mib is not None:
            assert milli == -(-1000 * request.gpu_memory_mib // device.memory_mib)
    if request.gpu_memory_mib is not None:
        assert len(task.devices) == 1
    elif request.gpu_milli < 1000:
        assert [milli for _, milli in task.devices] == [request.gpu_milli] * (request.gpu_milli > 0)
    else:
        assert [milli for _, milli in task.devices] == [1000] * (request.gpu_milli // 1000)
    assert len({ident for ident, _ in task.devices}) == len(task.devices)


def _check_topology(level: str, start: Start, placed: list[NodeState]) -> None:
    if level in ("node", "link_group"):
        assert len({node.id for node in placed}) == 1
    elif len({node.id for node in placed}) > 1:  # one node is within one of everything
        places: set[Any] = {getattr(node, level) for node in placed}
        assert len(places) == 1
        assert None not in places
    if level == "link_group":
        group_of = {device.id: device.link_group for device in placed[0].devices}
        groups = {group_of[ident] for task in start.tasks for ident, _ in task.devices}
        assert len(groups) <= 1
        assert None not in groups


@given(snapshots(), policies)
def test_l4_no_quota_is_exceeded(snapshot: Snapshot, policy: Policy) -> None:
    jobs = _job_of(snapshot)
    taken: Counter[tuple[str, str]] = Counter()
    for start in plan(snapshot, policy).starts:
        taken.update(given_by(snapshot, start, jobs[start.job_id].project_id))
    for key, amount in taken.items():
        assert amount <= snapshot.headroom.get(key, amount)


@given(snapshots(), policies)
def test_l8_the_same_snapshot_gives_the_same_plan(snapshot: Snapshot, policy: Policy) -> None:
    assert plan(snapshot, policy) == plan(snapshot, policy)


@given(snapshots())
def test_l9_nothing_waits_that_fits_what_is_left(snapshot: Snapshot) -> None:
    made = plan(snapshot, Policy(promises=0))
    started = Counter(start.job_id for start in made.starts)
    ends: dict[int, float | None] = dict.fromkeys(range(len(made.starts)))
    left = after(snapshot, made.starts, ends)
    for job in snapshot.pending:
        if job.elements == started[job.job_id]:
            continue
        alone = replace(job, elements=job.elements - started[job.job_id])
        assert not plan(replace(left, pending=(alone,)), Policy(promises=0)).starts


@given(snapshots(), policies)
def test_l10_what_would_start_now_does(snapshot: Snapshot, policy: Policy) -> None:
    jobs = _job_of(snapshot)
    for entry in plan(snapshot, policy).waiting:
        for offered in entry.would_start_now_if:
            changed = _changed(jobs[entry.job_id], offered["change"])
            line = tuple(changed if job.job_id == entry.job_id else job for job in snapshot.pending)
            again = plan(replace(snapshot, pending=line), policy)
            before = sum(start.job_id == entry.job_id for start in plan(snapshot, policy).starts)
            now = sum(start.job_id == entry.job_id for start in again.starts)
            assert now > before, offered


def _changed(job: PendingJob, change: dict[str, Any]) -> PendingJob:
    """The job with a merge patch of the API applied."""
    request = job.request
    runtime = change.get("max_runtime_s", job.max_runtime_s)
    if "topology" in change:
        request = replace(request, required=change["topology"]["policy"] == "required")
    if "tasks" in change:
        request = replace(request, **change["tasks"])
    for name, value in change.get("resources", {}).items():
        if name == "gpus":
            request = replace(request, gpu_milli=1000 * value)
        elif name == "gpu_types":
            request = replace(request, gpu_types=tuple(value))
        else:
            request = replace(request, **{name: value or 0})
    return replace(job, request=request, max_runtime_s=runtime)


@given(snapshots(), policies)
def test_l11_equal_jobs_start_in_order_of_submission(snapshot: Snapshot, policy: Policy) -> None:
    started = Counter(start.job_id for start in plan(snapshot, policy).starts)
    blocked_earlier: set[object] = set()
    for job in sorted(snapshot.pending, key=lambda one: (one.queued_at, one.sequence)):
        if job.blocked is not None:
            continue
        key = (job.request, job.queue_id, job.project_id, job.priority, job.max_runtime_s)
        if key in blocked_earlier:
            assert not started[job.job_id]
        if started[job.job_id] < job.elements:
            blocked_earlier.add(key)


@given(snapshots(), policies)
def test_l13_projects_do_not_meet_where_they_must_not(snapshot: Snapshot, policy: Policy) -> None:
    on_node: dict[str, set[str]] = {}
    on_device: dict[str, set[str]] = {}
    for project, task in _holdings(snapshot, plan(snapshot, policy).starts):
        on_node.setdefault(task.node_id, set()).add(project)
        for device, _ in task.devices:
            on_device.setdefault(device, set()).add(project)
    assert all(len(projects) == 1 for projects in on_device.values())
    for node in snapshot.nodes:
        if node.isolation_node:
            assert len(on_node.get(node.id, ())) <= 1


@given(snapshots(), policies)
def test_every_job_left_waiting_is_explained_once(snapshot: Snapshot, policy: Policy) -> None:
    made = plan(snapshot, policy)
    started = Counter(start.job_id for start in made.starts)
    waiting = [entry.job_id for entry in made.waiting]
    assert len(waiting) == len(set(waiting))
    assert set(waiting) == {
        job.job_id for job in snapshot.pending if started[job.job_id] < job.elements
    }
    assert all(entry.reasons and entry.reasons[0].detail for entry in made.waiting)

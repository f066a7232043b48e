# SPDX-License-Identifier: Apache-2.0
"""What is in use by the counted rows themselves: what the ledger must equal, always."""

from __future__ import annotations

import json
from collections import Counter

from sqlalchemy import Connection, func, select

from gpuservice.db.tables import ATTEMPTS, JOBS, NODES, POOLS, TASKS
from gpuservice.domain.states import NODE_COUNTED, POOL_COUNTED, TaskStatus

Use = Counter[tuple[str, str]]


def counted_use(connection: Connection) -> dict[tuple[str, str], int]:
    """(project, name) -> amount, zeros left out."""
    use: Use = Counter()
    _pools(connection, use)
    _nodes(connection, use)
    _jobs(connection, use)
    _tasks(connection, use)
    return {key: amount for key, amount in use.items() if amount}


def _pools(connection: Connection, use: Use) -> None:
    query = (
        select(POOLS.c.project_id, func.count())
        .where(POOLS.c.status.in_(sorted(POOL_COUNTED)))
        .group_by(POOLS.c.project_id)
    )
    for project, count in connection.execute(query):
        use[project, "pools"] += count


def _nodes(connection: Connection, use: Use) -> None:
    node = NODES.c
    query = (
        select(node.project_id, node.gpu_type, func.count(), func.sum(node.gpu_count))
        .where(node.status.in_(sorted(NODE_COUNTED)))
        .group_by(node.project_id, node.gpu_type)
    )
    for project, gpu_type, count, gpus in connection.execute(query):
        use[project, "nodes"] += count
        use[project, "gpus"] += 1000 * int(gpus)
        use[project, f"gpus:{gpu_type}"] += 1000 * int(gpus)


def _jobs(connection: Connection, use: Use) -> None:
    waiting = (
        select(JOBS.c.project_id, func.sum(JOBS.c.waiting_elements))
        .where(JOBS.c.open == 1)
        .group_by(JOBS.c.project_id)
    )
    for project, count in connection.execute(waiting):
        use[project, "jobs:queued"] += int(count)
    running = (
        select(ATTEMPTS.c.project_id, func.count())
        .where(ATTEMPTS.c.live == 1)
        .group_by(ATTEMPTS.c.project_id)
    )
    for project, count in connection.execute(running):
        use[project, "jobs:running"] += count


def _tasks(connection: Connection, use: Use) -> None:
    task = TASKS.c
    query = (
        select(task.project_id, task.counted_gpus, func.count())
        .select_from(ATTEMPTS.join(TASKS, task.attempt_id == ATTEMPTS.c.id))
        .where(ATTEMPTS.c.live == 1, task.status != TaskStatus.GONE)
        .group_by(task.project_id, task.counted_gpus)
    )
    for project, counted, count in connection.execute(query):
        amounts = json.loads(counted) if isinstance(counted, str) else counted
        for name, amount in amounts.items():
            use[project, name] += amount * count

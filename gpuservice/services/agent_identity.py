# SPDX-License-Identifier: Apache-2.0
"""Which node an agent speaks for, and whether its epoch still counts."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from oslo_config import cfg

from gpuservice.domain.errors import InstanceConflict, NodeFenced, NotFound, Unauthenticated
from gpuservice.domain.inventory import Node
from gpuservice.domain.ports import UnitOfWork
from gpuservice.domain.states import NodeStatus
from gpuservice.domain.work import Task


def hashed(secret: str) -> str:
    """What is stored of a token or secret: its SHA-256, hex."""
    return hashlib.sha256(secret.encode()).hexdigest()


def node_of(uow: UnitOfWork, secret: str) -> Node:
    """The node whose agent has this bearer secret: one indexed read.

    :raises Unauthenticated: when there is none (any more).
    """
    node = uow.nodes.by_secret(hashed(secret))
    if node is None or node.status == NodeStatus.DELETED:
        raise Unauthenticated("The bearer secret is not that of a node.")
    return node


def check_epoch(node: Node, epoch: int) -> None:
    """Raise ``NodeFenced`` for a caller of another epoch than the node's."""
    if epoch != node.epoch:
        raise NodeFenced(f"The node's epoch is {node.epoch}, not {epoch}: its tasks were given up.",
                         meta={"epoch": node.epoch})


def lease_seconds(node: Node, conf: cfg.ConfigOpts) -> int:
    """For how long a node counts as spoken for after a renewal; also where no lease ends tasks."""
    seconds: int = conf.agent.lease_s if node.lease_s is None else node.lease_s
    return seconds


def check_instance(node: Node, instance: str, within_s: float, now: datetime) -> None:
    """Raise ``InstanceConflict`` while another process was heard of within ``within_s``."""
    if node.instance in (None, instance) or node.last_renewal_at is None:
        return
    if now - node.last_renewal_at < timedelta(seconds=within_s):
        raise InstanceConflict("Another process speaks for this node.")


def task_of(uow: UnitOfWork, node: Node, task_id: str) -> Task:
    """A task of this node and epoch.

    :raises NotFound: for any other task, the same whether it exists or not.
    """
    task = uow.tasks.get(task_id)
    if task is None or task.node_id != node.id or task.node_epoch != node.epoch:
        raise NotFound.of("task", task_id)
    return task

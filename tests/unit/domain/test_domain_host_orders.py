# SPDX-License-Identifier: Apache-2.0
"""What the status of a host means for the nodes on it."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import pytest

from gpuservice.domain.host_orders import HEARS, order_of
from gpuservice.domain.inventory import Host, Node
from gpuservice.domain.states import NODE

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)


def host(status: str = "enabled", deadline: datetime | None = None) -> Host:
    return Host(
        id="h", created_at=NOW, updated_at=NOW, name="h", status=status, drain_deadline_at=deadline
    )


def node(status: str = "ready", reason: str | None = None, tasks: int = 0) -> Node:
    return Node(
        id="n",
        created_at=NOW,
        updated_at=NOW,
        pool_id="p",
        project_id="x",
        name="n",
        flavor_id="f",
        status=status,
        status_reason=reason,
        status_changed_at=NOW,
        gpu_type="t",
        gpu_count=1,
        vcpus=1,
        memory_mib=1,
        live_tasks=tasks,
    )


@pytest.mark.parametrize(
    ("status", "before", "reason", "tasks", "event"),
    [
        ("enabled", "ready", None, 0, None),
        ("cordoned", "ready", None, 1, "cordon"),
        ("draining", "ready", None, 0, "drain"),
        ("maintenance", "ready", None, 1, "drain"),
        ("draining", "cordoned", None, 0, None),
        ("draining", "cordoned", "dust", 1, "drain"),
        ("cordoned", "draining", "host_draining", 1, "cordon"),
        ("cordoned", "draining", "dust", 1, None),
        ("enabled", "draining", "host_draining", 1, "uncordon"),
        ("enabled", "cordoned", "host_maintenance", 0, "uncordon"),
        ("enabled", "cordoned", "dust", 0, None),
    ],
)
def test_event(status, before, reason, tasks, event):
    order = order_of(host(status), node(before, reason, tasks))
    assert (order.event if order else None) == event


def test_a_person_s_reason_stays():
    assert order_of(host("draining"), node("ready")).values["status_reason"] == "host_draining"
    assert "status_reason" not in order_of(host("draining"), node("cordoned", "dust", 1)).values


def test_a_new_deadline_reaches_a_draining_node():
    order = order_of(host("draining", LATER), node("draining", "dust", 1))
    assert (order.event, order.values) == (None, {"drain_deadline_at": LATER})


def test_every_order_is_a_step_of_the_table_and_leads_to_rest():
    statuses = ("enabled", "cordoned", "draining", "maintenance")
    for status, before, reason, tasks in product(
        statuses, HEARS, (None, "dust", *(f"host_{one}" for one in statuses[1:])), (0, 1)
    ):
        row = node(before, reason, tasks)
        order = order_of(host(status, LATER), row)
        if order is None or order.event is None:
            continue
        after = NODE.after(row.status, order.event)
        again = node(after, order.values.get("status_reason", reason), tasks)
        following = order_of(host(status, LATER), again)
        assert following is None or following.event is None, (status, before, reason, tasks)

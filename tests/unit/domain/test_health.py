# SPDX-License-Identifier: Apache-2.0
"""Whose word on a device counts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuservice.domain.health import after_cloud, after_node, faults_told, speaks_for_host
from gpuservice.domain.inventory import Device, Pool

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def device(health: str, source: str | None = None, reason: str | None = None) -> Device:
    return Device(
        id="d",
        created_at=NOW,
        updated_at=NOW,
        host_id="h",
        address="0000:01:00.0",
        gpu_type="t",
        memory_mib=1,
        health=health,
        health_source=source,
        health_reason=reason,
    )


def pool(**values: Any) -> Pool:
    return Pool(
        id="p",
        created_at=NOW,
        updated_at=NOW,
        project_id="x",
        name="p",
        flavor_id="f",
        min_nodes=1,
        max_nodes=1,
        target_nodes=1,
        **values,
    )


@pytest.mark.parametrize(
    ("before", "healthy", "after"),
    [
        (device("unknown"), True, "healthy"),
        (device("lost", "cloud"), True, "healthy"),
        (device("unhealthy", "cloud"), True, "healthy"),
        (device("unhealthy", "node"), True, None),
        (device("healthy"), True, None),
        (device("healthy"), False, "unhealthy"),
        (device("unhealthy", "node"), False, "unhealthy"),
        (device("unhealthy", "cloud"), False, None),
        (device("quarantined", "operator"), True, None),
        (device("quarantined", "operator"), False, None),
    ],
)
def test_the_clouds_word(before: Device, healthy: bool, after: str | None) -> None:
    values = after_cloud(before, healthy, None if healthy else "broken")
    assert (values and values["health"]) == after
    if after == "unhealthy" and values is not None:
        assert (values["health_source"], values["health_reason"]) == ("cloud", "broken")


@pytest.mark.parametrize(
    ("before", "fault", "after"),
    [
        (device("healthy"), None, None),
        (device("healthy"), "hot", "unhealthy"),
        (device("unknown"), "hot", "unhealthy"),
        (device("unhealthy", "node", "hot"), "hot", None),
        (device("unhealthy", "node", "hot"), "gone", "unhealthy"),
        (device("unhealthy", "node", "hot"), None, "healthy"),
        (device("unhealthy", "cloud"), None, None),
        (device("unhealthy", "cloud"), "hot", None),
        (device("lost", "cloud"), "hot", None),
        (device("quarantined", "operator"), "hot", None),
        (device("quarantined", "operator"), None, None),
        (device("unknown"), None, None),
    ],
)
def test_a_nodes_word(before: Device, fault: str | None, after: str | None) -> None:
    values = after_node(before, fault)
    assert (values and values["health"]) == after


@pytest.mark.parametrize(
    ("values", "own_uid", "believed"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"key_name": "mine"}, True, False),
        ({"image": "mine"}, True, False),
    ],
)
def test_who_is_believed(values: dict[str, Any], own_uid: bool, believed: bool) -> None:
    assert speaks_for_host(pool(**values), {"own_uid": own_uid}) is believed


def test_what_is_told() -> None:
    told = [
        {"address": "00000000:0B:00.0", "healthy": False, "reason": "x" * 400},
        {"address": "0000:0a:00.0", "healthy": False},
        {"address": "0000:0c:00.0", "healthy": True, "reason": "fine"},
    ]
    assert faults_told(told) == {"0000:0a:00.0": "no reason given", "0000:0b:00.0": "x" * 255}

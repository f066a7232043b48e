# SPDX-License-Identifier: Apache-2.0
"""Whose word on a device's health counts for what.

A device is the host's: the cloud and the operator speak for it. The agent of a node speaks for
the host as well, unless a tenant may be root there or tasks run as the agent's own user: what such
a node says marks that node alone, so that nobody can take a card away from others by a lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuservice.domain.inventory import Device, Node, Pool

HEALTHY, UNHEALTHY, UNKNOWN = "healthy", "unhealthy", "unknown"
#: Who said that a device is not healthy (``Device.health_source``).
BY_NODE, BY_CLOUD, BY_OPERATOR = "node", "cloud", "operator"
#: So long (seconds) after a change of an agent's word nothing but further faults counts: a node
#: that says something else each time it is asked costs no more than one that does not.
HOLD_S = 60.0
#: Longest reason that is kept of an agent's word, in characters.
MAX_REASON = 255


def plain_address(address: str) -> str:
    """A PCI address with a domain of four digits: some tools print eight."""
    domain, _, rest = address.lower().partition(":")
    if rest.count(":") == 1:
        return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"
    return address.lower()


def faults_told(reports: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Address -> reason of every device that an agent calls bad, in order of address."""
    bad = {
        plain_address(str(one["address"])): str(one.get("reason") or "no reason given")[:MAX_REASON]
        for one in reports
        if not one.get("healthy", True)
    }
    return dict(sorted(bad.items()))


def word_kept(
    before: Mapping[str, str], told: Mapping[str, str], devices: Iterable[Device], held: bool
) -> dict[str, str]:
    """What counts of an agent's word: only what it says of its own devices; while it is held
    (:data:`HOLD_S`), further faults at once, but no recovery and no other reason."""
    own = {plain_address(one.address) for one in devices}
    kept = {**told, **before} if held else told
    return {address: kept[address] for address in sorted(own & kept.keys())}


def fault_of(node: Node, device: Device) -> str | None:
    """What the node's agent says is wrong with a device of it, null if nothing."""
    return (node.device_faults or {}).get(plain_address(device.address))


def usable(node: Node, device: Device) -> bool:
    """Whether new work may come to a device of a node."""
    return device.health == HEALTHY and fault_of(node, device) is None


def speaks_for_host(pool: Pool, capabilities: Mapping[str, Any]) -> bool:
    """Whether the agents of a pool's nodes are believed about the host's devices: no tenant has a
    key to the machine or chose what runs in it, and no task could speak as the agent."""
    own_image = pool.image is not None or pool.key_name is not None
    return not own_image and bool(capabilities.get("own_uid"))


def after_cloud(device: Device, healthy: bool, reason: str | None) -> dict[str, Any] | None:
    """The values to write when the cloud has spoken, null if nothing changes.

    What a person quarantined stays so. The cloud calling a card healthy (it is there) does not
    outweigh a node that has tried to use it.
    """
    if device.health == "quarantined":
        return None
    if healthy:
        by_node = device.health == UNHEALTHY and device.health_source == BY_NODE
        if device.health == HEALTHY or by_node:
            return None
        return {"health": HEALTHY, "health_reason": None, "health_source": None}
    if device.health == UNHEALTHY and device.health_source in (BY_CLOUD, None):
        return None
    return {"health": UNHEALTHY, "health_reason": reason, "health_source": BY_CLOUD}


def after_node(device: Device, fault: str | None) -> dict[str, Any] | None:
    """The values to write when a node that speaks for the host has spoken, null if nothing
    changes. It takes back its own word only."""
    own = device.health == UNHEALTHY and device.health_source == BY_NODE
    if fault is None:
        return {"health": HEALTHY, "health_reason": None, "health_source": None} if own else None
    if device.health in (HEALTHY, UNKNOWN) or (own and device.health_reason != fault):
        return {"health": UNHEALTHY, "health_reason": fault, "health_source": BY_NODE}
    return None

# SPDX-License-Identifier: Apache-2.0
"""What every cloud driver does; then what only one of them does."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from nvml_fake import FakeNvml
from oslo_config import cfg

from gpuservice.domain.errors import CloudError
from gpuservice.domain.inventory import Flavor
from gpuservice.domain.ports import Cloud, NodeRequest
from gpuservice.drivers.cloud.guest import GuestHost
from gpuservice.drivers.cloud.local import LocalCloud, pci_address, type_name
from gpuservice.drivers.cloud.simulated import SimulatedCloud

NOW = datetime(2026, 5, 6, tzinfo=UTC)


@pytest.fixture(params=["simulated", "local"])
def cloud(request: pytest.FixtureRequest, conf: cfg.ConfigOpts) -> Any:
    if request.param == "local":
        return LocalCloud(conf, FakeNvml())
    return SimulatedCloud(conf)


def wanted(cloud: Cloud, node_id: str = "node-1", **values: Any) -> NodeRequest:
    """A node on the first host with its first two cards."""
    host = cloud.inventory()[0]
    flavor = Flavor(
        id="f",
        created_at=NOW,
        updated_at=NOW,
        name="f",
        gpu_type=host.devices[0].gpu_type,
        gpu_count=2,
    )
    row: dict[str, Any] = {
        "node_id": node_id,
        "name": "n",
        "project_id": "p",
        "flavor": flavor,
        "host_name": host.name,
        "device_addresses": tuple(one.address for one in host.devices[:2]),
        "image": None,
        "networks": (),
        "key_name": None,
        "user_data": '{"node_id": "node-1"}',
        "bootstrap_hash": "h" * 64,
    }
    return NodeRequest(**{**row, **values})


def test_it_is_a_cloud_with_known_capabilities(cloud: Cloud) -> None:
    assert isinstance(cloud, Cloud)
    assert cloud.capabilities <= {"places", "power_off"}


def test_its_devices_are_of_types_it_names(cloud: Cloud) -> None:
    types = {one["name"]: one for one in cloud.gpu_types()}
    hosts = cloud.inventory()
    assert hosts and len({host.name for host in hosts}) == len(hosts)
    for host in hosts:
        assert host.up and host.vcpus > 0 and host.memory_mib > 0 and host.address
        assert len({one.address for one in host.devices}) == len(host.devices) > 0
        assert [one.ordinal for one in host.devices] == list(range(len(host.devices)))
        for device in host.devices:
            assert types[device.gpu_type]["vendor"] == device.vendor
            assert types[device.gpu_type]["memory_mib"] == device.memory_mib
            assert device.healthy


def test_looking_twice_shows_the_same(cloud: Cloud) -> None:
    assert cloud.inventory() == cloud.inventory()


def test_a_node_comes_is_found_and_goes(cloud: Cloud) -> None:
    assert cloud.find_nodes() == []
    made = cloud.create_node(wanted(cloud))
    (found,) = cloud.find_nodes(["node-1", "node-2"])
    assert (found.server_id, found.node_id) == (made.server_id, "node-1")
    assert found.state in ("building", "active")
    assert found.bootstrap_hash in (None, "h" * 64)
    assert cloud.find_nodes(["node-2"]) == [] and cloud.find_nodes([]) == []
    cloud.delete_node(found.server_id)
    cloud.delete_node(found.server_id)
    assert cloud.find_nodes() == []


def test_of_one_node_several_are_shown_oldest_first(cloud: Cloud) -> None:
    made = [cloud.create_node(wanted(cloud)).server_id for _ in range(3)]
    found = cloud.find_nodes(["node-1"])
    assert {one.server_id for one in found} == set(made)
    assert [one.created_at for one in found] == sorted(one.created_at for one in found)


def test_an_unknown_host_is_a_refusal_for_good(cloud: Cloud) -> None:
    with pytest.raises(CloudError) as caught:
        cloud.create_node(wanted(cloud, host_name="nowhere"))
    assert caught.value.meta == {"failure_class": "capacity", "retriable": False}
    assert cloud.find_nodes() == []


def test_secrets_do_not_show_in_requests(cloud: Cloud) -> None:
    request = wanted(cloud, user_data='{"bootstrap": "tell-nobody"}')
    assert "tell-nobody" not in repr(request)


def test_guests_follow_their_servers(cloud: Any) -> None:
    running: dict[str, str] = {}

    def boot(server_id: str, user_data: Any) -> None:
        running[server_id] = user_data.read_text()

    host = GuestHost(cloud.state, boot, lambda server_id: running.pop(server_id, None))
    host.look()
    made = cloud.create_node(wanted(cloud))
    host.look()
    host.look()
    assert running == {made.server_id: '{"node_id": "node-1"}'}
    cloud.delete_node(made.server_id)
    host.look()
    assert running == {}


def test_off_and_gone_are_said_when_nothing_of_the_guest_is_left(
    cloud: Any, conf: cfg.ConfigOpts
) -> None:
    conf.set_override("power_off", True, "simulated")
    halted: list[str] = []

    def halt(server_id: str) -> None:
        halted.append(server_id)
        assert not cloud.power_off(server_id)

    first, second, third = (
        cloud.create_node(wanted(cloud, name)).server_id for name in ("node-1", "node-2", "node-3")
    )
    host = GuestHost(cloud.state, lambda *_: None, halt)
    assert cloud.power_off(third)  # never booted
    host.look()
    assert not cloud.power_off(first)
    cloud.delete_node(second)
    assert [one.state for one in cloud.find_nodes(["node-1", "node-2"])] == ["off", "off"]
    # What an earlier host booted and did not end is ended by the next.
    GuestHost(cloud.state, lambda *_: None, halt).look()
    assert sorted(halted) == sorted([first, second])
    assert cloud.power_off(first) and cloud.find_nodes(["node-2"]) == []


# -- the simulated cloud -------------------------------------------------------------------
def test_simulated_builds_take_time_and_fail_as_told(conf: cfg.ConfigOpts) -> None:
    cloud = SimulatedCloud(conf, random.Random(1))
    cloud.state.set_control(build_delay_s=1000, fail_next_builds=1)
    assert cloud.create_node(wanted(cloud)).state == "error"
    assert cloud.create_node(wanted(cloud)).state == "building"
    cloud.state.set_control(build_delay_s=0, fail_rate=0.5)
    states = [cloud.create_node(wanted(cloud)).state for _ in range(60)]
    assert 15 < states.count("error") < 45 and states.count("active") == 60 - states.count("error")


def test_simulated_hosts_lose_power_with_all_on_them(conf: cfg.ConfigOpts) -> None:
    cloud = SimulatedCloud(conf)
    made = cloud.create_node(wanted(cloud))
    cloud.state.set_control(lost_hosts=[made.host_name])
    assert [host.up for host in cloud.inventory()] == [False, True]
    assert cloud.find_nodes()[0].state == "off"
    cloud.state.set_control(lost_hosts=[])
    assert cloud.find_nodes()[0].state == "active"


def test_simulated_power_off_is_for_good(conf: cfg.ConfigOpts) -> None:
    conf.set_override("power_off", True, "simulated")
    cloud = SimulatedCloud(conf)
    made = cloud.create_node(wanted(cloud))
    assert "power_off" in cloud.capabilities and cloud.power_off(made.server_id)
    assert cloud.find_nodes()[0].state == "off"
    assert cloud.power_off("absent")


def test_simulated_state_is_shared_by_every_user_of_its_directory(conf: cfg.ConfigOpts) -> None:
    clouds = [SimulatedCloud(conf) for _ in range(6)]
    clouds[0].state.set_control(fail_next_builds=10)
    made: list[str] = []

    def build(cloud: SimulatedCloud) -> None:
        made.extend(cloud.create_node(wanted(cloud)).state for _ in range(4))

    threads = [threading.Thread(target=build, args=(cloud,)) for cloud in clouds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(clouds[0].find_nodes()) == 24
    assert [one.fault is not None for one in clouds[1].find_nodes()].count(True) == 10
    with pytest.raises(KeyError):
        clouds[0].state.set_control(unknown=1)


# -- this machine --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
        ("Tesla V100-SXM2-16GB", "tesla-v100-sxm2-16gb"),
        ("", "gpu"),
    ],
)
def test_models_become_names_of_types(model: str, name: str) -> None:
    assert type_name(model) == name


def test_addresses_are_written_as_the_kernel_does() -> None:
    assert pci_address(b"00000000:3B:00.0") == "0000:3b:00.0"
    assert pci_address("00010000:AF:00.0") == "0000:af:00.0"


def test_a_card_that_does_not_answer_is_shown_as_unhealthy(conf: cfg.ConfigOpts) -> None:
    library = FakeNvml()
    cloud = LocalCloud(conf, library)
    library.dead = {2}
    health = [one.healthy for one in cloud.inventory()[0].devices]
    assert health == [True, True, False, True]
    assert [one["name"] for one in cloud.gpu_types()] == ["a100-sxm4-80gb"]


def test_without_nvml_the_cloud_says_so(conf: cfg.ConfigOpts) -> None:
    library = FakeNvml()
    library.missing = True
    with pytest.raises(CloudError, match="Driver Not Loaded"):
        LocalCloud(conf, library).inventory()


def test_a_card_that_is_not_there_is_refused(conf: cfg.ConfigOpts) -> None:
    cloud = LocalCloud(conf, FakeNvml())
    with pytest.raises(CloudError):
        cloud.create_node(wanted(cloud, device_addresses=("0000:ff:00.0",)))


def test_the_guest_knows_the_machines_numbers_of_its_cards(conf: cfg.ConfigOpts) -> None:
    cloud = LocalCloud(conf, FakeNvml())
    last = cloud.inventory()[0].devices[3]
    made = cloud.create_node(wanted(cloud, device_addresses=(last.address,)))
    server = cloud.state.server(made.server_id)
    assert server is not None and server["indices"] == [3]

# SPDX-License-Identifier: Apache-2.0
"""Where jobs go: cluster and jobs in, places out."""

from __future__ import annotations

import pytest
from small_cluster import NOW, gang, job, node, node_names, places, pool, snapshot

from gpuservice.planner.plan import plan


def test_one_gpu_goes_where_it_fits_most_tightly() -> None:
    made = plan(
        snapshot([node("a"), node("b"), node("c")], [job("j1")], [gang("r", {"b": range(6)})])
    )
    assert places(made) == {"j1": ["b/6"]}


def test_a_gang_stays_on_one_node_if_it_can() -> None:
    made = plan(
        snapshot(
            [node("a"), node("b")], [job("j1", count=4, gpu_milli=2000)], [gang("r", {"a": [0]})]
        )
    )
    assert node_names(made, "j1") == ["b"] * 4


def test_a_gang_without_a_wish_still_stays_in_one_rack_if_it_can() -> None:
    nodes = [node("a", rack="r1"), node("b", rack="r2"), node("c", rack="r2")]
    made = plan(snapshot(nodes, [job("j1", count=2, gpu_milli=8000)]))
    assert node_names(made, "j1") == ["b", "c"]


@pytest.mark.parametrize(("zone", "starts"), [("z1", True), ("z2", False), (None, False)])
def test_one_rack_of_two_zones_is_not_one_zone(zone: str | None, starts: bool) -> None:
    """Racks of two zones may have one name, and a node may not say where it is."""
    nodes = [node("a", rack="r1", zone="z1"), node("b", rack="r1", zone=zone)]
    wanted = job("j1", count=2, gpu_milli=8000, within="zone", required=True)
    assert bool(plan(snapshot(nodes, [wanted])).starts) is starts


def test_a_task_of_many_gpus_takes_a_link_group_before_it_mixes_two() -> None:
    made = plan(
        snapshot(
            [node("a")],
            [job("j1", gpu_milli=3000), job("j2", gpu_milli=4000)],
            [gang("r", {"a": [0]})],
        )
    )
    assert places(made) == {"j1": ["a/1", "a/2", "a/3"], "j2": ["a/4", "a/5", "a/6", "a/7"]}


@pytest.mark.parametrize(
    ("within", "required", "starts"),
    [
        ("link_group", True, False),
        ("link_group", False, True),
        ("node", True, True),
        (None, False, True),
    ],
)
def test_link_groups(within: str | None, required: bool, starts: bool) -> None:
    busy = [gang("r", {"a": [0, 1, 4]})]
    wanted = job("j1", count=4, within=within, required=required)
    made = plan(snapshot([node("a")], [wanted], busy))
    assert bool(made.starts) is starts


@pytest.mark.parametrize(
    ("within", "racks", "starts"),
    [
        ("rack", ("r1", "r2"), False),
        ("rack", ("r1", "r1"), True),
        ("rack", (None, None), False),
        ("zone", ("r1", "r2"), True),
    ],
)
def test_required_topology_above_the_node(
    within: str, racks: tuple[str | None, str | None], starts: bool
) -> None:
    nodes = [node(name, rack=rack, zone="z") for name, rack in zip("ab", racks, strict=True)]
    wanted = job("j1", count=2, gpu_milli=8000, within=within, required=True)
    assert bool(plan(snapshot(nodes, [wanted])).starts) is starts


@pytest.mark.parametrize(
    ("request_", "starts"),
    [
        ({"gpu_types": ("h100",)}, False),
        ({"gpu_types": ("h100", "a100-80gb")}, True),
        ({"min_gpu_memory_mib": 81920}, True),
        ({"min_gpu_memory_mib": 81921}, False),
        ({"vcpus": 64}, True),
        ({"vcpus": 65}, False),
        ({"memory_mib": 65536}, True),
        ({"memory_mib": 65537}, False),
        ({"gpu_milli": 8000}, True),
        ({"gpu_milli": 9000}, False),
        ({"gpu_milli": 0, "vcpus": 1}, True),
        ({"gpu_memory_mib": 81920, "gpu_milli": 0}, True),
        ({"gpu_memory_mib": 81921, "gpu_milli": 0}, False),
    ],
)
def test_hard_constraints(request_: dict[str, object], starts: bool) -> None:
    assert bool(plan(snapshot([node("a")], [job("j1", **request_)])).starts) is starts


def test_shares_fill_a_device_before_they_open_another() -> None:
    made = plan(
        snapshot([node("a"), node("b")], [job(f"j{number}", gpu_milli=400) for number in range(3)])
    )
    assert places(made) == {"j0": ["a/0"], "j1": ["a/0"], "j2": ["a/1"]}


def test_a_share_by_memory_is_rounded_up() -> None:
    made = plan(snapshot([node("a")], [job("j1", gpu_milli=0, gpu_memory_mib=20000)]))
    assert made.starts[0].tasks[0].devices == (("a/0", 245),)


def test_a_device_is_never_shared_by_two_projects() -> None:
    made = plan(
        snapshot(
            [node("a", gpus=1, groups=1)],
            [job("j1", "blue", gpu_milli=300)],
            [gang("r", {"a": [0]}, milli=300)],
        )
    )
    assert not made.starts


@pytest.mark.parametrize("isolated", [True, False])
def test_an_isolated_node_holds_one_project(isolated: bool) -> None:
    made = plan(
        snapshot([node("a", isolation_node=isolated)], [job("j1", "blue")], [gang("r", {"a": [0]})])
    )
    assert bool(made.starts) is not isolated


def test_an_elastic_gang_takes_what_there_is() -> None:
    wanted = job("j1", count=6, min_count=2, gpu_milli=2000)
    made = plan(snapshot([node("a")], [wanted], [gang("r", {"a": [0, 1]})]))
    assert len(made.starts[0].tasks) == 3
    busy = [gang("r", {"a": range(5)})]
    assert not plan(snapshot([node("a")], [wanted], busy)).starts


def test_a_gang_stays_within_one_pool() -> None:
    nodes = [node("a", pool="p1"), node("b", pool="p2"), node("c", pool="p2")]
    made = plan(snapshot(nodes, [job("j1", count=2, gpu_milli=8000)]))
    assert node_names(made, "j1") == ["b", "c"]
    assert not plan(snapshot(nodes, [job("j1", count=3, gpu_milli=8000)])).starts


def test_the_first_pool_of_the_queue_is_preferred() -> None:
    nodes = [node("a", pool="p1"), node("b", pool="p2")]
    made = plan(snapshot(nodes, [job("j1")], pool_ids=("p2", "p1")))
    assert node_names(made, "j1") == ["b"]


@pytest.mark.parametrize("fault", [{"ready": False}, {"pool": "other"}])
def test_nodes_that_may_not_be_used(fault: dict[str, object]) -> None:
    pools = [pool("pool", 1)]
    assert not plan(snapshot([node("a", **fault)], [job("j1")], pools=pools)).starts


def test_an_array_is_one_job_that_starts_as_often_as_it_may() -> None:
    made = plan(snapshot([node("a")], [job("j1", elements=5), job("j2", elements=5)]))
    assert [start.job_id for start in made.starts] == ["j1"] * 5 + ["j2"] * 3
    assert len({one for devices in places(made).values() for one in devices}) == 8


def test_order_is_priority_then_age() -> None:
    line = [job("j1"), job("j2", priority=900), job("j3", queued_at=NOW - 5000)]
    made = plan(snapshot([node("a", gpus=2, groups=1)], line))
    assert [start.job_id for start in made.starts] == ["j2", "j3"]

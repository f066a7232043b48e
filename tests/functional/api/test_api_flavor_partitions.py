# SPDX-License-Identifier: Apache-2.0
"""What a flavor gives of a GPU: mode, partition and GPU type must fit together."""

from __future__ import annotations

from typing import Any

import pytest
from api_world import Client, error_of

TYPE = {
    "name": "a100",
    "vendor": "nvidia",
    "memory_mib": 81920,
    "partitions": [
        {"name": "1g.10gb", "kind": "mig", "memory_mib": 9728},
        {"name": "A100-10C", "kind": "vgpu", "memory_mib": 10240},
    ],
}


@pytest.fixture
def type_path(admin: Client) -> str:
    ident = admin.post("/gpu-types", {"gpu_type": TYPE}).get_json()["gpu_type"]["id"]
    return f"/gpu-types/{ident}"


def create(admin: Client, **values: Any):
    flavor = {"name": "f", "gpu_type": "a100", "gpu_count": 1, **values}
    return admin.post("/flavors", {"flavor": flavor})


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"mode": "passthrough", "partition": None},
        {"mode": "baremetal"},
        {"mode": "mig", "partition": "1g.10gb"},
        {"mode": "vgpu", "partition": "A100-10C"},
    ],
)
def test_what_fits(admin, type_path, values):
    answer = create(admin, **values)
    assert answer.status_code == 201, answer.text
    assert answer.get_json()["flavor"]["partition"] == values.get("partition")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"partition": "1g.10gb"}, "mode passthrough gives whole GPUs"),
        ({"mode": "baremetal", "partition": "1g.10gb"}, "mode baremetal gives whole GPUs"),
        ({"mode": "mig"}, "partition is missing; of the kind mig"),
        ({"mode": "vgpu", "partition": None}, "A100-10C"),
        ({"mode": "mig", "partition": "A100-10C"}, "has: 1g.10gb."),
        ({"mode": "vgpu", "partition": "1g.10gb"}, "has: A100-10C."),
        ({"mode": "mig", "partition": "7g.80gb"}, "'7g.80gb'"),
    ],
)
def test_what_does_not(admin, type_path, values, said):
    answer = create(admin, **values)
    error = error_of(answer)
    assert answer.status_code == 400
    assert error["source"]["pointer"] == "/flavor/partition"
    assert said in error["detail"]
    assert admin.get("/flavors").get_json()["flavors"] == []


def test_a_partition_in_use_stays(admin, type_path):
    create(admin, mode="mig", partition="1g.10gb")
    for left in ([], TYPE["partitions"][1:], [{"name": "1g.10gb", "kind": "vgpu"}]):
        answer = admin.patch(type_path, {"gpu_type": {"partitions": left}})
        assert answer.status_code == 409
        assert error_of(answer)["source"]["pointer"] == "/gpu_type/partitions"
    kept = TYPE["partitions"][:1]
    assert admin.patch(type_path, {"gpu_type": {"partitions": kept}}).status_code == 200

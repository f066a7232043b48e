# SPDX-License-Identifier: Apache-2.0
"""One valid body for each endpoint that takes JSON; a new endpoint without one fails a test."""

from __future__ import annotations

from typing import Any

from api_world import Cluster

from gpuservice.api.endpoint import Endpoint

UUID = "00000000-0000-4000-8000-000000000000"
SHA = "ab" * 32

BODIES: dict[str, Any] = {
    "POST /gpu-types": {
        "gpu_type": {
            "name": "h100",
            "vendor": "nvidia",
            "memory_mib": 81559,
            "pci_ids": ["10de:2330"],
            "architecture": "hopper",
            "interconnect": "nvlink",
            "resource_class": "PGPU",
            "traits": ["CUSTOM_GPU"],
            "partitions": [
                {
                    "name": "1g.10gb",
                    "kind": "mig",
                    "memory_mib": 9728,
                    "max_per_device": 7,
                    "compute_fraction": 0.14,
                }
            ],
        }
    },
    "PATCH /gpu-types/<id>": {"gpu_type": {"memory_mib": 81920}},
    "POST /hosts/<id>/action": {"cordon": {"reason": "dust"}},
    "POST /devices/<id>/action": {"quarantine": {"reason": "errors"}},
    "POST /flavors": {
        "flavor": {
            "name": "a100.1",
            "gpu_type": "a100-80gb",
            "gpu_count": 1,
            "mode": "passthrough",
            "vcpus": 8,
            "memory_mib": 65536,
            "disk_gib": 100,
            "numa_policy": None,
            "public": True,
            "projects": [],
            "price_per_hour": 250,
        }
    },
    "PATCH /flavors/<id>": {"flavor": {"price_per_hour": 300}},
    "POST /flavors/<id>/action": {"sync": {"dry_run": True}},
    "PATCH /services/<id>": {"service": {"status": "disabled"}},
    "PATCH /quotas/<id>": {"quota": {"limits": {"gpus": 8, "gpus:a100-80gb": None}}},
    "POST /pools": {
        "pool": {
            "name": "mine",
            "flavor": "a100.4",
            "min_nodes": 1,
            "max_nodes": 2,
            "target_nodes": 1,
            "autoscale": False,
            "idle_timeout_s": 600,
            "on_shortage": "wait",
            "image": None,
            "networks": [],
            "key_name": None,
            "engine": "agent",
            "engine_options": {},
        }
    },
    "PATCH /pools/<id>": {"pool": {"idle_timeout_s": 60}},
    "POST /nodes/<id>/action": {"cordon": None},
    "POST /cohorts": {"cohort": {"name": "research", "projects": ["vision"]}},
    "PATCH /cohorts/<id>": {"cohort": {"projects": ["*"]}},
    "POST /queues": {
        "queue": {
            "name": "fast",
            "pools": [],
            "projects": ["vision"],
            "status": "open",
            "weight": 2,
            "cohort": None,
            "nominal": {"a100-80gb": 4},
            "borrowing_limit": {},
            "lending_limit": {},
            "preemption": "none",
            "max_priority": 700,
            "placement": "pack",
            "kinds": {"training": {"max_runtime_s": 3600}},
        }
    },
    "PATCH /queues/<id>": {"queue": {"status": "drained"}},
    "POST /jobs": {
        "job": {
            "name": "train",
            "queue": "default",
            "kind": "training",
            "priority": "normal",
            "command": ["python3", "train.py"],
            "env": {"EPOCHS": "3"},
            "workdir": "src",
            "secrets": [],
            "image": None,
            "tasks": {"count": 2, "min_count": 1},
            "resources": {
                "gpus": 1,
                "gpu_types": ["a100-80gb"],
                "min_gpu_memory_mib": 40000,
                "vcpus": 2,
                "memory_mib": 1024,
            },
            "topology": {"within": "rack", "policy": "preferred"},
            "max_runtime_s": 3600,
            "deadline_at": "2099-01-01T00:00:00Z",
            "preemptible": True,
            "grace_period_s": 30,
            "signal": "TERM",
            "checkpoint": {"path": "ckpt/", "interval_s": 600, "ranks": "first"},
            "retry": {"max_attempts": 2, "backoff_s": 1, "on": ["node_failure"]},
            "array": {"size": 3, "max_running": 2, "max_failures": None},
            "inputs": [{"source": "file:///data/x", "path": "data/x"}],
            "outputs": [{"path": "out/", "target": "file:///data/out"}],
            "notify": [{"on": ["started"], "channel": "event"}],
            "labels": {"team": "vision"},
            "hold": False,
            "depends_on": [],
        }
    },
    "PATCH /jobs/<id>": {"job": {"labels": {"team": "speech"}}},
    "POST /jobs/<id>/action": {"hold": None},
    "POST /simulations": {
        "simulation": {
            "name": "more",
            "from": "now",
            "history": {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"},
            "assumed_runtime_s": 600,
            "workload": [
                {
                    "submit_s": 0,
                    "duration_s": 60.5,
                    "name": "a",
                    "project": "vision",
                    "queue": "default",
                    "user": "ada",
                    "kind": "training",
                    "priority": "normal",
                    "tasks": 2,
                    "min_tasks": 1,
                    "gpus_per_task": 1,
                    "gpu_types": ["a100-80gb"],
                    "min_gpu_memory_mib": 0,
                    "vcpus": 1,
                    "memory_mib": 1024,
                    "within": "rack",
                    "topology_policy": "preferred",
                    "max_runtime_s": 120,
                    "preemptible": True,
                    "array_size": 2,
                    "array_max_running": 1,
                    "depends_on": [],
                    "deadline_s": 100000,
                    "outcome": "succeeded",
                }
            ],
            "change": {
                "gpus": {"a100-80gb": 16},
                "pools": {"shared": -1},
                "queues": {"default": {"weight": 2, "nominal": {"a100-80gb": 4}}},
                "quotas": {"vision": {"gpus": 8}},
                "policy": {
                    "order": "fair",
                    "backfill": True,
                    "promises": 8,
                    "small_promises": 1,
                    "due_times": True,
                    "backfill_order": "line",
                    "preempt": ["priority"],
                    "min_runtime_s": 60,
                    "max_preemptions": 5,
                    "lost_s": 600,
                    "defragment": False,
                    "usage_half_life_s": 604800,
                    "due_gang_backlog": 1.5,
                    "weight_age": 1000,
                },
            },
        }
    },
    "POST /agent/register": {
        "bootstrap": "a" * 64,
        "secret": SHA,
        "instance": UUID,
        "agent_version": "1",
        "devices": [
            {
                "address": "0000:00:00.0",
                "vendor": "nvidia",
                "product_id": None,
                "uuid": None,
                "memory_mib": 81920,
                "index": 0,
                "numa_node": 0,
                "link_group": None,
            }
        ],
        "capabilities": {
            "own_uid": True,
            "namespaces": ["mnt", "pid"],
            "device_filter": False,
            "private_tmp": True,
            "cgroups": False,
        },
        "vcpus": 32,
        "memory_mib": 262144,
    },
    "POST /agent/token": {"secret": "ab" * 32},
    "POST /agent/sync": {
        "epoch": 1,
        "revision": 0,
        "instance": UUID,
        "wait_s": 0,
        "telemetry": {},
        "devices": [{"address": "0000:00:00.0", "healthy": True, "reason": None}],
        "tasks": [
            {
                "task_id": UUID,
                "state": "running",
                "started_at": "2026-01-01T00:00:00Z",
                "ended_at": "2026-01-01T00:00:01Z",
                "exit_code": 1,
                "signal": 0,
                "oom": False,
                "timed_out": False,
                "failure": {"class": "image", "evidence": "program 'x' not found"},
                "checkpoint_fault": {"reason": "too_large", "evidence": "more than fits"},
                "log": {"stdout": {"offset": 0, "data_b64": "aGk=", "end": False}},
            }
        ],
    },
    "POST /agent/tasks/<id>/checkpoints": {
        "seq": 1,
        "files": [{"path": "model.npz", "size": 3, "sha256": SHA}],
    },
}


def key_of(row: Endpoint) -> str:
    """How ``BODIES`` names an endpoint."""
    return f"{row.method} {row.path}"


def path_of(row: Endpoint, ids: dict[str, str]) -> str:
    """A path of the endpoint with the id of its noun."""
    noun = row.path.split("/")[1]
    path = row.path.replace("<id>", ids.get(noun, UUID)).replace("<int:seq>", "1")
    return path.replace("<seq>", "1").replace("<path:path>", "1/0/model.npz")


def ids_of(cluster: Cluster, **more: str) -> dict[str, str]:
    """The id of one object of each noun."""
    return {
        "hosts": cluster.hosts[0].id,
        "devices": cluster.devices[0].id,
        "flavors": cluster.flavor.id,
        "pools": cluster.pool.id,
        "nodes": cluster.nodes[0].id,
        "queues": cluster.queue.id,
        "quotas": "vision",
        **more,
    }

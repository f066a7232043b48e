# SPDX-License-Identifier: Apache-2.0
"""What the service answers: a job that waits, one that has ended, its log and its artifacts."""

from __future__ import annotations

import hashlib

from fake_api import JOB_ID, Answer

JOB = {
    "id": JOB_ID,
    "name": "train",
    "status": "queued",
    "queue": "vision",
    "generation": 1,
    "attempt": 0,
    "nodes": [],
    "labels": {},
    "waiting": {
        "code": "insufficient_gpus",
        "summary": "Needs 4, 1 is free.",
        "position": 2,
        "estimated_start_at": "2030-01-01T00:00:00Z",
    },
}

ENDED = {**JOB, "status": "succeeded", "waiting": None, "attempt": 1}


def jobs(*found):
    return Answer(body={"jobs": list(found), "links": []})


def log(data, offset, end):
    return Answer(
        raw=data,
        headers={
            "OpenStack-GPU-Log-Offset": str(offset),
            "OpenStack-GPU-Log-End": str(end).lower(),
        },
    )


def artifact(path, data, index=0):
    return {
        "path": path,
        "index": index,
        "attempt": 1,
        "rank": 0,
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }

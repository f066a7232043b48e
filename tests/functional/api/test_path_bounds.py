# SPDX-License-Identifier: Apache-2.0
"""Paths that no file system takes are refused, wherever a job may name one."""

from __future__ import annotations

from typing import Any

import pytest
from api_world import Client, Cluster, error_of

PATHS = {"long": "a" * 256, "bytes": "ä" * 128, "deep": "d/" * 33 + "x"}


def fields(path: str) -> dict[str, dict[str, Any]]:
    """Where a path may stand: pointer -> the job's fields."""
    return {
        "/job/workdir": {"workdir": path},
        "/job/checkpoint/path": {"checkpoint": {"path": path}},
        "/job/outputs/0/path": {"outputs": [{"path": path}]},
        "/job/inputs/0/path": {"inputs": [{"source": "https://example.org/x", "path": path}]},
    }


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
@pytest.mark.parametrize("pointer", fields("x"))
def test_too_long_for_a_file_system(cluster: Cluster, ada: Client, pointer: str, path: str) -> None:
    body = {"name": "long", "command": ["true"], **fields(path)[pointer]}
    answer = ada.post("/jobs", {"job": body})
    assert answer.status_code == 400
    error = error_of(answer)
    assert error["source"]["pointer"] == pointer
    assert "255 bytes" in error["detail"] or "too long" in error["detail"]

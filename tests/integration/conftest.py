# SPDX-License-Identifier: Apache-2.0
"""Which databases the integration tests run on: those whose URLs are given."""

from __future__ import annotations

import os

import pytest
from cluster import DATABASES, RABBIT


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        there = [
            name
            for name, variable in DATABASES.items()
            if os.environ.get(variable) and os.environ.get(RABBIT)
        ]
        metafunc.parametrize("backend", there)

# SPDX-License-Identifier: Apache-2.0
"""How hypothesis searches: with 100 examples by default (300 for a law of scheduling), a few in the
profile ``quick``, many in ``deep`` and ``nightly``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default",
    max_examples=100,
    deadline=None,  # two test processes share the machine: time is no sign of a fault
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
    print_blob=True,
)
settings.register_profile("quick", parent=settings.get_profile("default"), max_examples=25)
settings.register_profile("deep", parent=settings.get_profile("default"), max_examples=2000)
settings.register_profile("nightly", parent=settings.get_profile("default"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

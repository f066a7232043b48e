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
    derandomize=True,  # the same examples on every machine; the long profiles look for new ones
)
settings.register_profile("quick", parent=settings.get_profile("default"), max_examples=25)
for name, examples in (("deep", 2000), ("nightly", 5000)):
    settings.register_profile(
        name, parent=settings.get_profile("default"), max_examples=examples, derandomize=False
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

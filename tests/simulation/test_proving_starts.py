# SPDX-License-Identifier: Apache-2.0
"""What the teams of the proving week notice first: how soon their jobs start.

The laws say what a plan must not do; a plan that keeps all of them may still let jobs wait beside
free GPUs. Two days of two weeks are played here, all weeks by
``benchmarks.scheduling.proving_week``.
"""

from __future__ import annotations

import pytest

from gpuservice.simulation.proving_week import (
    DAY_S,
    POLICY,
    WORLD,
    Week,
    cluster,
    is_standard,
    jobs,
)
from gpuservice.simulation.replay import Replay
from gpuservice.simulation.statistics import Spread, wait_of

FROM_S, UNTIL_S = 2 * DAY_S, 4 * DAY_S
SOON_S, SOON, INTERACTIVE_P90_S = 600.0, 0.9, 60.0


@pytest.mark.parametrize("seed", [3, 4])
def test_standard_jobs_start_within_ten_minutes(seed: int) -> None:
    week = [job for job in jobs(Week(seed)) if FROM_S <= job.submit_s <= UNTIL_S]
    records = Replay(cluster(), week, POLICY, WORLD).run().records
    waits = [wait_of(record) for record in records if is_standard(record.job)]
    assert len(waits) > 500
    soon = sum(wait is not None and wait <= SOON_S for wait in waits)
    assert soon >= SOON * len(waits)
    interactive = [wait_of(record) for record in records if record.job.kind == "interactive"]
    assert Spread.of(wait for wait in interactive if wait is not None).p90 < INTERACTIVE_P90_S

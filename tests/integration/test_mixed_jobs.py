# SPDX-License-Identifier: Apache-2.0
"""Separate programs, six projects at once, jobs of every kind: all end as they should."""

from __future__ import annotations

import time

import pytest
import workload
from cluster import running_cluster
from scale import sized

pytestmark = [pytest.mark.services, pytest.mark.a3]

JOBS = sized(300, 30)
HOSTS = sized(8, 4)
PATIENCE_S = sized(900, 120)


def test_mixed_jobs_of_six_projects_end_as_they_should(backend: str) -> None:
    with running_cluster(backend, hosts=HOSTS, gpus=8) as cluster:
        cluster.furnish()
        witness = cluster.place / "witness"
        witness.touch()
        witness.chmod(0o666)
        began = time.monotonic()
        jobs = workload.submit_all(cluster, workload.mixed(JOBS, witness))
        submitted = time.monotonic() - began
        ended = workload.wait_for_ends(cluster, [one.job_id for one in jobs], PATIENCE_S)
        took = time.monotonic() - began
        workload.check_ends(jobs, ended)
        runs = workload.check_witness(witness)
        cluster.check_idle()
        replayed = workload.replay(cluster.admin)
        assert {ident: replayed[ident] for ident in ended} == {
            ident: job["status"] for ident, job in ended.items()
        }
        print(
            f"\n{backend}: {len(jobs)} jobs, {runs} task runs, submitted and cancelled in "
            f"{submitted:.1f} s, all ended after {took:.1f} s"
        )

# SPDX-License-Identifier: Apache-2.0
"""Processes killed and frozen, servers restarted, traffic lost: nothing is lost or runs twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import workload
from cluster import Cluster, running_cluster
from faults import Faults
from scale import FULL, sized

pytestmark = [pytest.mark.services, pytest.mark.a5]

JOBS = sized(300, 30)
#: Tasks run this many times as long as without faults, so that there is something to hit.
SLOWER = sized(12, 6)
EVERY_S = sized(5, 3)
PATIENCE_S = sized(1800, 200)


def test_everything_ends_as_it_should_whatever_befalls_the_service(backend: str) -> None:
    more = "[scheduler]\ncoordination_url =\n"
    with running_cluster(
        backend, hosts=sized(8, 4), gpus=8, lease_s=sized(10, 4), more=more
    ) as cluster:
        cluster.furnish()
        witness = cluster.place / "witness"
        witness.touch()
        witness.chmod(0o666)
        faults = Faults(cluster, backend)
        jobs, troubles = _submit_under_faults(cluster, faults, witness)
        ended = workload.wait_for_ends(cluster, [one.job_id for one in jobs], PATIENCE_S)
        assert not troubles, troubles
        workload.check_ends([_tolerant(one) for one in jobs], ended)
        runs = workload.check_witness(witness, faults.forgiven)
        cluster.check_idle()
        replayed = workload.replay(cluster.admin)
        assert {ident: replayed[ident] for ident in ended} == {
            ident: job["status"] for ident, job in ended.items()
        }
        print(
            f"\n{backend}: {len(jobs)} jobs, {runs} task runs; faults: "
            + ", ".join(f"{kind} {count}" for kind, count in sorted(faults.counts.items()))
        )


def _tolerant(one: workload.Wanted) -> workload.Wanted:
    """Under faults a job's exit code may be that of a rank which was ended with the gang."""
    return replace(one, exit_code=None) if one.kind == "bad rank" else one


def _submit_under_faults(
    cluster: Cluster, faults: Faults, witness: Path
) -> tuple[list[workload.Wanted], list[BaseException]]:
    """Submit everything while faults happen; returns when the last great fault is over."""
    stop = threading.Event()
    troubles: list[BaseException] = []

    def guarded(what: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                what()
            except BaseException as trouble:
                troubles.append(trouble)

        return run

    def great() -> None:
        for _ in range(2 if FULL else 1):
            for fault in (
                faults.restart_rabbit,
                faults.freeze_node,
                faults.restart_database,
                faults.freeze_agent,
                faults.drop_traffic,
            ):
                fault()

    kills = threading.Thread(target=guarded(lambda: faults.kill_until(stop, EVERY_S)))
    greats = threading.Thread(target=guarded(great))
    for thread in (kills, greats):
        thread.start()
    try:
        wanted = [workload.slower(one, SLOWER) for one in workload.mixed(JOBS, witness)]
        jobs = workload.submit_all(cluster, wanted[: JOBS // 2])
        greats_began = time.monotonic()
        jobs += workload.submit_all(cluster, wanted[JOBS // 2 :])
        while greats.is_alive() and time.monotonic() < greats_began + PATIENCE_S:
            greats.join(1)
    finally:
        stop.set()
        kills.join()
    return jobs, troubles

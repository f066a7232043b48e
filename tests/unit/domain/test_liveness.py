# SPDX-License-Identifier: Apache-2.0
"""For how long somebody could hear the nodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gpuservice.domain.liveness import heard_for
from gpuservice.domain.work import ServiceRecord

THEN = datetime(2026, 1, 1, tzinfo=UTC)


def lived(start: float, end: float, binary: str = "gpuservice-api") -> ServiceRecord:
    return ServiceRecord(
        id=f"{binary}-{start}",
        binary=binary,
        host="host",
        status="up",
        seen_at=THEN + timedelta(seconds=end),
        started_at=THEN + timedelta(seconds=start),
        version="1",
    )


def seconds(*services: ServiceRecord, since: float = 0) -> float:
    return heard_for(services, THEN + timedelta(seconds=since)).total_seconds()


def test_the_time_of_one_process_after_the_moment_counts() -> None:
    assert seconds(lived(-100, 30)) == 30
    assert seconds(lived(-100, 30), since=20) == 10
    assert seconds(lived(-100, -1)) == 0


def test_times_of_several_count_once_and_gaps_do_not() -> None:
    assert seconds(lived(-10, 20), lived(5, 25), lived(10, 15)) == 25
    assert seconds(lived(-10, 4), lived(20, 20)) == 4
    assert seconds(lived(-10, 4), lived(20, 30)) == 14


def test_only_programs_that_nodes_talk_to_count() -> None:
    assert seconds(lived(-10, 20, "gpuservice-conductor")) == 0
    assert seconds() == 0

# SPDX-License-Identifier: Apache-2.0
"""What every engine does with an attempt; and that drivers are found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from oslo_config import cfg

from gpuservice.domain.ports import Engine, Hint
from gpuservice.domain.work import Attempt, Task
from gpuservice.drivers import loader

NOW = datetime(2026, 5, 6, tzinfo=UTC)


class KeptHints:
    """Keeps hints."""

    def __init__(self) -> None:
        self.sent: list[Hint] = []

    def send(self, hint: Hint) -> None:
        self.sent.append(hint)

    def subscribe(
        self, kinds: Iterable[str], listener: Callable[[Hint], None]
    ) -> Callable[[], None]:
        return lambda: None


@pytest.fixture
def hints() -> KeptHints:
    return KeptHints()


@pytest.fixture(params=["agent"])
def engine(request: pytest.FixtureRequest, conf: cfg.ConfigOpts, hints: KeptHints) -> Engine:
    found: Engine = loader.load("engine", request.param, conf, hints)
    return found


def gang() -> tuple[Attempt, list[Task]]:
    attempt = Attempt(
        id="a",
        job_id="j",
        index=0,
        number=1,
        project_id="p",
        queue_id="q",
        pool_id="pool",
        status="starting",
        created_at=NOW,
        tasks_count=3,
        gang_secret="s",
    )
    row: dict[str, Any] = {
        "attempt_id": "a",
        "job_id": "j",
        "index": 0,
        "attempt": 1,
        "project_id": "p",
        "node_epoch": 1,
        "status": "assigned",
        "created_at": NOW,
    }
    return attempt, [
        Task(id=f"t{rank}", rank=rank, node_id=f"n{rank % 2}", **row) for rank in range(3)
    ]


def test_starting_and_stopping_may_be_repeated(engine: Engine) -> None:
    for _ in range(2):
        engine.start(*gang())
    for _ in range(2):
        engine.stop(*gang())


def test_the_agent_engine_wakes_each_node_once(conf: cfg.ConfigOpts, hints: KeptHints) -> None:
    loader.load("engine", "agent", conf, hints).start(*gang())
    assert hints.sent == [Hint("nodes", ("n0", "n1"))]


@pytest.mark.parametrize("kind", ["cloud", "engine", "quota", "logs", "objects"])
def test_unknown_names_are_said_so(kind: str) -> None:
    with pytest.raises(loader.NoSuchDriver, match=f"no {kind} driver 'nothing'"):
        loader.load(kind, "nothing")

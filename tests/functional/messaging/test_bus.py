# SPDX-License-Identifier: Apache-2.0
"""The bus of wake-ups between processes: in memory always, on RabbitMQ where its URL is given."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import oslo_messaging
import pytest
from oslo_config import cfg
from oslo_messaging._drivers import amqpdriver

from gpuservice.conf import opts
from gpuservice.messaging.bus import MAX_IDS, PAUSE_S, Bus

#: Transport -> its URL.
TRANSPORTS = {"memory": "fake://", "rabbitmq": os.getenv("GPUSERVICE_TEST_RABBIT_URL")}
PATIENCE_S = 20.0

pytestmark = pytest.mark.parametrize("transport", [name for name, url in TRANSPORTS.items() if url])


class Heard:
    """What one listener was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    def __call__(self, kind: str, ids: Sequence[str]) -> None:
        self.calls.append((kind, tuple(ids)))

    def ids(self, kind: str) -> set[str]:
        return {one for said, ids in self.calls for one in ids if said == kind}


@pytest.fixture
def bus(transport: str) -> Iterator[Callable[[], Bus]]:
    """Makes started buses, as separate processes would have them."""
    with ExitStack() as stack:

        def make() -> Bus:
            conf = cfg.ConfigOpts()
            opts.register_all(conf)
            conf([], default_config_files=[])
            oslo_messaging.get_rpc_transport(conf, "fake://").cleanup()  # registers the options
            conf.set_override("transport_url", TRANSPORTS[transport])
            made = Bus(conf, "host")
            made.start()
            stack.callback(made.stop)
            return made

        yield make


def until(true: Callable[[], object], again: Callable[[], object] | None = None) -> None:
    """Wait until it is true; ``again`` is done before each look (listeners start on their own)."""
    deadline = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not true():
        assert time.monotonic() < deadline, "not in time"
        if again is not None:
            again()
        pause.wait(0.02)


def listening(bus: Bus, heard: Heard, kind: str, sender: Bus) -> None:
    bus.subscribe((kind,), heard)
    until(lambda: "ready" in heard.ids(kind), lambda: sender.send(kind, ("ready",)))


def test_a_wake_up_reaches_the_subscribers_of_its_kind_alone(
    bus: Callable[[], Bus], transport: str
) -> None:
    sender, first, second, other = bus(), Heard(), Heard(), Heard()
    listening(bus(), first, "jobs", sender)
    listening(bus(), second, "jobs", sender)
    listening(bus(), other, "nodes", sender)

    def send() -> None:
        sender.send("jobs", ("a",))

    send()
    # oslo.messaging's transport in memory gives two servers one and the same message object, and
    # sometimes loses it for one of them.
    again = send if transport == "memory" else None
    until(lambda: "a" in first.ids("jobs") and "a" in second.ids("jobs"), again)
    assert not other.ids("jobs")


def test_a_process_hears_itself_once_and_at_once(bus: Callable[[], Bus], transport: str) -> None:
    alone, heard = bus(), Heard()
    other, echo = bus(), Heard()
    alone.subscribe(("jobs",), heard)
    listening(other, echo, "jobs", alone)
    heard.calls.clear()
    sent = 0

    def send() -> None:
        nonlocal sent
        sent += 1
        alone.send("jobs", ("a",))

    send()
    assert heard.calls == [("jobs", ("a",))]
    until(lambda: "a" in echo.ids("jobs"), send if transport == "memory" else None)
    assert heard.calls == [("jobs", ("a",))] * sent


def test_a_burst_is_merged(bus: Callable[[], Bus]) -> None:
    sender, heard = bus(), Heard()
    listening(bus(), heard, "jobs", sender)
    heard.calls.clear()
    for number in range(200):
        sender.send("jobs", (str(number),))
    until(lambda: heard.ids("jobs") >= {str(number) for number in range(200)})
    assert len(heard.calls) < 100


def test_many_ids_become_any(bus: Callable[[], Bus]) -> None:
    sender, heard = bus(), Heard()
    listening(bus(), heard, "jobs", sender)
    heard.calls.clear()
    sender.send("jobs", tuple(str(number) for number in range(MAX_IDS + 1)))
    until(lambda: ("jobs", ()) in heard.calls)


def test_a_failing_listener_hinders_no_other(bus: Callable[[], Bus]) -> None:
    alone, heard = bus(), Heard()

    def fail(kind: str, ids: Sequence[str]) -> None:
        raise RuntimeError("no")

    alone.subscribe(("jobs",), fail)
    alone.subscribe(("jobs",), heard)
    alone.send("jobs", ("a",))
    assert heard.ids("jobs") == {"a"}


def test_an_unsubscribed_listener_is_left_alone(bus: Callable[[], Bus]) -> None:
    alone, heard = bus(), Heard()
    unsubscribe = alone.subscribe(("jobs",), heard)
    unsubscribe()
    alone.send("jobs", ("a",))
    assert not heard.calls


class SlowClient:
    """Casts that take a while and fail, as they do while the broker is away; then they work."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.tried: list[str] = []
        self.sent: list[str] = []

    def prepare(self, topic: str, fanout: bool) -> SlowClient:
        self.topic = topic
        return self

    def cast(self, context: object, method: str, *, kind: str, **told: object) -> None:
        self.tried.append(kind)
        if self.left:
            self.left -= 1
            threading.Event().wait(0.4)
            raise OSError("the broker is away")
        self.sent.append(kind)


def test_a_broker_that_was_away_costs_no_long_silence(
    bus: Callable[[], Bus], transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = SlowClient(2)
    monkeypatch.setattr(oslo_messaging, "get_rpc_client", lambda *args, **options: client)
    sender = bus()
    began = time.monotonic()
    sender.send("jobs", ("a",))
    sender.send("nodes", ("b",))
    until(lambda: "jobs" in client.sent, lambda: sender.send("jobs", ("c",)))
    # Two failed casts of 0.4 s, each followed by half a second at most.
    assert time.monotonic() - began < 2.8


def test_a_listener_has_one_worker_that_seldom_wakes(
    bus: Callable[[], Bus], transport: str
) -> None:
    """The library's defaults are 64 workers, and a dozen looks after each message."""
    before = {thread.ident for thread in threading.enumerate()}
    heard, sender, listener = Heard(), bus(), bus()
    listening(listener, heard, "jobs", sender)
    for number in range(20):
        sender.send("jobs", (f"job-{number}",))
        until(lambda number=number: f"job-{number}" in heard.ids("jobs"))  # type: ignore[misc]
    workers = [
        thread
        for thread in threading.enumerate()
        if thread.ident not in before and type(thread).__name__ == "ThreadWorker"
    ]
    assert len(workers) == 1
    assert amqpdriver.ACK_REQUEUE_EVERY_SECONDS_MIN == PAUSE_S

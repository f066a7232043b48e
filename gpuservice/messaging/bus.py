# SPDX-License-Identifier: Apache-2.0
"""A fan-out bus of wake-ups: best effort, coalesced, never blocking its senders.

Each kind of wake-up has a fan-out topic of its own, and a process listens to the kinds that it
subscribed to: nobody is woken by what does not concern it. A wake-up is first delivered to the
listeners of its own process, directly; then a sender thread casts it. What gathers within
``GAP_S`` of a cast is merged, so that a burst of a thousand state changes is a handful of
messages, and a single one goes at once. When the broker is away wake-ups are dropped: the
periodic passes find the work.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import oslo_messaging
from oslo_config import cfg

LOG = logging.getLogger(__name__)

TOPIC = "gpuservice.hints"
#: After a cast the next one of the process waits at least this long (seconds) and takes all
#: there is.
GAP_S = 0.05
#: And at most so long (seconds), whatever a cast took.
MAX_GAP_S = 0.5
#: Seconds until listening is tried again when it failed; periodic passes go on meanwhile.
AGAIN_S = 2.0
#: More ids than this in one wake-up are sent as "anything of this kind" (an empty list).
MAX_IDS = 500

_STARTING = threading.Lock()

Listener = Callable[[str, Sequence[str]], None]


class BusMisconfigured(Exception):
    """No broker can be reached by such a ``transport_url``."""


class _Endpoint:
    """What the oslo.messaging server calls."""

    target = oslo_messaging.Target(version="1.0")

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def hint(self, ctxt: dict[str, Any], sender: str, kind: str, ids: list[str]) -> None:
        """Deliver a wake-up cast by another process."""
        if sender != self._bus.sender:
            self._bus.deliver(kind, ids)


class Bus:
    """Sends and receives wake-ups.

    :param conf: the configuration, with oslo.messaging's options; ``transport_url`` decides
        (``rabbit://...`` between programs, ``fake://`` inside one).
    :param host: names this process's queues on the broker.
    """

    def __init__(self, conf: cfg.ConfigOpts, host: str, *, shared: bool = True) -> None:
        self.sender = uuid.uuid4().hex
        self._conf = conf
        # A name that stays: the broker keeps a queue for each, which nothing is ever sent to.
        self._host = host
        self._shared = shared
        self._lock = threading.Condition()
        self._listeners: list[tuple[frozenset[str], Listener]] = []
        self._pending: dict[str, set[str] | None] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._servers: dict[str, Any] = {}
        self._transport: Any = None

    def prepare(self) -> None:
        """Look whether there is such a broker; nothing is connected yet and no thread begun, so
        the process may still fork.

        :raises BusMisconfigured: when there is no such kind of broker.
        """
        if not self._shared or self._transport is not None:
            return
        try:
            self._transport = oslo_messaging.get_rpc_transport(self._conf)
        except (oslo_messaging.DriverLoadFailure, oslo_messaging.InvalidTransportURL) as error:
            raise BusMisconfigured(f"transport_url cannot be used: {error}") from error
        _register_missing(self._conf)
        _wait_longer()

    def start(self) -> None:
        """Connect in the background; sending and subscribing work at once.

        :raises BusMisconfigured: as :meth:`prepare`.
        """
        if not self._shared:
            return
        self.prepare()
        self.sender = uuid.uuid4().hex  # not that of other children of the same parent
        self._thread = threading.Thread(target=self._send_loop, name="bus-sender", daemon=True)
        self._thread.start()
        with self._lock:
            kinds = {kind for wanted, _ in self._listeners for kind in wanted}
        self._listen(kinds)

    def stop(self) -> None:
        """Stop listening and sending; what is still unsent is dropped.

        A broker that went away meanwhile is no reason for the process to end badly.
        """
        with self._lock:
            self._stopped.set()
            servers = [server for server in self._servers.values() if server is not None]
            self._lock.notify_all()
        for server in servers:
            _at_the_end(server.stop)
            _at_the_end(server.wait)
        if self._thread is not None:
            self._thread.join(timeout=2)
            _at_the_end(self._transport.cleanup)

    def subscribe(self, kinds: Iterable[str], listener: Listener) -> Callable[[], None]:
        """Call ``listener(kind, ids)`` for each wake-up of these kinds; it must be quick."""
        entry = (frozenset(kinds), listener)
        with self._lock:
            self._listeners = [*self._listeners, entry]
        self._listen(kinds)

        def unsubscribe() -> None:
            with self._lock:
                self._listeners = [one for one in self._listeners if one is not entry]

        return unsubscribe

    def send(self, kind: str, ids: Sequence[str]) -> None:
        """Wake the listeners of this process now and those of the others soon."""
        self.deliver(kind, ids)
        if not self._shared:
            return
        with self._lock:
            waiting = self._pending.setdefault(kind, set())
            if waiting is not None:
                waiting.update(ids)
                if not ids or len(waiting) > MAX_IDS:
                    self._pending[kind] = None
            self._lock.notify_all()

    def deliver(self, kind: str, ids: Sequence[str]) -> None:
        """Call this process's listeners; one that fails is logged and does not hinder others."""
        for kinds, listener in self._listeners:
            if kind not in kinds:
                continue
            try:
                listener(kind, ids)
            except Exception:
                LOG.exception("A listener for %s wake-ups failed", kind)

    def _listen(self, kinds: Iterable[str]) -> None:
        """Have a server for each kind, started in the background: the broker may be away."""
        if self._thread is None:
            return
        for kind in sorted(kinds):
            with self._lock:
                if kind in self._servers or self._stopped.is_set():
                    continue
                self._servers[kind] = None
            threading.Thread(
                target=self._serve, args=(kind,), name=f"bus-{kind}", daemon=True
            ).start()

    def _serve(self, kind: str) -> None:
        target = oslo_messaging.Target(topic=f"{TOPIC}.{kind}", server=self._host)
        while not self._stopped.is_set():
            try:
                # One after another: the library's own registries are not made for threads.
                with _STARTING:
                    server = oslo_messaging.get_rpc_server(
                        self._transport, target, [_Endpoint(self)], executor="threading"
                    )
                    # A worker thread looks once a second whether it may go: one is enough, as
                    # listeners are quick, and it keeps the order.
                    server.start(override_pool_size=1)
                break
            except Exception as error:
                LOG.warning("Cannot listen for %s wake-ups yet: %s", kind, error)
                self._stopped.wait(AGAIN_S)
        else:
            return
        with self._lock:
            self._servers[kind] = server
        if self._stopped.is_set():
            _at_the_end(server.stop)

    def _send_loop(self) -> None:
        client = oslo_messaging.get_rpc_client(
            self._transport, oslo_messaging.Target(version="1.0"), retry=1
        )
        while True:
            with self._lock:
                while not self._pending and not self._stopped.is_set():
                    self._lock.wait()
                if self._stopped.is_set():
                    return
                batch, self._pending = self._pending, {}
            began = time.monotonic()
            for kind, ids in batch.items():
                if not self._cast(client, kind, sorted(ids or ())):
                    break  # the broker is away: the others would each wait for it as well
            # Casting takes a fifth of the time, however loaded the machine is.
            took = time.monotonic() - began
            self._stopped.wait(min(max(GAP_S, 4 * took), MAX_GAP_S))

    def _cast(self, client: Any, kind: str, ids: Sequence[str]) -> bool:
        try:
            client.prepare(topic=f"{TOPIC}.{kind}", fanout=True).cast(
                {}, "hint", sender=self.sender, kind=kind, ids=ids
            )
        except Exception as error:
            LOG.warning("Wake-ups dropped, the message bus is away: %s", error)
            return False
        return True


def _at_the_end(part: Callable[[], object]) -> None:
    """Close a part; one that cannot be is left to the end of the process."""
    try:
        part()
    except Exception as error:
        LOG.info("The message bus was away at the end: %s", error)


#: Options that newer releases of oslo.messaging register on the global configuration alone and
#: read from the transport's at every cast: module, list of options, which is also the group.
_GLOBAL_OPTIONS = (
    ("oslo_messaging._metrics.client", "oslo_messaging_metrics"),
    ("oslo_messaging._tracing.client", "oslo_messaging_tracing"),
)


def _register_missing(conf: cfg.ConfigOpts) -> None:
    """Give this configuration the options without which every cast fails."""
    for module, name in _GLOBAL_OPTIONS:
        try:
            options = getattr(importlib.import_module(module), name, None)
        except ImportError:  # a release without this part
            continue
        if options is not None:
            conf.register_opts(options, group=name)


#: After a message a listener of oslo.messaging waits this long (seconds) for the next before it
#: looks for acknowledgements, and then twice as long each time.
PAUSE_S = 0.5


def _wait_longer() -> None:
    """The library begins with a millisecond, for the sake of messages that are acknowledged when
    they are done: a dozen wake-ups of the process after each. Casts are acknowledged as they come.
    """
    try:
        driver: Any = importlib.import_module("oslo_messaging._drivers.amqpdriver")
    except ImportError:  # a release without this part
        return
    if isinstance(getattr(driver, "ACK_REQUEUE_EVERY_SECONDS_MIN", None), float):
        driver.ACK_REQUEUE_EVERY_SECONDS_MIN = PAUSE_S

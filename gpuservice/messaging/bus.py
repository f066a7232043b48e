# SPDX-License-Identifier: Apache-2.0
"""A fan-out bus of wake-ups: best effort, coalesced, never blocking its senders.

Every process casts to one fan-out topic and listens on it. A wake-up is first delivered to the
listeners of its own process, directly; then a sender thread merges what has gathered in the
meantime and casts it, so that a burst of a hundred state changes is a handful of messages. When
the broker is away wake-ups are dropped: the periodic passes find the work.
"""

from __future__ import annotations

import importlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import oslo_messaging
from oslo_config import cfg

LOG = logging.getLogger(__name__)

TOPIC = "gpuservice.hints"
#: More ids than this in one wake-up are sent as "anything of this kind" (an empty list).
MAX_IDS = 500

Listener = Callable[[str, Sequence[str]], None]


class _Endpoint:
    """What the oslo.messaging server calls."""

    target = oslo_messaging.Target(version="1.0")

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def hint(self, ctxt: dict[str, Any], sender: str, kinds: dict[str, list[str]]) -> None:
        """Deliver wake-ups cast by another process."""
        if sender != self._bus.sender:
            for kind, ids in kinds.items():
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
        self._host = f"{host}-{self.sender[:8]}"
        self._shared = shared
        self._lock = threading.Condition()
        self._listeners: list[tuple[frozenset[str], Listener]] = []
        self._pending: dict[str, set[str] | None] = {}
        self._stopping = False
        self._threads: list[threading.Thread] = []
        self._server: Any = None
        self._transport: Any = None

    def start(self) -> None:
        """Connect in the background; sending and subscribing work at once."""
        if not self._shared:
            return
        self._transport = oslo_messaging.get_rpc_transport(self._conf)
        _register_missing(self._conf)
        for target in (self._listen, self._send_loop):
            thread = threading.Thread(target=target, name=f"bus{target.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Stop listening and sending; what is still unsent is dropped."""
        with self._lock:
            self._stopping = True
            self._lock.notify_all()
        if self._server is not None:
            self._server.stop()
            self._server.wait()
        if self._transport is not None:
            for thread in self._threads:
                thread.join(timeout=2)
            self._transport.cleanup()

    def subscribe(self, kinds: Iterable[str], listener: Listener) -> Callable[[], None]:
        """Call ``listener(kind, ids)`` for each wake-up of these kinds; it must be quick."""
        entry = (frozenset(kinds), listener)
        with self._lock:
            self._listeners = [*self._listeners, entry]

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

    def _listen(self) -> None:
        target = oslo_messaging.Target(topic=TOPIC, server=self._host)
        try:
            server = oslo_messaging.get_rpc_server(
                self._transport, target, [_Endpoint(self)], executor="threading"
            )
            server.start()
        except Exception:
            if not self._stopping:
                LOG.exception("Cannot listen for wake-ups; periodic passes go on")
            return
        self._server = server

    def _send_loop(self) -> None:
        client = oslo_messaging.get_rpc_client(
            self._transport, oslo_messaging.Target(topic=TOPIC, version="1.0"), retry=1
        ).prepare(fanout=True)
        while True:
            with self._lock:
                while not self._pending and not self._stopping:
                    self._lock.wait()
                if self._stopping:
                    return
                batch, self._pending = self._pending, {}
            kinds = {kind: sorted(ids) if ids else [] for kind, ids in batch.items()}
            try:
                client.cast({}, "hint", sender=self.sender, kinds=kinds)
            except Exception as error:
                LOG.warning("Wake-ups dropped, the message bus is away: %s", error)


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

# SPDX-License-Identifier: Apache-2.0
"""The listening end of the programs that serve HTTP: waitress, started and stopped cleanly."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from typing import Any

from oslo_config import cfg
from prometheus_client import CollectorRegistry, start_http_server
from waitress.server import create_server

from gpuservice.auth.strategies import is_loopback

#: How long requests at work may take to end when the program ends, seconds.
DRAIN_S = 2.0
#: The most and the fewest clients that may be connected at once.
MAX_CONNECTIONS, MIN_CONNECTIONS = 2000, 16
#: Files that the program itself may have open, and each agent that lives in it.
OWN_FILES, AGENT_FILES = 256, 16
#: Added to the largest artifact: what surrounds it in a request.
_SLACK = 1 << 20


def connection_limit(agents: int = 0) -> int:
    """How many clients may be connected: as many files as may be open, less what the program
    itself and the agents that live in it need."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    left = soft - OWN_FILES - AGENT_FILES * agents
    known = MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else left
    return max(MIN_CONNECTIONS, min(MAX_CONNECTIONS, known))


def refuse_too_many_agents(program: str, agents: int) -> None:
    """Exit rather than start agents that have not enough files together."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = OWN_FILES + AGENT_FILES * agents + MIN_CONNECTIONS
    if soft != resource.RLIM_INFINITY and needed > soft:
        most = max(soft - OWN_FILES - MIN_CONNECTIONS, 0) // AGENT_FILES
        raise SystemExit(
            f"{program}: {agents} hosts need {needed} open files, and {soft} are allowed: raise "
            f"the limit (ulimit -n), or have at most {most} (--hosts)"
        )


class Listener:
    """Serves a WSGI application on ``[api] listen_address`` and ``listen_port``.

    :param on_stop: lets go of requests that only wait.
    :param agents: how many agents live in this process.
    :raises SystemExit: when it cannot listen there.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        application: Any,
        on_stop: Callable[[], None],
        agents: int = 0,
    ) -> None:
        api = conf.api
        self._on_stop = on_stop
        try:
            self._server: Any = create_server(
                application,
                host=api.listen_address,
                port=api.listen_port,
                threads=api.threads,
                max_request_body_size=conf.artifacts.max_bytes + _SLACK,
                ident="gpuservice",
                channel_timeout=120,
                connection_limit=connection_limit(agents),
                # select() ends at 1,024 files, whoever opens them.
                asyncore_use_poll=True,
                backlog=1024,
                clear_untrusted_proxy_headers=False,
            )
        except (OSError, ValueError) as error:
            raise _deaf(conf, api.listen_port, error) from error
        host = f"[{api.listen_address}]" if ":" in api.listen_address else api.listen_address
        self.url = f"http://{host}:{self._server.effective_port}"

    def run(self, stop: threading.Event) -> None:
        """Serve until told to stop; requests at work then have ``DRAIN_S`` to end.

        :raises SystemExit: when the server ended by itself.
        """
        thread = threading.Thread(target=self._server.run, name="http-sockets", daemon=True)
        thread.start()
        while not stop.wait(0.5):
            if not thread.is_alive():
                raise SystemExit("the HTTP server has ended by itself; its log says why")
        self._server.accepting = False
        self._on_stop()
        self._server.task_dispatcher.shutdown(timeout=DRAIN_S)
        # waitress's loop runs while its map of sockets is not empty, and only its own thread may
        # change that map.
        self._server.trigger.pull_trigger(self._server._map.clear)
        thread.join(DRAIN_S)
        if not self._server.task_dispatcher.threads:
            self._server.close()
        # Else a request is still at work and would trip over what was closed; it ends with the
        # program.


class MetricsListener:
    """Serves ``/metrics`` on a port of its own, so that it can be kept from tenants.

    :raises SystemExit: when it cannot listen there.
    """

    def __init__(self, conf: cfg.ConfigOpts, registry: CollectorRegistry) -> None:
        self._server: Any = None
        port = conf.api.metrics_port
        if port is not None:
            try:
                self._server, _ = start_http_server(
                    port, addr=conf.api.listen_address, registry=registry
                )
            except OSError as error:
                raise _deaf(conf, port, error) from error

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def _deaf(conf: cfg.ConfigOpts, port: int, error: Exception) -> SystemExit:
    where = f"{conf.api.listen_address} port {port}"
    return SystemExit(f"{conf.prog}: cannot listen on {where}: {error}")


def refuse_open_noauth(conf: cfg.ConfigOpts, program: str) -> None:
    """Exit rather than serve the whole network without authentication."""
    if conf.api.auth_strategy == "noauth" and not is_loopback(conf.api.listen_address):
        raise SystemExit(
            f"{program}: without authentication only loopback may be listened on, not "
            f"{conf.api.listen_address}; set [api] auth_strategy"
        )

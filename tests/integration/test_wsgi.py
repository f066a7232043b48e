# SPDX-License-Identifier: Apache-2.0
"""The API in a foreign WSGI server, which loads it before it forks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import oslo_messaging
import pytest
from cluster import RABBIT, Cluster, free_port, running_cluster
from oslo_config import cfg
from programs import until
from rest import Rest

from gpuservice.conf import opts
from gpuservice.messaging.bus import Bus

pytestmark = [pytest.mark.services]

WORKERS = 2


@contextmanager
def gunicorn(cluster: Cluster) -> Iterator[str]:
    """gunicorn with the application preloaded; its URL."""
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--preload", "--threads=8"]
    command += [f"--workers={WORKERS}", f"--bind=127.0.0.1:{port}", "gpuservice.wsgi:application"]
    environment = {**os.environ, "GPUSERVICE_CONFIG_FILES": str(cluster.configs[0])}
    with (cluster.place / "gunicorn.log").open("ab") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        assert server.wait(30) == 0


@contextmanager
def hearing(*kinds: str) -> Iterator[Callable[[str], bool]]:
    """Listens to the broker as one more process; whether an id was named in a wake-up."""
    conf = cfg.ConfigOpts()
    opts.register_all(conf)
    conf([], default_config_files=[])
    oslo_messaging.get_rpc_transport(conf, "fake://").cleanup()  # registers the options
    conf.set_override("transport_url", os.environ[RABBIT])
    bus = Bus(conf, f"test-{uuid.uuid4().hex[:8]}")
    heard: set[str] = set()
    lock = threading.Lock()

    def note(kind: str, ids: Sequence[str]) -> None:
        with lock:
            heard.update(ids)

    bus.subscribe(kinds, note)
    bus.start()
    try:
        yield lambda ident: ident in heard
    finally:
        bus.stop()


def submit(url: str) -> str:
    """By a connection of its own, so that any child may get it."""
    api = Rest([url], "vision", "member")
    job = {"job": {"name": "j", "command": ["true"], "hold": True}}
    return str(api.post("/jobs", job)["job"]["id"])


def test_children_of_a_server_that_loads_before_it_forks_wake_others(backend: str) -> None:
    with (
        running_cluster(backend, hosts=1, gpus=1) as cluster,
        hearing("jobs") as heard,
        gunicorn(cluster) as url,
    ):
        cluster.furnish()
        seen: set[str] = set()

        def every_child_woke_somebody() -> bool:
            ident = submit(url)
            until(lambda: heard(ident), f"the wake-up for {ident}", 10)
            seen.update(
                one["host"] + one["id"]
                for one in cluster.admin.all("services")
                if one["binary"] == "gpuservice-api"
            )
            return len(seen) >= len(cluster.of_kind("api")) + WORKERS

        until(lambda: submit(url), "an answer")
        until(every_child_woke_somebody, "a request to every child")

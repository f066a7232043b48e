# SPDX-License-Identifier: Apache-2.0
"""gpuservice-api: the REST API on a WSGI server of its own."""

from __future__ import annotations

import sys
import threading

from gpuservice import bootstrap
from gpuservice.api.metrics import RequestMetrics
from gpuservice.cmd.heartbeat import beating
from gpuservice.cmd.lifetime import (
    configuration,
    plainly,
    refuse_sqlite,
    run_until_signalled,
    start_serving,
)
from gpuservice.cmd.serving import Listener, MetricsListener, refuse_open_noauth

PROGRAM = "gpuservice-api"


@plainly(PROGRAM)
def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM."""
    conf = configuration(sys.argv[1:] if argv is None else argv, PROGRAM)
    start_serving(conf, PROGRAM)
    refuse_sqlite(conf, PROGRAM)
    refuse_open_noauth(conf, PROGRAM)
    core = bootstrap.core(conf)

    def run(stop: threading.Event) -> None:
        metrics = RequestMetrics()
        services = bootstrap.services(core)
        application = bootstrap.application(core, services, metrics.observe)
        listener = Listener(conf, application, services.waiting_room.close)
        served = MetricsListener(conf, metrics.registry)
        with beating(core, PROGRAM):
            print(f"{PROGRAM} ready at {listener.url}", flush=True)
            listener.run(stop)
        served.close()

    try:
        return run_until_signalled(run)
    finally:
        core.close()


if __name__ == "__main__":
    sys.exit(main())

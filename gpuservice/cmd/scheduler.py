# SPDX-License-Identifier: Apache-2.0
"""gpuservice-scheduler: decides what starts where."""

from __future__ import annotations

import sys

from gpuservice import bootstrap
from gpuservice.cmd.heartbeat import beating
from gpuservice.cmd.lifetime import (
    configuration,
    freeze_garbage_collection,
    plainly,
    refuse_sqlite,
    run_until_signalled,
    start_serving,
)

PROGRAM = "gpuservice-scheduler"


@plainly(PROGRAM)
def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM."""
    conf = configuration(sys.argv[1:] if argv is None else argv, PROGRAM)
    start_serving(conf, PROGRAM)
    refuse_sqlite(conf, PROGRAM)
    core = bootstrap.core(conf)
    try:
        scheduler = bootstrap.scheduler(core)
        freeze_garbage_collection()
        with beating(core, PROGRAM):
            return run_until_signalled(scheduler.run)
    finally:
        core.close()


if __name__ == "__main__":
    sys.exit(main())

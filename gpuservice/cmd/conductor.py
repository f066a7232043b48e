# SPDX-License-Identifier: Apache-2.0
"""gpuservice-conductor: makes what is wanted so."""

from __future__ import annotations

import sys

from gpuservice import bootstrap
from gpuservice.cmd.heartbeat import beating
from gpuservice.cmd.lifetime import (
    configuration,
    plainly,
    refuse_sqlite,
    run_until_signalled,
    start_serving,
)

PROGRAM = "gpuservice-conductor"


@plainly(PROGRAM)
def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM."""
    conf = configuration(sys.argv[1:] if argv is None else argv, PROGRAM)
    start_serving(conf, PROGRAM)
    refuse_sqlite(conf, PROGRAM)
    core = bootstrap.core(conf)
    try:
        with beating(core, PROGRAM):
            return run_until_signalled(bootstrap.conductor(core).run)
    finally:
        core.close()


if __name__ == "__main__":
    sys.exit(main())

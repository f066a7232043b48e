# SPDX-License-Identifier: Apache-2.0
"""From start to clean stop: configuration, logging, signals."""

from __future__ import annotations

import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from oslo_config import cfg
from oslo_log import log as oslo_logging

from gpuservice import version
from gpuservice.agent import open_files
from gpuservice.conf import opts
from gpuservice.domain.errors import Misconfigured
from gpuservice.messaging.bus import BusMisconfigured

LOG = logging.getLogger(__name__)


def configuration(
    argv: Sequence[str], program: str, files: Sequence[str] | None = None
) -> cfg.ConfigOpts:
    """The configuration of one program: every option registered, files and argv read.

    :raises SystemExit: on a wrong option, with one line on stderr.
    """
    conf = cfg.ConfigOpts()
    oslo_logging.register_options(conf)
    opts.register_all(conf)
    try:
        conf(
            list(argv),
            project="gpuservice",
            prog=program,
            version=version.release(),
            default_config_files=list(files) if files is not None else None,
        )
        _read_all(conf)
    except cfg.Error as error:
        raise SystemExit(f"{program}: {error}") from error
    return conf


def _read_all(conf: cfg.ConfigOpts) -> None:
    """Read each option once: a wrong value is to be found now, not when it is first needed.

    :raises cfg.Error: for a value that is not of its option's type.
    """
    for name in conf:
        held = conf[name]
        if isinstance(held, cfg.ConfigOpts.GroupAttr):
            for option in held:
                held[option]


@contextmanager
def plainly(program: str) -> Iterator[None]:
    """What the configuration names and is not there ends the program with one line, as a wrong
    option does.

    :raises SystemExit: with that line.
    """
    try:
        yield
    except (cfg.Error, Misconfigured, BusMisconfigured) as error:
        raise SystemExit(f"{program}: {' '.join(str(error).split())}") from error


def start_serving(conf: cfg.ConfigOpts, program: str) -> None:
    """What programs that go on running begin with: as many open files as may be, and oslo.log as
    configured."""
    open_files.raise_limit()
    start_logging(conf, program)


def start_logging(conf: cfg.ConfigOpts, program: str) -> None:
    """Set oslo.log up from the configuration."""
    oslo_logging.set_defaults(
        default_log_levels=[
            *oslo_logging.get_default_log_levels(),
            "alembic=WARN",
            "waitress=WARN",
            "oslo_messaging=WARN",
        ]
    )
    oslo_logging.setup(conf, program)


def freeze_garbage_collection() -> None:
    """What a program has when it begins to work (its modules above all) stays until its end: the
    collector of garbage need not look through all of it again and again."""
    gc.collect()
    gc.freeze()


def run_until_signalled(run: Callable[[threading.Event], None]) -> int:
    """Run until SIGTERM or SIGINT, which set the event; a second signal ends at once.

    ``run`` must return soon after the event is set. Returns the exit status.
    """
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            sys.exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    run(stop)
    return 0


def sleep_until(stop: threading.Event) -> None:
    """Block until the event is set, leaving the main thread open to signals."""
    while not stop.wait(1.0):
        continue


def refuse_sqlite(conf: cfg.ConfigOpts, program: str) -> None:
    """Exit when the database is SQLite: it is for one process, the all-in-one."""
    url = conf.database.connection or ""
    if not url:
        raise SystemExit(f"{program}: [database] connection is not set")
    if url.startswith("sqlite"):
        raise SystemExit(
            f"{program}: SQLite is for gpuservice-all-in-one alone; use PostgreSQL or MariaDB"
        )

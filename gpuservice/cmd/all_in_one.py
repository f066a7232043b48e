# SPDX-License-Identifier: Apache-2.0
"""gpuservice-all-in-one: the whole service in one process, for a laptop or a single GPU box."""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from oslo_config import cfg

from gpuservice import bootstrap
from gpuservice.api.metrics import RequestMetrics
from gpuservice.cmd import geometry
from gpuservice.cmd.embedded_guests import EmbeddedGuests
from gpuservice.cmd.heartbeat import beating
from gpuservice.cmd.lifetime import configuration, plainly, run_until_signalled, start_serving
from gpuservice.cmd.parts import Parts
from gpuservice.cmd.seeding import NotReady, seed
from gpuservice.cmd.serving import (
    Listener,
    MetricsListener,
    refuse_open_noauth,
    refuse_too_many_agents,
)
from gpuservice.db import migrations

PROGRAM = "gpuservice-all-in-one"
_FOLDERS = {"agents": 0o711, "data": 0o1777, "logs": 0o700, "objects": 0o700, "cloud": 0o700}


def _number(most: int) -> Callable[[str], int]:
    """What reads a whole number from 1 to ``most``."""

    def read(text: str) -> int:
        if not (text.isdecimal() and 1 <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
        return int(text)

    return read


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument(
        "--state-dir",
        required=True,
        metavar="DIR",
        help="where everything is kept; start again on it to carry on",
    )
    parser.add_argument("--listen", default="127.0.0.1:9797", metavar="HOST:PORT")
    # Without a default here: what a state directory was begun with holds until it is removed.
    parser.add_argument("--hosts", type=_number(4000), help="simulated hosts (8)")
    parser.add_argument("--gpus-per-host", type=_number(64), help="their GPUs (8)")
    parser.add_argument("--gpu-type", help="of this type (a100-80gb)")
    parser.add_argument(
        "--cloud",
        choices=("simulated", "local"),
        help="local: the NVIDIA cards of this machine (simulated)",
    )
    parser.add_argument(
        "--stop-tasks",
        action="store_true",
        help="end all tasks at the end instead of leaving them to the next start",
    )
    parser.add_argument("--config-file", metavar="FILE")
    return parser


def _configure(given: argparse.Namespace) -> cfg.ConfigOpts:
    """Defaults for one process on one directory; a configuration file may say otherwise."""
    state = Path(given.state_dir).resolve()
    host, _, port = given.listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise SystemExit(f"{PROGRAM}: --listen is {given.listen!r}; it must be HOST:PORT")
    files = ["--config-file", given.config_file] if given.config_file else []
    conf = configuration(files, PROGRAM, None if files else [])
    defaults: tuple[tuple[str, str, object], ...] = (
        ("connection", "database", f"sqlite:///{state}/gpuservice.sqlite"),
        ("auth_strategy", "api", "noauth"),
        ("listen_address", "api", host.strip("[]")),
        ("listen_port", "api", int(port)),
        ("directory", "logs", str(state / "logs")),
        ("directory", "artifacts", str(state / "objects")),
        ("state_dir", "simulated", str(state / "cloud")),
        ("power_off", "simulated", True),
        ("settle_s", "cloud", 0.0),
        ("lease_s", "agent", 10),
        ("interval_s", "agent", 1.0),
        ("loss_margin_s", "conductor", 2),
        ("inventory_interval_s", "conductor", 2),
        ("threads", "api", 48),
        ("max_waiting", "api", 32),
        ("file_roots", "agent", [str(state / "data")]),
    )
    for name, group, value in defaults:
        conf.set_default(name, value, group)
    geometry.decide(conf, state, vars(given))
    return conf


def _take(state: Path) -> int:
    """Make the state directory ours, for this process alone; returns the handle that holds it.

    :raises SystemExit: when another one serves it, or it cannot be used.
    """
    try:
        state.mkdir(mode=0o711, parents=True, exist_ok=True)
        os.umask(0o077)
        lock = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise SystemExit(
                f"{PROGRAM}: another one (process {pid}) uses the state directory {state}"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        _close_to_tasks(state)
    except OSError as error:
        raise SystemExit(f"{PROGRAM}: the state directory cannot be used: {error}") from error
    return lock


def _close_to_tasks(state: Path) -> None:
    """Where mounts cannot hide it, a task may pass to its own folder, and read nothing on the way.

    ``data`` is theirs to share: all may add files there, and none replaces another's.
    """
    for name, mode in _FOLDERS.items():
        (state / name).mkdir(exist_ok=True)
        (state / name).chmod(mode)
    for file in state.glob("gpuservice.sqlite*"):
        file.chmod(0o600)


@plainly(PROGRAM)
def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM; running tasks go on and are found again at the next start."""
    given = _parser().parse_args(argv)
    state = Path(given.state_dir).resolve()
    lock = _take(state)
    conf = _configure(given)
    start_serving(conf, PROGRAM)
    refuse_open_noauth(conf, PROGRAM)
    refuse_too_many_agents(PROGRAM, geometry.hosts(conf))
    geometry.look_at_cards(conf)
    core = bootstrap.core(conf, shared_bus=False)
    migrations.upgrade(core.store.engine)

    def run(stop: threading.Event) -> None:
        _run(core, state, stop, given.stop_tasks)

    try:
        with beating(core, PROGRAM):
            return run_until_signalled(run)
    finally:
        core.close()
        os.close(lock)


def _run(core: bootstrap.Core, state: Path, stop: threading.Event, stop_tasks: bool) -> None:
    services = bootstrap.services(core)
    metrics = RequestMetrics()
    application = bootstrap.application(core, services, metrics.observe)
    agents = geometry.hosts(core.conf)
    listener = Listener(core.conf, application, services.waiting_room.close, agents)
    served = MetricsListener(core.conf, metrics.registry)
    core.conf.set_default("public_url", listener.url, "api")
    guests = EmbeddedGuests(core.conf, state / "agents", stop_tasks, listener.url)
    conductor, scheduler = bootstrap.conductor(core), bootstrap.scheduler(core)
    parts = Parts(
        PROGRAM,
        stop,
        {
            "http": listener.run,
            "conductor": conductor.run,
            "scheduler": scheduler.run,
            "guests": guests.run,
        },
    )
    geometry.keep(core.conf, state)
    parts.start()
    try:
        seed(services, stop)
        if not stop.is_set():
            print(f"gpuservice ready at {listener.url}", flush=True)
    except NotReady as error:
        stop.set()
        raise SystemExit(f"{PROGRAM}: {error}") from error
    except BaseException:
        stop.set()
        raise
    finally:
        try:
            parts.join()
        finally:
            served.close()


if __name__ == "__main__":
    sys.exit(main())

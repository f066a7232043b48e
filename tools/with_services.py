#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run a command with private RabbitMQ, PostgreSQL and MariaDB servers beside it.

    python tools/with_services.py [--only rabbitmq,postgresql] [--durable] -- pytest tests
    python tools/with_services.py --restart rabbitmq      # from within such a command

pifpaf's drivers start the servers in temporary directories and stop them at the end. The command
finds their addresses in the environment variables of ``VARIABLES``. While it runs it may ask for
a restart of a server (the second form), which is how tests take a service away from its users.

PostgreSQL refuses to run as root, so root starts the servers as the user ``postgres`` (or
``nobody``); the command itself keeps its own user.
"""

from __future__ import annotations

import argparse
import getpass
import logging
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psutil
from pifpaf import drivers
from pifpaf.drivers import mysql, postgresql, rabbitmq

#: Service -> the environment variable that carries its URL.
VARIABLES = {
    "rabbitmq": "GPUSERVICE_TEST_RABBIT_URL",
    "postgresql": "GPUSERVICE_TEST_POSTGRESQL_URL",
    "mariadb": "GPUSERVICE_TEST_MARIADB_URL",
}
#: Path of the socket on which restarts are asked for.
CONTROL = "GPUSERVICE_TEST_SERVICES"
#: Enough for every process of the integration tests with full pools.
CONNECTIONS = 500


def server_user() -> str | None:
    """Return whom the servers run as, or ``None`` for the caller himself."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


class Unprivileged(drivers.Driver):  # type: ignore[misc]
    """Gives the temporary directory to, and runs every command as, the servers' user."""

    user: str | None = server_user()

    def _exec(self, command: list[str], **options: Any) -> Any:
        if self.user is not None:
            for path in (Path(self.tempdir), *Path(self.tempdir).iterdir()):
                shutil.chown(path, self.user)
            identity = [f"--reuid={self.user}", "--regid", _group(self.user), "--init-groups"]
            command = ["setpriv", *identity, "--", *command]
        return super()._exec(command, **options)

    def owner(self) -> str:
        """Return the name of the user that owns the server."""
        return self.user or getpass.getuser()


def _group(user: str) -> str:
    return str(pwd.getpwnam(user).pw_gid)


def free_port() -> int:
    """Return a TCP port of the loopback that nobody uses now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Postgresql(postgresql.PostgreSQLDriver, Unprivileged):  # type: ignore[misc]
    """A PostgreSQL cluster; ``durable`` keeps fsync on, for measurements."""

    def __init__(self, durable: bool) -> None:
        super().__init__(port=free_port(), host="127.0.0.1", sync=durable)
        self._start: list[str] = []

    def _exec(self, command: list[str], **options: Any) -> Any:
        if command[-1] == "start":
            log = os.path.join(self.tempdir, "postgresql.log")
            place = command.index("-o") + 1
            command = [
                *command[:place],
                f"{command[place]} -N {CONNECTIONS}",
                *command[place + 1 :],
            ]
            self._start = command = [command[0], "-l", log, *command[1:]]
        return super()._exec(command, **options)

    def address(self) -> str:
        """Return the server's SQLAlchemy URL."""
        return f"postgresql+psycopg2://{self.owner()}@127.0.0.1:{self.port}/postgres"

    def restart(self) -> None:
        """Take the server away under its clients' hands and bring it back."""
        Unprivileged._exec(self, [self._start[0], "-w", "-m", "immediate", "stop"])
        Unprivileged._exec(self, self._start)


class Mariadb(mysql.MySQLDriver, Unprivileged):  # type: ignore[misc]
    """A MariaDB server on a socket of its own."""

    def __init__(self, durable: bool) -> None:
        super().__init__()
        self._durable = durable
        self._start: list[str] = []
        self._server: psutil.Popen | None = None

    def _exec(self, command: list[str], **options: Any) -> Any:
        if command[0] == "mysqld" and any(word.startswith("--socket") for word in command):
            command = [*command[:-1], f"--user={self.owner()}", *self._settings()]
            self._start = command
        answer = super()._exec(command, **options)
        if command is self._start:
            self._server = answer[0]
        return answer

    def _settings(self) -> list[str]:
        return [
            f"--max-connections={CONNECTIONS}",
            "--character-set-server=utf8mb4",
            "--collation-server=utf8mb4_general_ci",
            f"--innodb-flush-log-at-trx-commit={1 if self._durable else 0}",
        ]

    def address(self) -> str:
        """Return the server's SQLAlchemy URL."""
        return f"mysql+pymysql://root@localhost/pifpaf?unix_socket={self.socket}&charset=utf8mb4"

    def restart(self) -> None:
        """Kill the server and start it again on the same data."""
        assert self._server is not None
        os.killpg(self._server.pid, signal.SIGKILL)
        self._server.wait()
        self._exec(
            self._start, wait_for_line="mysqld: ready for connections.", path=["/usr/libexec"]
        )


class Rabbitmq(rabbitmq.RabbitMQDriver, Unprivileged):  # type: ignore[misc]
    """A single RabbitMQ node."""

    def __init__(self, durable: bool) -> None:
        port = free_port()
        super().__init__(port=port, nodename=f"gpuservice-{port}")

    def _setUp(self) -> None:
        # The listener of the cluster is port + 20000 by default, which may be beyond 65535.
        self.useFixture(_environment("RABBITMQ_DIST_PORT", str(free_port())))
        super()._setUp()

    def address(self) -> str:
        """Return the oslo.messaging transport URL."""
        return f"rabbit://{self.username}:{self.password}@127.0.0.1:{self.port}//"

    def restart(self) -> None:
        """Stop the node and start it again; users and durable queues stay."""
        node = f"{self.nodename}@localhost"
        self.kill_node(node)
        self.start_node(node)


def _environment(name: str, value: str) -> Any:
    import fixtures

    return fixtures.EnvironmentVariable(name, value)


SERVICES: dict[str, Callable[[bool], Any]] = {
    "rabbitmq": Rabbitmq,
    "postgresql": Postgresql,
    "mariadb": Mariadb,
}


def serve_restarts(listener: socket.socket, running: dict[str, Any]) -> None:
    """Answer each connection that names a service once that service is back."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # the listener was closed: the command has ended
            return
        with connection:
            name = connection.recv(64).decode().strip()
            try:
                running[name].restart()
                answer = "ok"
            except (KeyError, RuntimeError, OSError) as error:
                answer = f"{type(error).__name__}: {error}"
            connection.sendall(answer.encode())


def ask_restart(name: str) -> int:
    """Ask the surrounding run to restart ``name`` and wait for it; return an exit status."""
    with closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.connect(os.environ[CONTROL])
        connection.sendall(name.encode())
        answer = connection.recv(1024).decode()
    if answer != "ok":
        print(f"{name}: {answer}", file=sys.stderr)
    return 0 if answer == "ok" else 1


def run(names: Sequence[str], durable: bool, command: Sequence[str]) -> int:
    """Start the services, run the command, stop the services; return the command's status."""
    with ExitStack() as stack:
        running: dict[str, Any] = {}
        environment = dict(os.environ)
        for name in names:
            driver = SERVICES[name](durable)
            driver.setUp()
            stack.callback(driver.cleanUp)
            running[name] = driver
            environment[VARIABLES[name]] = driver.address()
            print(f"{name} ready at {driver.address()}", flush=True)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="services-")))
        environment[CONTROL] = str(folder / "control")
        listener = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
        listener.bind(environment[CONTROL])
        listener.listen()
        threading.Thread(target=serve_restarts, args=(listener, running), daemon=True).start()
        return subprocess.run(list(command), env=environment, check=False).returncode


def main() -> int:
    """Parse the command line and act on it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", default=",".join(SERVICES), help="comma-separated services")
    parser.add_argument("--durable", action="store_true", help="write through, for benchmarks")
    parser.add_argument("--restart", choices=sorted(SERVICES), help="restart a running service")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.restart:
        return ask_restart(options.restart)
    command = [word for word in options.command if word != "--"] or [os.environ["SHELL"]]
    # pifpaf warns of every short-lived command it cleans up after.
    logging.getLogger("pifpaf").setLevel(logging.ERROR)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return run(options.only.split(","), options.durable, command)


if __name__ == "__main__":
    sys.exit(main())

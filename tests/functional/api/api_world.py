# SPDX-License-Identifier: Apache-2.0
"""A whole API over a SQLite file of its own: what tests of endpoints are built on.

``World`` has the application with its ports, ``Client`` speaks for one caller. ``World.seed``
puts a small cluster there: one GPU type, hosts with devices, a flavor, a pool with ready nodes
and the open queue ``default``.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from api_cluster import OPERATORS_PROJECT, Cluster, small_cluster
from oslo_config import cfg
from sqlalchemy import event
from werkzeug.test import TestResponse

from gpuservice.api.app import create_app
from gpuservice.auth.enforcer import Enforcer
from gpuservice.auth.strategies import strategy
from gpuservice.conf import opts, quota
from gpuservice.db.engine import create_engine
from gpuservice.db.store import DatabaseStore
from gpuservice.domain.ports import DryRun, Hint
from gpuservice.domain.work import Job
from gpuservice.drivers.logs.file import FileLogStore
from gpuservice.drivers.objects.file import FileObjectStore
from gpuservice.services.deps import Deps
from gpuservice.services.registry import build


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class RandomIds:
    """Random UUIDs and secrets."""

    def new(self) -> str:
        return str(uuid.uuid4())

    def secret(self) -> str:
        return secrets.token_hex(32)


@dataclass
class KnownHints:
    """Delivers hints to its listeners at once and keeps them."""

    sent: list[Hint] = field(default_factory=list)
    listeners: list[tuple[frozenset[str], Callable[[Hint], None]]] = field(default_factory=list)

    def send(self, hint: Hint) -> None:
        self.sent.append(hint)
        for kinds, listener in list(self.listeners):
            if hint.kind in kinds:
                listener(hint)

    def subscribe(
        self, kinds: Iterable[str], listener: Callable[[Hint], None]
    ) -> Callable[[], None]:
        entry = (frozenset(kinds), listener)
        self.listeners.append(entry)
        return lambda: self.listeners.remove(entry)


class NoPlanning:
    """Every job would start now."""

    def dry_run(self, job: Job) -> DryRun:
        return DryRun("starts_now")


class Client:
    """One caller; paths start after ``/v1``."""

    def __init__(self, app: Any, headers: Mapping[str, str]) -> None:
        self._app = app
        self.headers = dict(headers)

    def raw(self, method: str, path: str, **more: Any) -> TestResponse:
        """One request as it is; ``headers`` are added to the caller's (None removes one)."""
        headers = {**self.headers, **more.pop("headers", {})}
        return self._app.test_client().open(
            path,
            method=method,
            headers={k: v for k, v in headers.items() if v is not None},
            base_url="http://127.0.0.1:9797",
            **more,
        )

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> TestResponse:
        """A request under ``/v1`` with a JSON body; ``If_Match`` is the header ``If-Match``."""
        more: dict[str, Any] = {"headers": {k.replace("_", "-"): v for k, v in headers.items()}}
        if body is not None:
            more |= {"data": json.dumps(body), "content_type": "application/json"}
        return self.raw(method, f"/v1{path}", **more)

    def get(self, path: str, **headers: str) -> TestResponse:
        return self.send("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> TestResponse:
        return self.send("POST", path, body, **headers)

    def patch(self, path: str, body: Any, **headers: str) -> TestResponse:
        return self.send("PATCH", path, body, **headers)

    def delete(self, path: str, **headers: str) -> TestResponse:
        return self.send("DELETE", path, **headers)


class World:
    """The application with everything behind it."""

    def __init__(self, folder: Path, template: Path) -> None:
        shutil.copy(template, folder / "api.db")
        self.conf = configuration(folder)
        self.engine = create_engine(f"sqlite:///{folder / 'api.db'}")
        self.hints = KnownHints()
        self.clock, self.ids = SystemClock(), RandomIds()
        self.store = DatabaseStore(self.engine, self.clock, self.ids, quota.defaults(self.conf))
        self.services = build(
            Deps(
                self.store,
                self.hints,
                self.clock,
                self.ids,
                self.conf,
                FileLogStore(self.conf),
                FileObjectStore(self.conf),
                NoPlanning(),
            )
        )
        self.app = create_app(self.services, strategy(self.conf), Enforcer(self.conf), self.conf)

    def client(
        self, project: str = "vision", *roles: str, user: str = "ada", **headers: str
    ) -> Client:
        """A caller; without roles a member."""
        return Client(
            self.app,
            {
                "X-Project-Id": project,
                "X-User-Id": user,
                "X-Roles": ",".join(roles or ["member"]),
                **headers,
            },
        )

    @property
    def admin(self) -> Client:
        """The operator."""
        return self.client(OPERATORS_PROJECT, "admin", user="root")

    @contextmanager
    def statements(self) -> Any:
        """The SQL that runs meanwhile."""
        seen: list[str] = []

        def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
            seen.append(statement)

        event.listen(self.engine, "before_cursor_execute", note)
        try:
            yield seen
        finally:
            event.remove(self.engine, "before_cursor_execute", note)

    def recount(self) -> list[Any]:
        """Where the quota ledger differs from what the rows say."""
        return self.store.read(lambda uow: uow.quotas.recount())

    def seed(
        self, nodes: int = 2, gpus: int = 4, project: str = OPERATORS_PROJECT, name: str = "shared"
    ) -> Cluster:
        """A cluster of one pool that serves the cloud-wide queue ``default``."""
        return self.store.write(
            lambda uow: small_cluster(uow, self.ids.new, nodes, gpus, project, name)
        )


def configuration(folder: Path) -> cfg.ConfigOpts:
    """The service's options, with everything that is stored below ``folder``."""
    conf = cfg.ConfigOpts()
    opts.register_all(conf)
    conf([], project="gpuservice", default_config_files=[], default_config_dirs=[])
    for group, name, value in (
        ("api", "auth_strategy", "noauth"),
        ("api", "response_validation", "error"),
        ("logs", "directory", str(folder / "logs")),
        ("artifacts", "directory", str(folder / "objects")),
    ):
        conf.set_override(name, value, group)
    return conf


def error_of(response: TestResponse) -> dict[str, Any]:
    """The one error of an answer, its form checked."""
    assert response.mimetype == "application/json", response.data
    (error,) = response.get_json()["errors"]
    assert error["status"] == response.status_code
    assert error["code"].startswith("gpu.") and error["title"] and error["detail"]
    assert error["request_id"] == response.headers["X-Openstack-Request-Id"]
    assert error["links"][0]["rel"] == "help"
    assert "Traceback" not in response.text
    return error

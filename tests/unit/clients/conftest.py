# SPDX-License-Identifier: Apache-2.0
"""``api``: a server that answers as told; ``openstack``: the real shell against it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from fake_api import FakeApi

from gpuservice.clients.osc import job_logs


@dataclass
class Ran:
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


@pytest.fixture
def api() -> Iterator[FakeApi]:
    api = FakeApi()
    yield api
    api.close()


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("OS_"):
            monkeypatch.delenv(name)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What watches a job asks again at once."""
    monkeypatch.setattr(job_logs, "_POLL_S", 0.01)
    monkeypatch.setattr("gpuservice.clients.sdk.v1._waiting.time.sleep", lambda seconds: None)


@pytest.fixture
def openstack(api: FakeApi, capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Ran]:
    from openstackclient import shell
    from openstackclient.common import clientmanager

    def run(*argv: str, auth: str = "none") -> Ran:
        capfdbinary.readouterr()
        options = ["--os-auth-type", auth, "--os-endpoint", api.url]
        if auth == "http_basic":
            options += ["--os-username", "ada", "--os-password", "secret"]
        # The shell keeps one client a process.
        vars(clientmanager.clientmanager.ClientManager)["gpu"]._handle = None
        # It leaves log handlers behind that write to a stream of the test before.
        before = list(logging.getLogger().handlers)
        code = shell.main([*options, *argv])
        for handler in set(logging.getLogger().handlers) - set(before):
            logging.getLogger().removeHandler(handler)
        out, err = capfdbinary.readouterr()
        return Ran(code, out, err.decode())

    return run

# SPDX-License-Identifier: Apache-2.0
"""The first connection to PostgreSQL: what passes is waited for, what stays wrong is told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from gpuservice.db.engine import create_engine
from gpuservice.domain.errors import Misconfigured

pytestmark = pytest.mark.services


class Refusing:
    """A server of PostgreSQL's protocol that refuses every client with the same words."""

    def __init__(self, sqlstate: str, words: str) -> None:
        fields = (b"SFATAL", b"VFATAL", b"C" + sqlstate.encode(), b"M" + words.encode())
        body = b"".join(field + b"\0" for field in fields) + b"\0"
        self._answer = b"E" + (len(body) + 4).to_bytes(4, "big") + body
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.asked = 0
        self.url = (
            f"postgresql+psycopg2://nobody:secret@127.0.0.1:{self._listener.getsockname()[1]}/x"
            "?sslmode=disable&gssencmode=disable"
        )
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Accept no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.asked += 1
                with client:
                    client.recv(4096)
                    client.sendall(self._answer)


@pytest.fixture
def refusing(request: pytest.FixtureRequest) -> Iterator[Refusing]:
    server = Refusing(*request.param)
    yield server
    server.close()


PASSING = [
    ("57P03", "the database system is starting up"),
    ("57P03", "the database system is shutting down"),
    ("57P03", "the database system is in recovery mode"),
    ("57P01", "terminating connection due to administrator command"),
    ("53300", "sorry, too many clients already"),
    ("53300", "remaining connection slots are reserved for roles with the SUPERUSER attribute"),
]
STAYING = [
    ("28P01", 'password authentication failed for user "nobody"'),
    ("3D000", 'database "x" does not exist'),
    ("28000", 'role "nobody" does not exist'),
]


@pytest.mark.parametrize("refusing", PASSING, indirect=True)
def test_what_passes_is_tried_again(refusing: Refusing) -> None:
    with pytest.raises(Misconfigured, match="connection cannot be used"):
        create_engine(refusing.url, max_retries=3, retry_interval=0)
    assert refusing.asked == 3


@pytest.mark.parametrize("refusing", STAYING, indirect=True)
def test_what_stays_wrong_is_told_at_once(refusing: Refusing) -> None:
    with pytest.raises(Misconfigured, match=r"does not exist|authentication failed") as told:
        create_engine(refusing.url, max_retries=3, retry_interval=0)
    assert refusing.asked == 1
    assert "secret" not in str(told.value)


def test_nobody_there_is_tried_again() -> None:
    with pytest.raises(Misconfigured, match="Connection refused"):
        create_engine("postgresql+psycopg2://nobody@127.0.0.1:1/x", max_retries=2, retry_interval=0)


def test_an_engine_without_tries_connects_when_it_is_used() -> None:
    create_engine("postgresql+psycopg2://nobody@127.0.0.1:1/x").dispose()

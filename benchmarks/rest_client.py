# SPDX-License-Identifier: Apache-2.0
"""A plain client on keep-alive connections, so that little of what is measured is the client."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Sequence
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

_HEADERS = {"Content-Type": "application/json", "X-Roles": "admin"}


class Refused(Exception):
    """An answer of 400 or more."""


class Connection:
    """One keep-alive connection, for one thread, as an administrator of a project."""

    def __init__(self, url: str, project: str = "bench") -> None:
        parts = urlsplit(url)
        self._headers = {**_HEADERS, "X-Project-Id": project, "X-User-Id": project}
        self._http = HTTPConnection(str(parts.hostname), parts.port, timeout=120)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer's JSON; raises ``Refused``."""
        data = None if body is None else json.dumps(body).encode()
        self._http.request(method, path, data, self._headers)
        answer = self._http.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise Refused(f"{method} {path}: {answer.status} {content[:500]!r}")
        return json.loads(content) if content else None

    def first_byte_ms(self, path: str) -> float:
        """Milliseconds until the head of the answer to a GET was there."""
        begin = time.perf_counter()
        self._http.request("GET", path, headers=self._headers)
        answer = self._http.getresponse()
        took = 1000 * (time.perf_counter() - begin)
        answer.read()
        if answer.status >= 400:
            raise Refused(f"GET {path}: {answer.status}")
        return took

    def close(self) -> None:
        """Hang up."""
        self._http.close()


def true_job(name: str) -> dict[str, Any]:
    """A job of one GPU that ends well at once."""
    return {
        "job": {"name": name, "command": ["true"], "max_runtime_s": 600, "resources": {"gpus": 1}}
    }


def submit(url: str, count: int, connections: int = 8) -> tuple[float, list[float]]:
    """Submit jobs over so many connections; (seconds in all, milliseconds of each)."""
    latencies: list[list[float]] = [[] for _ in range(connections)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        connection = Connection(url)
        try:
            for job in range(number, count, connections):
                begin = time.perf_counter()
                connection.call("POST", "/v1/jobs", true_job(f"bench-{job}"))
                latencies[number].append(1000 * (time.perf_counter() - begin))
        except BaseException as failure:
            failures.append(failure)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(connections)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begin
    if failures:
        raise failures[0]
    return took, [one for group in latencies for one in group]


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Median and 99th percentile of milliseconds."""
    ordered = sorted(values)
    return {
        "p50_ms": round(statistics.median(ordered), 2),
        "p99_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 2),
    }

# SPDX-License-Identifier: Apache-2.0
"""A caller of the REST API that outlives restarts of the API: safe calls are repeated."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import requests

#: How long a call is repeated while no API answers, in seconds.
REPEAT_S = 60.0


class Refused(Exception):
    """The API said no; ``status`` and ``code`` tell why."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(f"{status} {code}: {text}")
        self.status = status
        self.code = code


class Rest:
    """One project's caller, going round several API processes."""

    def __init__(self, urls: Sequence[str], project: str, roles: str = "member") -> None:
        self._urls = itertools.cycle(urls)
        self._url = next(self._urls)
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers.update(
            {"X-Project-Id": project, "X-User-Id": f"user-of-{project}", "X-Roles": roles}
        )

    def call(self, verb: str, path: str, body: Any = None, **query: Any) -> Any:
        """One call; a creating one carries a key, so that repeating it creates nothing twice.

        :raises Refused: on a 4xx.
        """
        headers = {"Idempotency-Key": uuid.uuid4().hex} if verb == "POST" else {}
        deadline = time.monotonic() + REPEAT_S
        while True:
            try:
                answer = self._session.request(
                    verb,
                    f"{self._url}/v1{path}",
                    json=body,
                    params=query,
                    headers=headers,
                    timeout=30,
                )
            except requests.RequestException as error:
                self._next(deadline, error)
                continue
            if answer.status_code in (429, 502, 503, 504) or (
                "gpu.idempotency.in_progress" in answer.text
            ):
                self._next(deadline, answer.text)
                continue
            return _read(answer)

    def _next(self, deadline: float, why: object) -> None:
        assert time.monotonic() < deadline, f"no API answered: {why}"
        self._url = next(self._urls)
        time.sleep(0.2)

    def get(self, path: str, **query: Any) -> Any:
        """Read."""
        return self.call("GET", path, **query)

    def text(self, path: str) -> str:
        """Read what is not JSON."""
        answer = self._session.get(f"{self._url}/v1{path}", timeout=30)
        answer.raise_for_status()
        return answer.text

    def post(self, path: str, body: Any) -> Any:
        """Create or act."""
        return self.call("POST", path, body)

    def all(self, nouns: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Every object of a list, page by page."""
        marker: dict[str, str] = {}
        while True:
            page = self.get(f"/{nouns}", limit=1000, **query, **marker)[nouns.replace("-", "_")]
            yield from page
            if len(page) < 1000:
                return
            marker = {"marker": page[-1]["id"]}

    def submit(self, **job: Any) -> dict[str, Any]:
        """Create a job."""
        created: dict[str, Any] = self.post("/jobs", {"job": job})["job"]
        return created

    def job(self, ident: str) -> dict[str, Any]:
        """Show a job."""
        shown: dict[str, Any] = self.get(f"/jobs/{ident}")["job"]
        return shown

    def cancel(self, ident: str) -> None:
        """Cancel a job."""
        self.post(f"/jobs/{ident}/action", {"cancel": None})


def _read(answer: requests.Response) -> Any:
    if answer.status_code >= 500:
        raise AssertionError(f"{answer.request.method} {answer.url}: {answer.text}")
    if answer.status_code >= 400:
        raise Refused(answer.status_code, answer.json()["errors"][0]["code"], answer.text)
    return answer.json() if answer.content else None

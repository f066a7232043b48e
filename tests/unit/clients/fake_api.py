# SPDX-License-Identifier: Apache-2.0
"""A small HTTP server that answers what a test says and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

JOB_ID = "6f0c2f0e-4c6c-4a7e-9a39-2f5f0b7c1a11"


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Answer:
    status: int = 200
    body: Any = None
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    #: Close the connection in place of an answer.
    hang_up: bool = False


Handler = Callable[[Asked], Answer]


class FakeApi:
    """Routes are ``("GET", "/v1/jobs")``; a list of answers is given one by one, the last again."""

    def __init__(self) -> None:
        self.routes: dict[tuple[str, str], Handler | list[Answer]] = {}
        self.asked: list[Asked] = []
        api = self

        class Request(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                api.serve(self)

            do_GET = do_POST = do_PATCH = do_DELETE = answer

            def log_message(self, *args: Any) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Request)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def on(self, method: str, path: str, *answers: Answer | Handler) -> None:
        if len(answers) == 1 and callable(answers[0]):
            self.routes[method, path] = answers[0]
        else:
            self.routes[method, path] = [one for one in answers if isinstance(one, Answer)]

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        length = int(request.headers.get("Content-Length") or 0)
        raw = request.rfile.read(length)
        asked = Asked(
            request.command,
            parts.path,
            {key: value[0] for key, value in parse_qs(parts.query).items()},
            dict(request.headers.items()),
            json.loads(raw) if raw else None,
        )
        self.asked.append(asked)
        answer = self.find(asked)
        if answer.hang_up:
            request.close_connection = True
            request.connection.close()
            return
        body = (
            answer.raw
            if answer.raw is not None
            else (b"" if answer.body is None else json.dumps(answer.body).encode())
        )
        request.send_response(answer.status)
        kind = "application/octet-stream" if answer.raw is not None else "application/json"
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "X-Openstack-Request-Id": "req-1",
            **answer.headers,
        }
        for name, value in headers.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    def find(self, asked: Asked) -> Answer:
        route = self.routes.get((asked.method, asked.path))
        if route is None:
            return error(404, "gpu.not_found", f"There is nothing at {asked.path}.")
        if callable(route):
            return route(asked)
        return route.pop(0) if len(route) > 1 else route[0]

    def last(self, method: str) -> Asked:
        return [one for one in self.asked if one.method == method][-1]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def error(status: int, code: str, detail: str, pointer: str | None = None) -> Answer:
    entry: dict[str, Any] = {
        "status": status,
        "code": code,
        "title": "No",
        "detail": detail,
        "request_id": "req-1",
    }
    if pointer is not None:
        entry["source"] = {"pointer": pointer}
    return Answer(status, {"errors": [entry]})

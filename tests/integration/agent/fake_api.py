# SPDX-License-Identifier: Apache-2.0
"""A small server of the agent's wire format, for one node, told by tests what to want."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from tests.task_orders import task_order

TASK = re.compile(r"/v1/agent/tasks/([^/]+)/(.+)")
#: What a report leaves out.
USUAL = {
    **dict.fromkeys(("started_at", "ended_at", "exit_code", "signal", "failure")),
    "oom": False,
    "timed_out": False,
}


class FakeApi:
    """State of the service as far as one node sees it; attributes may be changed at any time."""

    def __init__(self):
        self.changed = threading.Condition()
        self.epoch, self.revision, self.lease_s, self.interval_s = 1, 1, None, 0.2
        self.orders, self.gone, self.states = {}, {}, {}
        self.reports = []
        self.logs, self.artifacts, self.checkpoints, self.sets = {}, {}, {}, {}
        self.restore = {}
        self.log_cap = 1 << 30
        self.registrations, self.secret = [], None
        self.away = self.revoked = False
        #: Fails syncs that tell of an end; refuses artifacts as too many.
        self.deaf = self.full = False
        #: The last part of paths that nothing is kept under.
        self.refused_name = None
        self.unknown_for = 0
        self.stranger = False
        self.secrets, self.lose_answers = 0, 0
        self.syncs = self.applied = 0
        handler = type("Handler", (_Handler,), {"api": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def want(self, task_id, **spec):
        order = {
            key: spec.pop(key) for key in ("grace_s", "signal", "rank", "devices") if key in spec
        }
        with self.changed:
            self.orders[task_id] = task_order(task_id, spec, **order)
            self._bump()

    def limit(self, task_id, time_limit_s):
        with self.changed:
            self.orders[task_id]["spec"]["time_limit_s"] = time_limit_s
            self._bump()

    def vanish(self):
        """Be away at once, also for who waits for an answer."""
        with self.changed:
            self.away = True
            self.changed.notify_all()

    def stop(self, task_id, grace_s=5):
        with self.changed:
            self.orders[task_id].update(action="stop", grace_s=grace_s, stop_reason="cancelled")
            self._bump()

    def drop(self, task_id):
        with self.changed:
            del self.orders[task_id]
            self._bump()

    def fence(self):
        with self.changed:
            self.epoch += 1
            self.orders.clear()
            self._bump()

    def _bump(self):
        self.revision += 1
        self.changed.notify_all()

    def until(self, condition, what, timeout=15):
        end = time.monotonic() + timeout
        with self.changed:
            while not condition():
                left = end - time.monotonic()
                assert left > 0, f"{what} did not come: {self.states} {self.gone}"
                self.changed.wait(min(left, 0.05))

    def until_state(self, task_id, state, timeout=15):
        self.until(lambda: self.states.get(task_id) == state, f"{task_id} {state}", timeout)

    def until_gone(self, task_id, timeout=15):
        self.until(lambda: task_id in self.gone, f"end of {task_id}", timeout)
        return self.gone[task_id]

    def log(self, task_id, stream="stdout"):
        return bytes(self.logs.get((task_id, stream), b""))

    # What the handler calls, each returning (status, body)

    def register(self, body):
        self.registrations.append(body)
        if self.revoked or len(self.registrations) <= self.unknown_for:
            return 401, _error(401, "gpu.agent.bootstrap_invalid")
        if self.secret not in (None, body["secret"]):
            return 409, _error(409, "gpu.agent.secret_conflict")
        self.secret = body["secret"]
        return 200, {
            "node_id": "node-1",
            "epoch": self.epoch,
            "lease_s": self.lease_s,
            "interval_s": self.interval_s,
            "project_id": "p",
        }

    def token(self, authorization, body):
        if self.revoked or authorization != f"Bearer {self.secret}":
            return 401, _error(401, "gpu.auth.required")
        if self.secret != body["secret"]:
            self.secret = body["secret"]
            self.secrets += 1
            if self.lose_answers > 0:
                self.lose_answers -= 1
                return 503, {}
        return 200, {"node_id": "node-1"}

    def sync(self, body):
        with self.changed:
            if body["epoch"] != self.epoch:
                return 409, _error(409, "gpu.node.fenced")
            if self.deaf and any(one["state"] == "gone" for one in body["tasks"]):
                return 503, {}
            self.syncs += 1
            self.applied = body["revision"]
            for report in body["tasks"]:
                self._take(report)
            self.changed.notify_all()
            end = time.monotonic() + body["wait_s"]
            while body["revision"] >= self.revision and time.monotonic() < end and not self.away:
                self.changed.wait(end - time.monotonic())
            if self.away:
                return 503, {}
            if body["epoch"] != self.epoch:
                return 409, _error(409, "gpu.node.fenced")
            return 200, {
                "epoch": self.epoch,
                "revision": self.revision,
                "lease_s": self.lease_s,
                "interval_s": self.interval_s,
                "tasks": list(self.orders.values()),
            }

    def _take(self, report):
        task_id = report["task_id"]
        if task_id not in self.orders:
            return
        self.reports.append(report)
        self.states[task_id] = report["state"]
        for stream, piece in (report.get("log") or {}).items():
            self.append(task_id, stream, piece["offset"], base64.b64decode(piece["data_b64"]))
        if report["state"] == "gone":
            self.gone[task_id] = {**USUAL, **report}
            del self.orders[task_id]

    def append(self, task_id, stream, offset, data):
        held = self.logs.setdefault((task_id, stream), bytearray())
        if offset > len(held):
            return 409, _error(409, "gpu.log.gap", {"offset": len(held)})
        held.extend(data[len(held) - offset :])
        full = len(held) >= self.log_cap
        del held[self.log_cap :]
        return 200, {"next_offset": len(held), "full": full}

    def task_call(self, method, task_id, rest, query, body):
        if method == "POST" and rest == "logs":
            with self.changed:
                return self.append(task_id, query["stream"][0], int(query["offset"][0]), body)
        if method == "PUT" and self.full:
            return 403, _error(403, "gpu.quota.exceeded")
        if method == "PUT" and rest.rsplit("/", 1)[-1] == self.refused_name:
            return 400, _error(400, "gpu.request.invalid")
        if method == "PUT" and rest.startswith("artifacts/"):
            self.artifacts[task_id, rest[len("artifacts/") :]] = body
            return 201, {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()}
        if method == "PUT" and rest.startswith("checkpoints/"):
            _, seq, path = rest.split("/", 2)
            self.checkpoints[task_id, int(seq), path] = body
            return 201, {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()}
        if method == "POST" and rest == "checkpoints":
            said = json.loads(body)
            self.sets.setdefault(task_id, []).append(said)
            self.restore = {
                one["path"]: self.checkpoints[task_id, said["seq"], one["path"]]
                for one in said["files"]
            }
            return 200, {}
        if method == "GET" and rest == "checkpoint":
            if not self.restore:
                return 404, _error(404, "gpu.not_found")
            return 200, {
                "seq": 1,
                "files": [
                    {"path": path, "size": len(data), "sha256": ""}
                    for path, data in self.restore.items()
                ],
            }
        if method == "GET" and rest.startswith("checkpoint/"):
            return 200, self.restore[rest[len("checkpoint/") :]]
        return 404, _error(404, "gpu.not_found")


def _error(status, code, meta=None):
    return {
        "errors": [
            {"status": status, "code": code, "title": code, "detail": "", "meta": meta or {}}
        ]
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    api: FakeApi

    def log_message(self, *_):
        """Quiet."""

    def _serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        split = urlsplit(self.path)
        task = TASK.fullmatch(unquote(split.path))
        if self.api.away:
            status, answer = 503, {}
        elif self.api.stranger:
            status, answer = 401, b"<html>who are you?</html>"
        elif split.path == "/v1/agent/register":
            status, answer = self.api.register(json.loads(body))
        elif split.path == "/v1/agent/token":
            status, answer = self.api.token(self.headers["Authorization"], json.loads(body))
        elif self.api.revoked or self.headers["Authorization"] != f"Bearer {self.api.secret}":
            status, answer = 401, _error(401, "gpu.unauthorized")
        elif self.headers["OpenStack-GPU-Node-Epoch"] != str(self.api.epoch):
            status, answer = 409, _error(409, "gpu.node.fenced")
        elif split.path == "/v1/agent/sync":
            status, answer = self.api.sync(json.loads(body))
        else:
            status, answer = self.api.task_call(
                self.command, *task.groups(), parse_qs(split.query), body
            )
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = _serve

# SPDX-License-Identifier: Apache-2.0
"""The REST client of /v1/agent: one call each, errors told apart by what the agent must do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, TypeVar
from urllib.parse import quote

import requests

from gpuservice.agent.orders import SyncAnswer
from gpuservice.agent.settings import AgentSettings, UserData
from gpuservice.agent.wire import EPOCH_HEADER, Registered, Registration, SyncRequest, WireError

_T = TypeVar("_T")


class ApiError(Exception):
    """The service answered with an error; ``code`` is the contract's stable one."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        meta: Mapping[str, Any],
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{status} {code} {detail}".strip())
        self.status, self.code, self.meta = status, code, meta
        self.retry_after_s = retry_after_s


class ApiAway(Exception):
    """The service cannot be reached, or answers nothing usable: try again.

    Nothing usable is 5xx, 408, 429, and a 401 or 404 that carries no code of the contract: that
    is somebody else (a proxy, a wrong page) who speaks for the service, and nothing may be ended
    on such a word.
    """


class Refused(ApiError):
    """The request is wrong for good: retrying the same is of no use."""


class Revoked(ApiError):
    """401: this node's secret or token is no longer good."""


class Fenced(ApiError):
    """409 gpu.node.fenced: this epoch is over, whatever runs here must end."""


class InstanceConflict(ApiError):
    """409 gpu.agent.instance_conflict: another agent speaks for this node."""


class LogGap(ApiError):
    """409 gpu.log.gap: ``wanted`` is the offset to send from."""

    @property
    def wanted(self) -> int:
        """Offset of the first byte the service lacks."""
        return int(self.meta.get("offset", 0))


_CODES: Mapping[str, type[ApiError]] = {
    "gpu.node.fenced": Fenced,
    "gpu.agent.instance_conflict": InstanceConflict,
    "gpu.log.gap": LogGap,
}


def _error(answer: requests.Response) -> Exception:
    """The exception an answer stands for."""
    try:
        first = answer.json()["errors"][0]
    except (ValueError, KeyError, IndexError, TypeError):
        first = {}
    code, detail = str(first.get("code", "")), str(first.get("detail", ""))
    if answer.status_code >= 500 or answer.status_code in (408, 429):
        return ApiAway(f"{answer.status_code} {code} {detail}".strip())
    if not code and answer.status_code in (401, 404):
        return ApiAway(f"{answer.status_code} from something that is not the service")
    kind = Revoked if answer.status_code == 401 else _CODES.get(code, Refused)
    return kind(answer.status_code, code, detail, first.get("meta") or {})


class AgentClient:
    """Calls of one agent; one object per thread (it keeps one connection alive)."""

    def __init__(self, user_data: UserData, secret: str, settings: AgentSettings) -> None:
        self._base = f"{user_data.api_url}/v1/agent"
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["Authorization"] = f"Bearer {secret}"
        self._session.verify = user_data.ca_file or True
        self._connect_s, self._read_s = settings.connect_timeout_s, settings.read_timeout_s
        self.epoch = 0

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def register(self, registration: Registration) -> Registered:
        """Exchange the bootstrap token for this node's place.

        :raises ApiAway, Revoked, Refused: see there.
        """
        answer = self._call(
            "POST", "register", json=registration.dump(), headers={"Authorization": None}
        )
        registered = _parsed(answer, Registered.parse)
        self.epoch = registered.epoch
        return registered

    def sync(self, request: SyncRequest) -> SyncAnswer:
        """Tell what is, hear what should be.

        :raises ApiAway, Revoked, Fenced, InstanceConflict, Refused: see there.
        """
        answer = self._call(
            "POST",
            "sync",
            json=request.dump(),
            timeout=(self._connect_s, self._read_s + request.wait_s),
        )
        return _parsed(answer, SyncAnswer.parse)

    def send_log(self, task_id: str, stream: str, offset: int, data: bytes) -> tuple[int, bool]:
        """Append to a stream; returns the offset wanted next and whether its cap is reached.

        :raises LogGap: when bytes before ``offset`` are missing, and as ``sync``.
        """
        body = self._call(
            "POST",
            f"tasks/{task_id}/logs",
            data=data,
            params={"stream": stream, "offset": str(offset)},
            headers={"Content-Type": "application/octet-stream"},
        ).json()
        return int(body["next_offset"]), bool(body["full"])

    def put_file(self, task_id: str, where: str, path: str, file: IO[bytes]) -> None:
        """Store a file of a task below ``where`` (``artifacts`` or ``checkpoints/N``)."""
        # An empty file would be sent chunked, which not every server reads.
        content = file if os.fstat(file.fileno()).st_size else b""
        self._call(
            "PUT",
            f"tasks/{task_id}/{where}/{quote(path)}",
            data=content,
            headers={"Content-Type": "application/octet-stream"},
            timeout=(self._connect_s, 300),
        )

    def complete_checkpoint(self, task_id: str, seq: int, files: list[dict[str, Any]]) -> None:
        """Declare the files put under ``seq`` to be all of it."""
        self._call("POST", f"tasks/{task_id}/checkpoints", json={"seq": seq, "files": files})

    def newest_checkpoint(self, task_id: str) -> Mapping[str, Any] | None:
        """``{"seq", "files"}`` of the checkpoint to resume from, null if there is none."""
        try:
            body: Mapping[str, Any] = self._call("GET", f"tasks/{task_id}/checkpoint").json()
        except Refused as error:
            if error.status == 404:
                return None
            raise
        return body

    def checkpoint_file(self, task_id: str, path: str) -> Iterator[bytes]:
        """The content of one file of that checkpoint.

        :raises ApiAway: also in the middle.
        """
        answer = self._call("GET", f"tasks/{task_id}/checkpoint/{quote(path)}", stream=True)
        try:
            yield from answer.iter_content(1 << 20)
        except requests.RequestException as error:
            raise ApiAway(str(error)) from error

    def _call(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, Any] | None = None,
        timeout: tuple[float, float] | None = None,
        **more: Any,
    ) -> requests.Response:
        try:
            answer = self._session.request(
                method,
                f"{self._base}/{path}",
                allow_redirects=False,
                headers={EPOCH_HEADER: str(self.epoch), **(headers or {})},
                timeout=timeout or (self._connect_s, self._read_s),
                **more,
            )
        except requests.RequestException as error:
            raise ApiAway(f"{type(error).__name__}: {error}") from error
        if answer.status_code >= 300:
            raise _error(answer)
        return answer


def _parsed(answer: requests.Response, parse: Callable[[Mapping[str, Any]], _T]) -> _T:
    """The answer's body as a type; nonsense counts as "not there", to be asked for again."""
    try:
        return parse(answer.json())
    except (ValueError, WireError) as error:
        raise ApiAway(f"not the contract's answer: {error}") from error

# SPDX-License-Identifier: Apache-2.0
"""The REST client of /v1/agent: one call each, errors told apart by what the agent must do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, TypeVar
from urllib.parse import quote

import requests

from gpuservice.agent.errors import (
    ApiAway,
    ApiError,
    Fenced,
    InstanceConflict,
    LogGap,
    Refused,
    Revoked,
)
from gpuservice.agent.node_secret import NodeSecret
from gpuservice.agent.orders import SyncAnswer
from gpuservice.agent.settings import AgentSettings, UserData
from gpuservice.agent.wire import EPOCH_HEADER, Registered, Registration, SyncRequest, WireError

_T = TypeVar("_T")


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


def checkpoint_body(seq: int, files: Sequence[Mapping[str, Any]]) -> bytes:
    """What completes a checkpoint, as it is sent: the service bounds its bytes."""
    body = {"seq": seq, "files": files}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


class AgentClient:
    """Calls of one agent; one object per thread (it keeps one connection alive).

    :param epoch: the node's epoch, asked for at each call; may raise ``ApiAway``.
    """

    def __init__(
        self,
        user_data: UserData,
        secret: NodeSecret,
        settings: AgentSettings,
        epoch: Callable[[], int],
    ) -> None:
        self._base = f"{user_data.api_url}/v1/agent"
        self._session = requests.Session()
        self._session.trust_env = False
        self._secret = secret
        self._session.verify = user_data.ca_file or True
        self._connect_s, self._read_s = settings.connect_timeout_s, settings.read_timeout_s
        self._epoch = epoch

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
        return _parsed(answer, Registered.parse)

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

    def change_secret(self, new: str, bearer: str) -> None:
        """Have the service know this node by a new secret; ``bearer`` is the one it knows.

        :raises ApiAway, Revoked, Refused: see there.
        """
        self._call(
            "POST", "token", json={"secret": new}, headers={"Authorization": f"Bearer {bearer}"}
        )

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
        self._call(
            "POST",
            f"tasks/{task_id}/checkpoints",
            data=checkpoint_body(seq, files),
            headers={"Content-Type": "application/json"},
        )

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
        given = {EPOCH_HEADER: str(self._epoch()), **(headers or {})}
        timeout = timeout or (self._connect_s, self._read_s)
        if "Authorization" in given:
            return self._request(method, path, given, timeout, more)
        used = self._secret.current
        given["Authorization"] = f"Bearer {used}"
        try:
            return self._request(method, path, given, timeout, more)
        except Revoked as error:
            # It may have been changed while this was on its way.
            newer = self._secret.newer_than(used)
            if newer is None and self._secret.in_doubt:
                raise ApiAway("the node's secret is being changed") from error
            if newer is None:
                raise
        if hasattr(more.get("data"), "seek"):
            more["data"].seek(0)
        return self._request(
            method, path, {**given, "Authorization": f"Bearer {newer}"}, timeout, more
        )

    def _request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, Any],
        timeout: tuple[float, float],
        more: Mapping[str, Any],
    ) -> requests.Response:
        try:
            answer = self._session.request(
                method,
                f"{self._base}/{path}",
                allow_redirects=False,
                headers=dict(headers),
                timeout=timeout,
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

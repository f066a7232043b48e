# SPDX-License-Identifier: Apache-2.0
"""Logs in the proxy: a piece by its offset, or the whole stream as it grows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import requests
from keystoneauth1 import exceptions as ksa_exceptions
from openstack import proxy

from gpuservice.clients.sdk.errors import GpuHttpError, raise_for
from gpuservice.clients.sdk.v1.job import Job

#: The longest wait that the service grants one request.
MAX_WAIT_S = 20

#: Pause after an answer that brought nothing although it was asked to wait, and the longest
#: pause between tries while the service cannot be reached.
_IDLE_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Bytes of a stream; ``offset`` is where the next piece begins, ``end`` that none comes."""

    data: bytes
    offset: int
    end: bool


@dataclass(frozen=True, slots=True)
class LogStream:
    """Which stream: of which task, element and attempt (None: the last)."""

    name: str = "stdout"
    task: int = 0
    index: int | None = None
    attempt: int | None = None

    def query(self) -> dict[str, str]:
        """As query parameters."""
        given = {
            "stream": self.name,
            "task": self.task,
            "index": self.index,
            "attempt": self.attempt,
        }
        return {key: str(value) for key, value in given.items() if value is not None}


class LogsMixin(proxy.Proxy):
    """Logs of jobs."""

    def read_job_log(
        self, job: str | Job, stream: LogStream | None = None, *, offset: int = 0, wait_s: int = 0
    ) -> LogPiece:
        """One piece of a log.

        :param offset: in bytes of the whole stream; negative: from its end.
        :param wait_s: wait so long for more (at most 20).
        """
        ident = self._get_resource(Job, job).id
        query = {**(stream or LogStream()).query(), "offset": str(offset)}
        if wait_s:
            query["wait_s"] = str(wait_s)
        response = self.get(
            f"{Job.base_path}/{ident}/logs",
            params=query,
            headers={"Accept": "application/octet-stream"},
        )
        raise_for(response)
        following = response.headers.get("OpenStack-GPU-Log-Offset")
        return LogPiece(
            response.content,
            int(following) if following else max(offset, 0) + len(response.content),
            response.headers.get("OpenStack-GPU-Log-End", "").lower() == "true",
        )

    def follow_job_log(
        self,
        job: str | Job,
        stream: LogStream | None = None,
        *,
        offset: int = 0,
        give_up_after_s: float = 300.0,
    ) -> Iterator[bytes]:
        """Generate a log's bytes as they come, until the stream is closed.

        Lost connections and answers of 429 and 5xx are tried again from the same byte.

        :param give_up_after_s: raise what failed when it failed for so long.
        """
        failing_since: float | None = None
        pause = _IDLE_PAUSE_S
        while True:
            asked = time.monotonic()
            try:
                piece = self.read_job_log(job, stream, offset=offset, wait_s=MAX_WAIT_S)
            except (ksa_exceptions.ClientException, requests.RequestException) as error:
                failing_since = failing_since or asked
                lasting = isinstance(error, GpuHttpError) and not _passes(error)
                if lasting or time.monotonic() - failing_since > give_up_after_s:
                    raise
                time.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
                continue
            failing_since, pause = None, _IDLE_PAUSE_S
            offset = piece.offset
            if piece.data:
                yield piece.data
            elif piece.end:
                return
            elif time.monotonic() - asked < _IDLE_PAUSE_S:
                # The service was too busy to let the request wait.
                time.sleep(_IDLE_PAUSE_S)


def _passes(error: GpuHttpError) -> bool:
    """Whether trying again may help."""
    return error.status_code == 429 or (error.status_code or 0) >= 500

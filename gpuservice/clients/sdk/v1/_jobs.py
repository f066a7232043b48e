# SPDX-License-Identifier: Apache-2.0
"""Jobs in the proxy: submit, see, change, act, and what lies below a job."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Generator, Mapping
from typing import Any

import requests
from openstack import proxy

from gpuservice.clients.sdk.errors import raise_for
from gpuservice.clients.sdk.v1._waiting import until_ended
from gpuservice.clients.sdk.v1.event import Event
from gpuservice.clients.sdk.v1.job import Artifact, Attempt, Element, Job


class JobsMixin(proxy.Proxy):
    """Jobs. ``find_job`` takes a name or an id; the others an object or an id."""

    def jobs(self, **query: Any) -> Generator[Job, None, None]:
        """Generate the project's jobs, each with why it waits."""
        return self._list(Job, **query)

    def find_job(self, name_or_id: str, ignore_missing: bool = True) -> Job | None:
        """The job with a name or an id, or None; names need not be unique."""
        return Job.find(self, name_or_id, ignore_missing)

    def get_job(self, job: str | Job) -> Job:
        """One job by its id."""
        return self._get(Job, job)

    def create_job(
        self,
        request: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        **attrs: Any,
    ) -> Job:
        """Put a job in line.

        :param request: the job as api.md writes it; ``attrs`` add to it and override it.
        """
        return Job.submit(self, {**(request or {}), **attrs}, idempotency_key)

    def dry_run_job(self, request: Mapping[str, Any] | None = None, **attrs: Any) -> dict[str, Any]:
        """Where and when a job would run: ``{"job": ..., "dry_run": ...}``; nothing is kept."""
        response = self.post(
            Job.base_path, params={"dry_run": "true"}, json={"job": {**(request or {}), **attrs}}
        )
        raise_for(response)
        return dict(response.json())

    def update_job(self, job: str | Job, **attrs: Any) -> Job:
        """Change ``priority``, ``labels``, ``max_runtime_s`` or ``hold``."""
        return self._update(Job, job, **attrs)

    def delete_job(
        self, job: str | Job, ignore_missing: bool = True, if_match: str | None = None
    ) -> None:
        """Delete an ended job with its logs and artifacts; cancel a live one, which goes then."""
        match: dict[str, Any] = {} if if_match is None else {"if_match": if_match}
        self._delete(Job, job, ignore_missing, **match)

    def cancel_job(self, job: str | Job, indices: str | None = None) -> Job:
        """Cancel a job, or some elements of an array (``indices``: ``3,7-9``)."""
        details = None if indices is None else {"indices": indices}
        return self._get_resource(Job, job).act(self, "cancel", details)

    def hold_job(self, job: str | Job) -> Job:
        """Hold back what waits of a job."""
        return self._get_resource(Job, job).act(self, "hold")

    def release_job(self, job: str | Job) -> Job:
        """Let a held job be planned again."""
        return self._get_resource(Job, job).act(self, "release")

    def requeue_job(self, job: str | Job) -> Job:
        """Stop a starting or running job and put it in line again."""
        return self._get_resource(Job, job).act(self, "requeue")

    def suspend_job(self, job: str | Job, indices: str | None = None) -> Job:
        """Have what runs of a job (or of some elements of an array) save and stop; it is held
        until it is resumed."""
        details = None if indices is None else {"indices": indices}
        return self._get_resource(Job, job).act(self, "suspend", details)

    def resume_job(self, job: str | Job, indices: str | None = None) -> Job:
        """Let a suspended job (or some elements of an array) be planned again."""
        details = None if indices is None else {"indices": indices}
        return self._get_resource(Job, job).act(self, "resume", details)

    def explain_job(self, job: str | Job) -> dict[str, Any]:
        """Why a job waits and what would help, where it runs, or why it failed."""
        found = self._get_resource(Job, job)
        return dict(found.subresource(self, "explain")["explanation"])

    def job_attempts(self, job: str | Job, **query: Any) -> Generator[Attempt, None, None]:
        """Generate a job's attempts, newest first (of an array: element by element, from the last
        one on); ``index`` for one element."""
        return self._list(Attempt, job_id=self._get_resource(Job, job).id, **query)

    def job_elements(self, job: str | Job, **query: Any) -> Generator[Element, None, None]:
        """Generate the elements of an array that have started, ended or wait again."""
        return self._list(Element, job_id=self._get_resource(Job, job).id, **query)

    def job_events(self, job: str | Job, **query: Any) -> Generator[Event, None, None]:
        """Generate a job's events in the order in which they were written."""
        path = f"{Job.base_path}/{self._get_resource(Job, job).id}/events"
        return self._list(Event, base_path=path, **query)

    def job_artifacts(self, job: str | Job, **query: Any) -> Generator[Artifact, None, None]:
        """Generate a job's artifacts; ``index`` for one element."""
        return self._list(Artifact, job_id=self._get_resource(Job, job).id, **query)

    def open_job_artifact(
        self, job: str | Job, path: str, index: int | None = None
    ) -> requests.Response:
        """An artifact as a streamed response: read it with ``iter_content``, then close it.

        :param path: as ``job_artifacts`` names it: ``{attempt}/{rank}/...``.
        """
        ident = self._get_resource(Job, job).id
        query = {} if index is None else {"index": str(index)}
        response = self.get(
            f"{Job.base_path}/{ident}/artifacts/{urllib.parse.quote(path)}",
            params=query,
            stream=True,
            headers={"Accept": "application/octet-stream"},
        )
        raise_for(response)
        return response

    def wait_for_job(
        self,
        job: str | Job,
        *,
        timeout_s: float | None = None,
        interval_s: float = 1.0,
        seen: Callable[[Job], None] | None = None,
    ) -> Job:
        """The job once it has ended.

        :param seen: called with the job after each look.
        :raises openstack.exceptions.ResourceTimeout: after ``timeout_s``.
        """
        ident = self._get_resource(Job, job).id
        return until_ended(lambda: self.get_job(ident), "job", timeout_s, interval_s, seen)

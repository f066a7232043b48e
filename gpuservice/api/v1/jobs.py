# SPDX-License-Identifier: Apache-2.0
"""Jobs and what lies below them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO
from urllib.parse import quote

from gpuservice.api.endpoint import Answer, Call, Table
from gpuservice.api.listing import Listing
from gpuservice.api.schemas import jobs as schemas
from gpuservice.api.schemas.pieces import listed, one_of, shown, whole
from gpuservice.api.v1.accounts import EVENT_LISTING, event_view
from gpuservice.api.v1.job_views import (
    artifact_view,
    attempt_view,
    dry_run_view,
    element_view,
    job_view,
)
from gpuservice.api.v1.shapes import once, page_of, tagged, verb_of
from gpuservice.domain.ports_store import Page, Where

TABLE = Table()
_LISTING = Listing(
    "jobs",
    {
        "name": "text",
        "status": "text",
        "kind": "text",
        "queue": "text",
        "user_id": "text",
        "waiting_code": "text",
        "failure_class": "text",
        "priority": "integer",
    },
    sorts=("created_at", "name", "status", "priority", "queued_at", "started_at", "ended_at"),
    labels=True,
)


@TABLE.add("GET", "/jobs", "gpu:jobs:list", 200, answer=listed("jobs"), listing=_LISTING)
def list_jobs(call: Call) -> Answer:
    """List the project's jobs, each with why it waits; pages of large requests are shorter."""
    cut = False

    def fetch(page: Page, count: bool) -> tuple[list[Any], int | None]:
        nonlocal cut
        where = tuple(
            Where("queue_id", one.op, one.value) if one.field == "queue" else one
            for one in page.where
        )
        rows, total, cut = call.services.jobs.page(
            call.caller, Page(where, page.sort, page.limit, page.marker, page.labels), count
        )
        return rows, total

    return page_of(
        call, "jobs", fetch, job_view, key=lambda view: str(view.job.id), cut=lambda: cut
    )


@TABLE.add(
    "POST",
    "/jobs",
    "gpu:jobs:create",
    202,
    200,
    body=schemas.JOB_CREATE,
    idempotent=True,
    query={"dry_run": one_of("true", "false")},
)
def create_job(call: Call) -> Answer:
    """Put a job in line, or see what would happen (dry_run)."""
    if call.query.get("dry_run") == "true":
        view, result = call.services.jobs.dry_run(call.caller, call.body["job"])
        return Answer(200, {"job": job_view(view), "dry_run": dry_run_view(result)})
    keep, answer = once(call, 202, "job", "jobs", job_view)
    return answer(call.services.jobs.create(call.caller, call.body["job"], keep))


@TABLE.add("GET", "/jobs/<id>", "gpu:jobs:show", 200, answer=shown("job"))
def show_job(call: Call) -> Answer:
    """Show a job."""
    view = call.services.jobs.show(call.caller, call.args["id"])
    return Answer(200, {"job": job_view(view)}, tagged(view.job))


@TABLE.add(
    "PATCH", "/jobs/<id>", "gpu:jobs:change", 200, body=schemas.JOB_PATCH, answer=shown("job")
)
def change_job(call: Call) -> Answer:
    """Change priority, labels, time limit or hold of a job."""
    view = call.services.jobs.change(
        call.caller, call.args["id"], call.body["job"], call.generation()
    )
    return Answer(200, {"job": job_view(view)}, tagged(view.job))


@TABLE.add("DELETE", "/jobs/<id>", "gpu:jobs:delete", 204, 202)
def delete_job(call: Call) -> Answer:
    """Delete an ended job; cancel a live one, which goes at its end."""
    gone = call.services.jobs.delete(call.caller, call.args["id"], call.generation())
    if gone:
        return Answer(204)
    view = call.services.jobs.show(call.caller, call.args["id"])
    return Answer(202, {"job": job_view(view)})


@TABLE.add(
    "POST", "/jobs/<id>/action", "gpu:jobs:act", 202, body=schemas.JOB_ACTION, answer=shown("job")
)
def act_on_job(call: Call) -> Answer:
    """Cancel, hold, release, requeue, suspend or resume a job."""
    verb, details = verb_of(call.body)
    call.services.job_actions.act(call.caller, call.args["id"], verb, details.get("indices"))
    view = call.services.jobs.show(call.caller, call.args["id"])
    return Answer(202, {"job": job_view(view)}, tagged(view.job))


@TABLE.add(
    "GET",
    "/jobs/<id>/elements",
    "gpu:jobs:show",
    200,
    query={"limit": whole(1, 1000), "marker": whole(0, 1_000_000)},
)
def list_elements(call: Call) -> Answer:
    """List the elements of an array that have started, ended or wait for another attempt."""
    limit = int(call.query.get("limit", "100"))
    after = int(call.query["marker"]) if "marker" in call.query else None
    rows = call.services.job_reads.elements(call.caller, call.args["id"], limit, after)
    links = []
    if len(rows) == limit:
        links.append(
            {
                "rel": "next",
                "href": f"/v1/jobs/{call.args['id']}/elements?"
                f"limit={limit}&marker={rows[-1].index}",
            }
        )
    return Answer(200, {"elements": [element_view(row) for row in rows], "links": links})


@TABLE.add(
    "GET",
    "/jobs/<id>/attempts",
    "gpu:jobs:show",
    200,
    answer=listed("attempts"),
    # The default order is the one that the index on (job, index, number) serves.
    listing=Listing(
        "attempts",
        {"index": "integer", "status": "text", "outcome": "text"},
        sorts=("index", "number"),
        scoped=False,
        default_sort=(("index", "desc"), ("number", "desc")),
    ),
)
def list_attempts(call: Call) -> Answer:
    """List the attempts of a job with tasks and devices, last element and newest first."""
    return page_of(
        call,
        "attempts",
        lambda page, count: call.services.job_reads.attempts(
            call.caller, call.args["id"], page, count
        ),
        attempt_view,
        key=lambda view: str(view.attempt.id),
    )


@TABLE.add("GET", "/jobs/<id>/events", "gpu:jobs:show", 200, listing=EVENT_LISTING)
def list_job_events(call: Call) -> Answer:
    """List the events of a job."""
    job = call.services.jobs.show(call.caller, call.args["id"]).job

    def fetch(page: Page, count: bool) -> tuple[list[Any], int | None]:
        where = (
            *(one for one in page.where if one.field != "project_id"),
            Where("target_id", "eq", job.id),
        )
        return call.services.events.page(
            call.caller, Page(where, page.sort, page.limit, page.marker), count
        )

    return page_of(call, "events", fetch, event_view)


@TABLE.add("GET", "/jobs/<id>/explain", "gpu:jobs:explain", 200)
def explain_job(call: Call) -> Answer:
    """See why a job waits and what would help, where it runs, or why it failed."""
    return Answer(
        200, {"explanation": call.services.job_reads.explain(call.caller, call.args["id"])}
    )


@TABLE.add("GET", "/jobs/<id>/logs", "gpu:jobs:logs", 200, query=schemas.LOG_QUERY)
def read_log(call: Call) -> Answer:
    """Read a log from a byte offset, waiting for more if asked to."""
    query = call.query
    attempt = int(query["attempt"]) if "attempt" in query else None
    piece = call.services.job_logs.read(
        call.caller,
        call.args["id"],
        index=int(query.get("index", "0")),
        rank=int(query.get("task", "0")),
        stream=query.get("stream", "stdout"),
        offset=int(query.get("offset", "0")),
        attempt=attempt,
        wait_s=int(query.get("wait_s", "0")),
    )
    return Answer(
        200,
        raw=piece.data,
        headers={
            "Content-Type": "application/octet-stream",
            "OpenStack-GPU-Log-Offset": str(piece.next_offset),
            "OpenStack-GPU-Log-End": "true" if piece.end else "false",
        },
    )


_BY_PATH = ("index", "attempt", "rank", "path")


@TABLE.add(
    "GET",
    "/jobs/<id>/artifacts",
    "gpu:jobs:artifacts",
    200,
    answer=listed("artifacts"),
    listing=Listing(
        "artifacts",
        {"index": "integer", "attempt": "integer", "rank": "integer"},
        sorts=(*_BY_PATH, "size"),
        scoped=False,
        default_sort=tuple((key, "asc") for key in _BY_PATH),
    ),
)
def list_artifacts(call: Call) -> Answer:
    """List the artifacts of a job's ended attempts."""
    return page_of(
        call,
        "artifacts",
        lambda page, count: call.services.job_reads.artifacts(
            call.caller, call.args["id"], page, count
        ),
        artifact_view,
    )


@TABLE.add(
    "GET",
    "/jobs/<id>/artifacts/<path:path>",
    "gpu:jobs:artifacts",
    200,
    query={"index": whole(0, 1_000_000)},
)
def download_artifact(call: Call) -> Answer:
    """Download an artifact: {attempt}/{rank}/{path}."""
    row, stream = call.services.job_reads.artifact(
        call.caller, call.args["id"], call.args["path"], _index(call) or 0
    )
    name = quote(row.path.rsplit("/", 1)[-1])
    return Answer(
        200,
        raw=chunks(stream),
        headers={
            "Content-Length": str(row.size),
            "Content-Type": "application/octet-stream",
            "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        },
    )


def _index(call: Call) -> int | None:
    return int(call.query["index"]) if "index" in call.query else None


def chunks(stream: BinaryIO) -> Iterator[bytes]:
    """The bytes of a stream, piece by piece; closes it."""
    with stream:
        while piece := stream.read(1 << 16):
            yield piece

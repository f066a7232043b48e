# SPDX-License-Identifier: Apache-2.0
"""What nodes call. Their secret is the only identity here; headers of users count for nothing."""

from __future__ import annotations

from typing import BinaryIO

from gpuservice.api.endpoint import Answer, Call, Table
from gpuservice.api.schemas import agent as schemas
from gpuservice.api.v1.jobs import chunks
from gpuservice.domain.errors import Invalid, TooLarge
from gpuservice.domain.kept import MAX_CHECKPOINT_LIST
from gpuservice.services.agent_data import epoch_of

TABLE = Table()
#: One piece of a log at most, in bytes.
MAX_LOG_PIECE = 4 << 20


def _secret(call: Call) -> str | None:
    kind, _, value = call.headers.get("Authorization", "").partition(" ")
    return value.strip() if kind.lower() == "bearer" and value.strip() else None


def _epoch(call: Call) -> int | None:
    return epoch_of(call.headers.get("OpenStack-GPU-Node-Epoch"))


def _stream(call: Call) -> BinaryIO:
    if call.stream is None:
        raise Invalid("A body is needed.")
    return call.stream


@TABLE.add("POST", "/agent/register", None, 200, body=schemas.REGISTER, agent=True)
def register(call: Call) -> Answer:
    """Report for duty with the one-time token."""
    node = call.services.agent_nodes.register(call.body)
    interval = call.services.agent_sync.interval_s
    return Answer(
        200,
        {
            "node_id": node.id,
            "epoch": node.epoch,
            "lease_s": node.lease_s,
            "interval_s": interval,
            "project_id": node.project_id,
        },
    )


@TABLE.add("POST", "/agent/token", None, 200, body=schemas.TOKEN, agent=True)
def change_secret(call: Call) -> Answer:
    """Be known by a new secret from now on."""
    node = call.services.agent_nodes.change_secret(_secret(call), call.body["secret"])
    return Answer(200, {"node_id": node.id})


@TABLE.add("POST", "/agent/sync", None, 200, body=schemas.SYNC, agent=True)
def sync(call: Call) -> Answer:
    """Say what happened, hear what should run."""
    answer = call.services.agent_sync.sync(_secret(call), call.body)
    return Answer(
        200,
        {
            "epoch": answer.epoch,
            "revision": answer.revision,
            "lease_s": answer.lease_s,
            "interval_s": answer.interval_s,
            "tasks": list(answer.tasks),
        },
    )


@TABLE.add(
    "POST", "/agent/tasks/<id>/logs", None, 200, raw_body=True, agent=True, query=schemas.LOG_QUERY
)
def put_log(call: Call) -> Answer:
    """Hand a piece of a log over."""
    data = _stream(call).read(MAX_LOG_PIECE + 1)
    if len(data) > MAX_LOG_PIECE:
        raise TooLarge(f"A piece of a log has at most {MAX_LOG_PIECE} bytes.")
    offset, full = call.services.agent_data.logs(
        _secret(call),
        _epoch(call),
        call.args["id"],
        call.query.get("stream", "stdout"),
        int(call.query.get("offset", "0")),
        data,
    )
    return Answer(200, {"next_offset": offset, "full": full})


@TABLE.add("PUT", "/agent/tasks/<id>/artifacts/<path:path>", None, 201, raw_body=True, agent=True)
def put_artifact(call: Call) -> Answer:
    """Hand a result file over."""
    stored = call.services.agent_data.put_artifact(
        _secret(call), _epoch(call), call.args["id"], call.args["path"], _stream(call)
    )
    return Answer(201, {"size": stored.size, "sha256": stored.sha256})


@TABLE.add(
    "PUT", "/agent/tasks/<id>/checkpoints/<seq>/<path:path>", None, 201, raw_body=True, agent=True
)
def put_checkpoint(call: Call) -> Answer:
    """Hand one file of a checkpoint over."""
    seq = call.args["seq"]
    if not (seq.isascii() and seq.isdigit() and len(seq) < 16):
        raise Invalid(f"{seq[:80]!r} is not the number of a checkpoint.", pointer="/seq")
    stored = call.services.agent_data.put_checkpoint(
        _secret(call), _epoch(call), call.args["id"], int(seq), call.args["path"], _stream(call)
    )
    return Answer(201, {"size": stored.size, "sha256": stored.sha256})


@TABLE.add(
    "POST",
    "/agent/tasks/<id>/checkpoints",
    None,
    200,
    body=schemas.CHECKPOINT,
    agent=True,
    max_body=MAX_CHECKPOINT_LIST,
)
def complete_checkpoint(call: Call) -> Answer:
    """Say that a checkpoint is complete."""
    call.services.agent_data.complete_checkpoint(
        _secret(call), _epoch(call), call.args["id"], call.body["seq"], call.body["files"]
    )
    return Answer(200, {"seq": call.body["seq"]})


@TABLE.add("GET", "/agent/tasks/<id>/checkpoint", None, 200, agent=True)
def show_checkpoint(call: Call) -> Answer:
    """See the newest checkpoint of an earlier attempt."""
    found = call.services.agent_data.checkpoint(_secret(call), _epoch(call), call.args["id"])
    return Answer(200, {"seq": found.seq, "files": list(found.files)})


@TABLE.add("GET", "/agent/tasks/<id>/checkpoint/<path:path>", None, 200, agent=True)
def read_checkpoint(call: Call) -> Answer:
    """Fetch one file of that checkpoint."""
    stream = call.services.agent_data.checkpoint_file(
        _secret(call), _epoch(call), call.args["id"], call.args["path"]
    )
    return Answer(200, raw=chunks(stream))

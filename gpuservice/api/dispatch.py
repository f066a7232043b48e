# SPDX-License-Identifier: Apache-2.0
"""From a request to a verb and back: the one path that every endpoint takes, in this order.

1. version: an answer in another version would be wrong in any case; 2. caller, 3. policy: nothing
is said of a body to somebody who may not send it; 4. query and body by schema; 5. the verb.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from flask import Request, Response
from oslo_config import cfg

from gpuservice.api import errors, strict_json, versions
from gpuservice.api.endpoint import Answer, Call, Endpoint
from gpuservice.api.requests import (
    RequestIds,
    check_json,
    dressed,
    json_response,
    read_body,
)
from gpuservice.api.validation import checker
from gpuservice.auth.enforcer import Enforcer
from gpuservice.auth.strategies import Strategy
from gpuservice.domain.context import Caller
from gpuservice.domain.errors import GpuServiceError, Invalid, NameTaken
from gpuservice.services.idempotency import IdempotencyKey, Replay
from gpuservice.services.registry import Services

LOG = logging.getLogger(__name__)
_KEY = re.compile(r"^[\x21-\x7e]{1,255}\Z")
_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}\Z")
Observe = Callable[[str, str, int, float], None]

#: The caller of agent endpoints: the service knows the node by its secret.
NODE = Caller(project_id="", user_id="node")


class Dispatcher:
    """Answers requests for rows of the endpoint table."""

    def __init__(
        self,
        services: Services,
        strategy: Strategy,
        enforcer: Enforcer,
        conf: cfg.ConfigOpts,
        observe: Observe | None = None,
    ) -> None:
        self._services = services
        self._strategy = strategy
        self._enforcer = enforcer
        self._conf = conf.api
        self._observe = observe

    def answer(self, row: Endpoint, request: Request, args: Mapping[str, str]) -> Response:
        """The response of one request; what a client can cause is never a 5xx."""
        ids = RequestIds.of(request)
        began = time.monotonic()
        try:
            response = self._respond(self._run(row, request, args, ids), row, ids)
        except Replay as replay:
            status, body, headers = replay.answer
            response = json_response(body, status, ids, headers)
        except GpuServiceError as error:
            status = errors.status_of(error)
            if status >= 500 and status != 503:
                LOG.error("Request %s failed: %s", ids.local, error.detail)
            pointer = error.pointer
            if isinstance(error, NameTaken) and row.body is not None:
                pointer = f"/{row.body['required'][0]}/name"
            response = json_response(
                errors.body(
                    status,
                    error.error_code,
                    error.title,
                    error.detail,
                    ids.local,
                    pointer,
                    error.meta,
                ),
                status,
                ids,
                errors.headers_of(error, status),
            )
        if self._observe is not None:
            self._observe(row.path, row.method, response.status_code, time.monotonic() - began)
        return response

    def _run(
        self, row: Endpoint, request: Request, args: Mapping[str, str], ids: RequestIds
    ) -> Answer:
        versions.check(request.headers)
        caller = NODE if row.agent else self._caller(row, request, ids)
        for name, value in args.items():
            strict_json.check_text(value, f"/{name}")
            if name != "path" and not _ID.match(value):
                raise Invalid(f"{value[:80]!r} is not an id.", pointer=f"/{name}")
        call = Call(
            caller,
            self._services,
            args,
            self._query(row, request),
            headers=request.headers,
            if_match=request.headers.get("If-Match"),
            listing=row.listing,
            path=request.path,
            base_url=self._conf.public_url or request.host_url,
        )
        if row.raw_body:
            call.stream = request.stream  # type: ignore[assignment]
        elif row.body is not None:
            self._read(row, request, call)
        return row.verb(call)

    def _caller(self, row: Endpoint, request: Request, ids: RequestIds) -> Caller:
        identity = self._strategy.identify(request.environ)
        caller = Caller(identity.project_id, identity.user_id, identity.roles, ids.local, ids.given)
        if row.rule is None:
            # A route that enforces nothing is a defect, and must not answer.
            raise GpuServiceError(f"No policy rule is enforced for {row.method} {row.path}.")
        self._enforcer.enforce(row.rule, caller)
        credentials = {
            "roles": sorted(identity.roles),
            "project_id": identity.project_id,
            "user_id": identity.user_id,
        }
        allows = self._enforcer.allows
        return Caller(
            identity.project_id,
            identity.user_id,
            identity.roles,
            ids.local,
            ids.given,
            is_admin=allows("admin", credentials),
            is_manager=allows("manager", credentials),
            sees_all=allows("gpu:all_projects", credentials),
        )

    def _query(self, row: Endpoint, request: Request) -> dict[str, str]:
        query: dict[str, str] = {}
        for name, values in request.args.lists():
            if len(values) > 1:
                raise Invalid(
                    f"The query parameter {name[:80]!r} stands twice.", pointer=f"/{name}"
                )
            strict_json.check_text(name, "")
            strict_json.check_text(values[0], f"/{name}")
            query[name] = values[0]
        if row.listing is None:
            self._check_query(row, query)
        return query

    @staticmethod
    def _check_query(row: Endpoint, query: Mapping[str, str]) -> None:
        for name, value in query.items():
            schema = row.query.get(name)
            if schema is None:
                allowed = ", ".join(sorted(row.query)) or "none"
                raise Invalid(
                    f"The query parameter {name[:80]!r} is unknown; allowed: {allowed}.",
                    pointer=f"/{name}",
                )
            read: Any = value
            if schema["type"] == "integer" and re.fullmatch(r"-?\d{1,15}", value, re.ASCII):
                read = int(value)
            try:
                checker(schema).check(read)
            except Invalid as error:
                detail = error.detail.replace("The body", name, 1)
                raise Invalid(detail, pointer=f"/{name}") from error

    def _read(self, row: Endpoint, request: Request, call: Call) -> None:
        limit = max(self._conf.max_body_bytes, row.max_body)
        data = read_body(request, limit, self._conf.max_drain_bytes + row.max_body)
        if not data and row.method in ("GET", "DELETE"):
            return
        check_json(request)
        call.body = strict_json.parse(data)
        checker(row.body or {}).check(call.body)
        key = request.headers.get("Idempotency-Key")
        if row.idempotent and key is not None:
            if not _KEY.match(key):
                raise Invalid("Idempotency-Key must be 1 to 255 printable ASCII characters.")
            digest = hashlib.sha256(data + request.query_string).hexdigest()
            call.idempotency = IdempotencyKey(
                call.caller.project_id, call.caller.user_id, request.path, key, digest
            )

    def _respond(self, answer: Answer, row: Endpoint, ids: RequestIds) -> Response:
        if answer.raw is not None:
            response = Response(
                answer.raw, status=answer.status, mimetype="application/octet-stream"
            )
            response.headers.update(dict(answer.headers))
            return dressed(response, ids)
        self._check_answer(answer, row)
        return json_response(answer.body, answer.status, ids, dict(answer.headers))

    def _check_answer(self, answer: Answer, row: Endpoint) -> None:
        mode = self._conf.response_validation
        if mode == "off" or row.answer is None or answer.body is None:
            return
        faults = checker(row.answer).faults(json.loads(json.dumps(answer.body)))
        if not faults:
            return
        said = f"{row.method} {row.path} answers against its schema: {'; '.join(faults[:3])}"
        if mode == "error":
            raise GpuServiceError(said)
        LOG.warning("%s", said)

# SPDX-License-Identifier: Apache-2.0
"""The application: every endpoint of one table, behind one dispatcher."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask, Request, Response, request
from oslo_config import cfg
from oslo_middleware.healthcheck import Healthcheck
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from gpuservice.api import errors, openapi, versions
from gpuservice.api.dispatch import Dispatcher
from gpuservice.api.endpoint import Endpoint
from gpuservice.api.requests import RequestIds, dressed, json_response
from gpuservice.api.v1 import endpoints
from gpuservice.auth.enforcer import Enforcer
from gpuservice.auth.strategies import Strategy
from gpuservice.domain.errors import GpuServiceError
from gpuservice.services.registry import Services

LOG = logging.getLogger(__name__)


class StrictRequest(Request):
    """Flask's request, without its own reading of forms."""

    want_form_data_parsed = False


def create_app(
    services: Services,
    strategy: Strategy,
    enforcer: Enforcer,
    conf: cfg.ConfigOpts,
    observe: Callable[[str, str, int, float], None] | None = None,
) -> Flask:
    """The WSGI application.

    :param observe: told route, method, status and seconds of each request (metrics).
    """
    app = Flask("gpuservice", static_folder=None)
    app.request_class = StrictRequest
    app.url_map.strict_slashes = True
    app.url_map.merge_slashes = False
    dispatcher = Dispatcher(services, strategy, enforcer, conf, observe)
    rows = endpoints()
    for row in rows:
        name = f"{row.method} {row.path}"
        app.add_url_rule(
            f"/v1{row.path}",
            name,
            _view(dispatcher, row),
            methods=[row.method],
            provide_automatic_options=False,
        )
    _public(app, rows)
    _handlers(app)
    return app


def _view(dispatcher: Dispatcher, row: Endpoint) -> Callable[..., Response]:
    def view(**args: str) -> Response:
        return dispatcher.answer(row, request, args)

    return view


def _public(app: Flask, rows: Iterable[Endpoint]) -> None:
    """What needs no authentication: versions, OpenAPI, health."""
    document = openapi.document(rows)

    def version_list() -> Response:
        return json_response(versions.listing(request.host_url), 300, RequestIds.of(request))

    def version_one() -> Response:
        return json_response(versions.one(request.host_url), 200, RequestIds.of(request))

    def served_openapi() -> Response:
        return json_response(document, 200, RequestIds.of(request))

    health = Healthcheck(None, {"path": "/healthcheck"})

    def healthcheck() -> Response:
        found = Response.from_app(health, request.environ)
        return dressed(
            Response(found.data, found.status_code, mimetype=found.mimetype), RequestIds.of(request)
        )

    for path, view in (
        ("/", version_list),
        ("/v1", version_one),
        ("/v1/", version_one),
        ("/v1/openapi.json", served_openapi),
        ("/healthcheck", healthcheck),
    ):
        app.add_url_rule(
            path, f"public {path}", view, methods=["GET"], provide_automatic_options=False
        )


def _handlers(app: Flask) -> None:
    """Whatever goes wrong outside an endpoint has the same body."""

    def on_http(error: HTTPException) -> Response:
        ids = RequestIds.of(request)
        status = error.code or 500
        detail = f"{request.method} {request.path[:200]}: {error.name}."
        body = errors.body(
            status,
            f"gpu.http.{error.name.lower().replace(' ', '_')}",
            error.name,
            detail,
            ids.local,
        )
        response = json_response(body, status, ids)
        if isinstance(error, MethodNotAllowed) and error.valid_methods:
            response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
        return response

    def on_any(error: Exception) -> Response:
        ids = RequestIds.of(request)
        if isinstance(error, GpuServiceError):
            status = errors.status_of(error)
            return json_response(
                errors.body(status, error.error_code, error.title, error.detail, ids.local),
                status,
                ids,
            )
        LOG.error("Request %s failed", ids.local, exc_info=error)
        return json_response(
            errors.body(
                500,
                "gpu.platform.error",
                "The service failed",
                "The service failed; its log has the request id.",
                ids.local,
            ),
            500,
            ids,
        )

    app.register_error_handler(HTTPException, on_http)
    app.register_error_handler(Exception, on_any)


def wsgi(app: Flask) -> Any:
    """The plain WSGI callable."""
    return app.wsgi_app

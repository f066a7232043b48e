# SPDX-License-Identifier: Apache-2.0
"""Options of the REST API."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "api"

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        "auth_strategy",
        default="keystone",
        choices=["keystone", "http_basic", "noauth"],
        help="How callers are known: keystone (tokens), http_basic (a password file), noauth "
        "(whoever connects from this machine).",
    ),
    cfg.HostAddressOpt(
        "listen_address", default="127.0.0.1", help="The address gpuservice-api listens on."
    ),
    cfg.PortOpt("listen_port", default=9797, help="The port gpuservice-api listens on."),
    cfg.IntOpt(
        "threads",
        default=24,
        min=2,
        max=512,
        help="Requests served at the same time by one process.",
    ),
    cfg.IntOpt(
        "max_waiting",
        default=12,
        min=0,
        help="Requests that may wait for news (logs, agents) at the same time in one process; "
        "more are answered at once.",
    ),
    cfg.IntOpt(
        "max_body_bytes", default=1048576, min=1024, help="The largest JSON body, in bytes."
    ),
    cfg.IntOpt(
        "max_drain_bytes",
        default=8388608,
        min=0,
        help="How much of a refused body is read, in bytes, so that the client sees the answer.",
    ),
    cfg.StrOpt(
        "http_basic_user_file",
        default="/etc/gpuservice/htpasswd",
        help="The htpasswd file (bcrypt) of the http_basic strategy.",
    ),
    cfg.StrOpt(
        "http_basic_identity_file",
        default="/etc/gpuservice/users.yaml",
        help="The YAML file that maps users to a project and roles.",
    ),
    cfg.StrOpt(
        "response_validation",
        default="off",
        choices=["error", "warn", "off"],
        help="What happens to an answer that breaks its own schema: error (500), warn (logged) "
        "or off (not looked at; looking costs about a millisecond an answer).",
    ),
    cfg.StrOpt(
        "public_url",
        default=None,
        help="The URL under which clients and nodes reach the API; by default that of the request.",
    ),
    cfg.PortOpt(
        "metrics_port",
        default=None,
        help="The port of the listener that serves /metrics on the listen address; none if unset.",
    ),
    cfg.IntOpt(
        "idempotency_hours",
        default=24,
        min=1,
        help="How long the first answer to an Idempotency-Key is kept, in hours.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group."""
    conf.register_opts(OPTS, group=GROUP)

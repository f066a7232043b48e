# SPDX-License-Identifier: Apache-2.0
"""How a caller is known: one class a strategy, chosen by ``[api] auth_strategy``.

The identity headers a client sends count under ``noauth`` alone; ``http_basic`` never looks at
them. Keystone's strategy is keystonemiddleware in front of the application, which removes what
clients send and sets what it has verified.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol

import bcrypt
import yaml
from oslo_config import cfg

from gpuservice.domain.errors import Forbidden, Invalid, Unauthenticated

Environ = Mapping[str, Any]

#: How long a verified password is remembered (as a digest), so that bcrypt runs once a minute.
REMEMBER_S = 60.0
_NAME_BOUND = 64


@dataclass(frozen=True, slots=True)
class Identity:
    """A verified caller."""

    project_id: str
    user_id: str
    roles: frozenset[str]


class Strategy(Protocol):
    """What each strategy does."""

    def identify(self, environ: Environ) -> Identity:
        """The caller; raises ``Unauthenticated``."""


def is_loopback(address: str) -> bool:
    """Whether an address (or ``localhost``) is this machine itself."""
    if address.lower() == "localhost":
        return True
    try:
        return ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


class NoAuth:
    """Whoever connects from this very machine, saying who they are."""

    def identify(self, environ: Environ) -> Identity:
        """Refuses foreign peers, foreign ``Host`` names and forwarded requests."""
        host = str(environ.get("HTTP_HOST", "localhost"))
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        forwarded = [
            key for key in environ if key.startswith(("HTTP_FORWARDED", "HTTP_X_FORWARDED"))
        ]
        if not is_loopback(str(environ.get("REMOTE_ADDR", ""))):
            raise Forbidden("Without authentication only this machine itself is served.")
        if not is_loopback(name):
            raise Forbidden(
                f"Without authentication the Host must be a loopback name, not {name!r}."
            )
        if forwarded:
            raise Forbidden("Without authentication forwarded requests are not served.")
        roles = str(environ.get("HTTP_X_ROLES") or "member")
        return Identity(
            _said(environ, "HTTP_X_PROJECT_ID", "default"),
            _said(environ, "HTTP_X_USER_ID", "default"),
            frozenset(role.strip() for role in roles.split(",") if role.strip()),
        )


def _said(environ: Environ, key: str, default: str) -> str:
    value = str(environ.get(key) or default)
    if len(value) > _NAME_BOUND or not value.isprintable() or not value.isascii():
        name = key.removeprefix("HTTP_").replace("_", "-").title()
        raise Invalid(f"{name} must be 1 to {_NAME_BOUND} printable ASCII characters.")
    return value


class HttpBasic:
    """Users of an htpasswd file (bcrypt), mapped to project and roles by a YAML file."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._passwords = _passwords(Path(conf.api.http_basic_user_file))
        self._users: dict[str, Any] = yaml.safe_load(
            Path(conf.api.http_basic_identity_file).read_text(encoding="utf-8")
        )["users"]
        self._known: dict[bytes, float] = {}
        self._lock = threading.Lock()

    def identify(self, environ: Environ) -> Identity:
        """Checks the password and looks the user up."""
        user, password = _basic(environ)
        if not self._right(user, password):
            raise Unauthenticated("The user name or the password is wrong.")
        entry = self._users.get(user)
        if entry is None:
            raise Forbidden(f"The user {user!r} has no project here.")
        return Identity(
            str(entry["project_id"]),
            str(entry.get("user_id", user)),
            frozenset(entry.get("roles", ["member"])),
        )

    def _right(self, user: str, password: str) -> bool:
        stored = self._passwords.get(user)
        digest = hashlib.sha256(f"{user}\0{password}\0{stored}".encode()).digest()
        with self._lock:
            if self._known.get(digest, 0.0) > time.monotonic():
                return True
        # An unknown user costs the same time as a wrong password.
        right = bcrypt.checkpw(password.encode()[:72], (stored or _NOBODY).encode())
        if not right or stored is None:
            return False
        with self._lock:
            now = time.monotonic()
            self._known = {key: until for key, until in self._known.items() if until > now}
            self._known[digest] = now + REMEMBER_S
        return True


_NOBODY = bcrypt.hashpw(b"nobody", bcrypt.gensalt(10)).decode()


def _passwords(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition(":") for line in lines if line and not line.startswith("#"))
    return {user: digest.replace("$2y$", "$2b$", 1) for user, _, digest in pairs}


def _basic(environ: Environ) -> tuple[str, str]:
    kind, _, value = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
    try:
        if kind.lower() != "basic":
            raise ValueError(kind)
        user, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        if not colon:
            raise ValueError("no colon")
    except (ValueError, binascii.Error) as error:
        raise Unauthenticated("A user name and a password are needed.") from error
    return user, password


class Keystone:
    """Reads what keystonemiddleware has verified and set."""

    def identify(self, environ: Environ) -> Identity:
        """Raises ``Unauthenticated`` when the middleware did not confirm a token."""
        if environ.get("HTTP_X_IDENTITY_STATUS") != "Confirmed":
            raise Unauthenticated("A valid token is needed.")
        project = environ.get("HTTP_X_PROJECT_ID")
        if not project:
            raise Forbidden("The token must be scoped to a project.")
        roles = str(environ.get("HTTP_X_ROLES") or "")
        return Identity(
            str(project),
            str(environ.get("HTTP_X_USER_ID") or ""),
            frozenset(role for role in roles.split(",") if role),
        )


def strategy(conf: cfg.ConfigOpts) -> Strategy:
    """The configured strategy."""
    name = conf.api.auth_strategy
    if name == "noauth":
        return NoAuth()
    return HttpBasic(conf) if name == "http_basic" else Keystone()


def protected(conf: cfg.ConfigOpts, application: Any) -> Any:
    """The WSGI application behind the strategy's middleware, if it has one."""
    if conf.api.auth_strategy != "keystone":
        return application
    from keystonemiddleware import auth_token

    return auth_token.AuthProtocol(
        application, {"oslo_config_config": conf, "delay_auth_decision": True}
    )

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
import re
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
_BCRYPT = re.compile(r"^\$2[aby]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}\Z")
#: Where the file has no user at all.
_DEFAULT_COST = 10


class UserFileError(cfg.Error):
    """A file of ``http_basic`` is missing or wrong; told when the program starts."""


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
        """Read both files.

        :raises UserFileError: naming the file and what is wrong in it.
        """
        self._passwords = _passwords(Path(conf.api.http_basic_user_file))
        self._users = _identities(Path(conf.api.http_basic_identity_file))
        costs = [_cost(digest) for digest in self._passwords.values()] or [_DEFAULT_COST]
        self._highest = max(costs)
        #: A password that nobody has, at each cost that a refusal may have to add.
        self._nobody = {
            cost: bcrypt.hashpw(b"nobody", bcrypt.gensalt(cost))
            for cost in range(min(costs), self._highest + 1)
        }
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
        if stored is None or not bcrypt.checkpw(password.encode()[:72], stored.encode()):
            self._spend(password, stored)
            return False
        with self._lock:
            now = time.monotonic()
            self._known = {key: until for key, until in self._known.items() if until > now}
            self._known[digest] = now + REMEMBER_S
        return True

    def _spend(self, password: str, stored: str | None) -> None:
        """Every refusal takes the time of the highest cost in the file, so that it does not tell
        which users there are: a cost is the power of two of its rounds, and those add up."""
        word = password.encode()[:72]
        if stored is None:
            bcrypt.checkpw(word, self._nobody[self._highest])
            return
        for cost in range(_cost(stored), self._highest):
            bcrypt.checkpw(word, self._nobody[cost])


def _cost(digest: str) -> int:
    return int(digest[4:6])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserFileError(f"{path} cannot be read: {error}") from error


def _passwords(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, _, digest = line.strip().partition(":")
        if not user or not _BCRYPT.match(digest):
            raise UserFileError(
                f"{path}, line {number}: not a user name with a bcrypt password (htpasswd -B)."
            )
        found[user] = digest.replace("$2y$", "$2b$", 1)
    return found


def _identities(path: Path) -> dict[str, dict[str, Any]]:
    try:
        content = yaml.safe_load(_text(path))
    except yaml.YAMLError as error:
        raise UserFileError(f"{path} is no YAML: {error}") from error
    users = content.get("users") if isinstance(content, dict) else None
    if not isinstance(users, dict):
        raise UserFileError(f"{path} must hold users: with an entry for each.")
    for user, entry in users.items():
        roles = entry.get("roles", []) if isinstance(entry, dict) else None
        if (
            not isinstance(user, str)
            or not isinstance(entry, dict)
            or not entry.get("project_id")
            or not isinstance(roles, list)
            or not all(isinstance(role, str) for role in roles)
        ):
            raise UserFileError(
                f"{path}: the entry of {str(user)!r} must be like "
                "{project_id: vision, roles: [member]}."
            )
    return users


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

# SPDX-License-Identifier: Apache-2.0
"""Which machines an ``http(s)://`` source or target may name, and a connection that cannot stray.

A name is resolved once and the connection goes to that very address, so that a name server cannot
answer differently the second time; each redirect goes through the same gate.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - host names need it when nothing can be imported any more
import http.client
import ipaddress
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urljoin, urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
MAX_REDIRECTS = 5
#: Metadata services of clouds that lie outside the link-local ranges (Alibaba, Azure, AWS).
_METADATA = tuple(
    map(ipaddress.ip_network, ("100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::/32"))
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class AddressRefused(PermissionError):
    """The address may not be reached from a task's data."""


@dataclass(frozen=True, slots=True)
class AddressRules:
    """Networks that are refused; ``allow_loopback`` for tests and all-in-one; ``authorities``:
    certificates (PEM) that are trusted besides the machine's."""

    denied: tuple[str, ...] = ()
    allow_loopback: bool = False
    authorities: str | None = None
    _networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = field(init=False)

    def __post_init__(self) -> None:
        networks = tuple(ipaddress.ip_network(one, strict=False) for one in self.denied)
        object.__setattr__(self, "_networks", networks)

    def trust(self) -> ssl.SSLContext:
        """What a server's certificate is checked against."""
        context = ssl.create_default_context()
        if self.authorities:
            context.load_verify_locations(cadata=self.authorities)
        return context

    def check(self, text: str) -> Address:
        """The address, if it may be reached.

        :raises AddressRefused: with the reason.
        """
        address = _unwrapped(ipaddress.ip_address(text.partition("%")[0]))
        if address.is_loopback and self.allow_loopback:
            return address
        if (
            address.is_loopback
            or address.is_link_local
            or address.is_multicast
            or address.is_unspecified
            or address.is_reserved
        ):
            raise AddressRefused(f"address {address} is not a public or private host's")
        if any(address in network for network in (*_METADATA, *self._networks)):
            raise AddressRefused(f"address {address} lies in a denied network")
        return address

    def resolve(self, host: str, port: int) -> str:
        """The first address of a name that may be reached.

        :raises OSError: when the name is unknown. :raises AddressRefused: when all are refused.
        """
        refused: AddressRefused | None = None
        for *_, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                return str(self.check(str(where[0])))
            except AddressRefused as error:
                refused = error
        raise refused or OSError(f"{host} has no address")


def _unwrapped(address: Address) -> Address:
    """The IPv4 address inside a mapped, 6to4 or NAT64 one."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return inner or address
    return address


class _Pinned(http.client.HTTPConnection):
    """A connection to one address, under the name the URL has."""

    def __init__(
        self, url: SplitResult, address: str, port: int, timeout_s: float, rules: AddressRules
    ) -> None:
        super().__init__(url.hostname or "", port, timeout=timeout_s)
        self._address = address
        self._trust = rules.trust() if url.scheme == "https" else None

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        if self._trust is not None:
            self.sock = self._trust.wrap_socket(self.sock, server_hostname=self.host)


def _connection(url: str, rules: AddressRules, timeout_s: float) -> tuple[_Pinned, str]:
    split = urlsplit(url)
    if split.scheme not in ("http", "https") or not split.hostname:
        raise ValueError(f"{split.scheme or 'no'} URL is not supported")
    port = split.port or (443 if split.scheme == "https" else 80)
    connection = _Pinned(split, rules.resolve(split.hostname, port), port, timeout_s, rules)
    return connection, (split.path or "/") + (f"?{split.query}" if split.query else "")


def get(url: str, rules: AddressRules, timeout_s: float) -> http.client.HTTPResponse:
    """The open answer of a GET, redirects followed.

    :raises OSError: unreachable, refused (``AddressRefused``), or an answer that is not 200;
        FileNotFoundError for 404 and 410, PermissionError for 401 and 403.
    """
    for _ in range(MAX_REDIRECTS + 1):
        connection, path = _connection(url, rules, timeout_s)
        try:
            connection.request("GET", path, headers={"Accept-Encoding": "identity"})
            answer = connection.getresponse()
        except http.client.HTTPException as error:
            raise OSError(f"not an HTTP answer: {error!r}") from error
        location = answer.getheader("Location")
        if answer.status in (301, 302, 303, 307, 308) and location:
            connection.close()
            url = urljoin(url, location)
            continue
        _refuse(answer)
        return answer
    raise OSError(f"more than {MAX_REDIRECTS} redirects")


def put(
    url: str, content: Iterable[bytes], size: int, rules: AddressRules, timeout_s: float
) -> None:
    """Store content with a PUT; redirects are not followed.

    :raises OSError: as for ``get``.
    """
    connection, path = _connection(url, rules, timeout_s)
    try:
        connection.request("PUT", path, body=content, headers={"Content-Length": str(size)})
        answer = connection.getresponse()
        answer.read(65536)
    except http.client.HTTPException as error:
        raise OSError(f"not an HTTP answer: {error!r}") from error
    finally:
        connection.close()
    _refuse(answer)


def _refuse(answer: http.client.HTTPResponse) -> None:
    if 200 <= answer.status < 300:
        return
    kind: type[OSError] = {
        401: PermissionError,
        403: PermissionError,
        404: FileNotFoundError,
        410: FileNotFoundError,
    }.get(answer.status, OSError)
    raise kind(f"answer {answer.status} {answer.reason}")

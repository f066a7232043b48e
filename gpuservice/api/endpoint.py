# SPDX-License-Identifier: Apache-2.0
"""The table of endpoints: one row a verb, with all that guard, validation and OpenAPI need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from werkzeug.datastructures import EnvironHeaders, Headers

from gpuservice.api.listing import Listing
from gpuservice.domain.context import Caller
from gpuservice.domain.errors import StaleGeneration
from gpuservice.services.idempotency import IdempotencyKey
from gpuservice.services.registry import Services

Schema = dict[str, Any]


@dataclass(slots=True)
class Call:
    """One request as a verb sees it."""

    caller: Caller
    services: Services
    args: Mapping[str, str]
    query: Mapping[str, str]
    body: Any = None
    stream: BinaryIO | None = None
    headers: Headers | EnvironHeaders = field(default_factory=Headers)
    if_match: str | None = None
    idempotency: IdempotencyKey | None = None
    listing: Listing | None = None
    base_url: str = ""
    path: str = ""

    def generation(self) -> int | None:
        """The generation that ``If-Match`` wants, None for any.

        :raises StaleGeneration: when the header is not a generation.
        """
        if self.if_match is None or self.if_match.strip() == "*":
            return None
        text = self.if_match.strip().strip('"')
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise StaleGeneration(f"If-Match is {self.if_match[:80]!r}, not a generation.")
        return int(text)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a verb answers: a JSON body, or raw bytes or chunks of them."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | Iterator[bytes] | None = None


Verb = Callable[[Call], Answer]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row. ``rule`` None: no policy (``agent`` endpoints know their caller by secret)."""

    method: str
    path: str
    verb: Verb
    rule: str | None
    statuses: tuple[int, ...]
    body: Schema | None = None
    query: Schema = field(default_factory=dict)
    answer: Schema | None = None
    listing: Listing | None = None
    idempotent: bool = False
    raw_body: bool = False
    agent: bool = False
    #: Bytes of its JSON body at most where that is more than others' (``[api] max_body_bytes``).
    max_body: int = 0
    summary: str = ""


class Table:
    """The endpoints of one noun, gathered by a decorator."""

    def __init__(self) -> None:
        self.rows: list[Endpoint] = []

    def add(
        self, method: str, path: str, rule: str | None, *statuses: int, **more: Any
    ) -> Callable[[Verb], Verb]:
        """Register a verb; the first line of its docstring is its summary."""

        def register(verb: Verb) -> Verb:
            lines = (verb.__doc__ or "").strip().splitlines()
            self.rows.append(
                Endpoint(
                    method, path, verb, rule, statuses, summary=lines[0] if lines else "", **more
                )
            )
            return verb

        return register

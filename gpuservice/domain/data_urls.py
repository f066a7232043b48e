# SPDX-License-Identifier: Apache-2.0
"""Where inputs come from and outputs go: what no node could fetch or deliver is refused at once."""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from gpuservice.domain.errors import Invalid

#: Schemes that nodes fetch from and deliver to. Object stores need a driver that signs URLs.
SCHEMES = ("file", "http", "https")


def check_source(source: str, path: str, pointer: str) -> None:
    """An input's ``source``, given the ``path`` that it is to have.

    :raises Invalid: when no node could fetch it.
    """
    split = _checked("source", source, pointer)
    nameless = all(part in ("", ".") for part in unquote(split.path).split("/"))
    if nameless and (path.endswith("/") or path == "."):
        raise Invalid(
            f"source is {source[:200]!r}, which names no file, and path is {path!r}, a directory; "
            "path must name the file.",
            pointer=pointer,
        )


def check_target(target: str, pointer: str) -> None:
    """An output's ``target``.

    :raises Invalid: when no node could deliver there.
    """
    _checked("target", target, pointer)


def check_roots(spec: Mapping[str, Any], roots: Sequence[str]) -> None:
    """Every file URL of a request lies below one of the directories opened for them.

    :raises Invalid: otherwise.
    """
    for nouns, name in (("inputs", "source"), ("outputs", "target")):
        for index, one in enumerate(spec[nouns]):
            url = one.get(name)
            if url is None or urlsplit(url).scheme != "file":
                continue
            path = os.path.normpath(unquote(urlsplit(url).path))
            if not any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots):
                raise Invalid(
                    f"{name} is {url[:200]!r}; file URLs must lie below {', '.join(roots)}.",
                    pointer=f"/job/{nouns}/{index}/{name}",
                )


def _checked(name: str, url: str, pointer: str) -> SplitResult:
    wrong = f"{name} is {url[:200]!r}"
    try:
        split = urlsplit(url)
        port_known = split.port is None or split.port > 0
    except ValueError as error:
        raise Invalid(f"{wrong}, which is no URL: {error}.", pointer=pointer) from error
    if split.scheme not in SCHEMES:
        raise Invalid(
            f"{wrong}; {split.scheme} is not supported by this deployment, only "
            f"{', '.join(SCHEMES)}.",
            pointer=pointer,
        )
    if split.scheme == "file":
        if split.netloc not in ("", "localhost") or not split.path.startswith("/"):
            raise Invalid(
                f"{wrong}; a file URL names an absolute path of the node, like file:///data/x.",
                pointer=pointer,
            )
    elif not split.hostname or not port_known:
        raise Invalid(f"{wrong}, which names no host and port.", pointer=pointer)
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in unquote(split.path)):
        raise Invalid(f"{wrong}, which hides control characters.", pointer=pointer)
    return split

# SPDX-License-Identifier: Apache-2.0
"""URLs of inputs and outputs: what no node could fetch or deliver is refused."""

from __future__ import annotations

from typing import Any

import pytest

from gpuservice.domain.data_urls import check_roots, check_source, check_target
from gpuservice.domain.errors import Invalid
from gpuservice.domain.jobspec import normalise

GOOD = [
    ("file:///data/x", "x"),
    ("file://localhost/data/x", "d/"),
    ("file:///data/", "d/"),
    ("http://x.org/", "page"),
    ("http://x.org", "page"),
    ("https://x.org:8443/a%20b?c=d", "d/"),
    ("https://x.org/a/", "d/"),
    ("https://[2001:db8::1]/a", "a"),
]
WRONG = [
    ("s3://bucket/key", "x"),
    ("swift://container/name", "x"),
    ("file://elsewhere/data/x", "x"),
    ("file://", "x"),
    ("http:///a", "a"),
    ("http://:80/a", "a"),
    ("http://x.org:0/a", "a"),
    ("http://x.org:99999/a", "a"),
    ("http://x.org:port/a", "a"),
    ("http://[2001:db8::1/a", "a"),
    ("file:///data/a%00b", "x"),
    ("https://x.org/a%0a", "x"),
]
NAMELESS = [
    ("http://x.org/", "d/"),
    ("http://x.org", "."),
    ("http://x.org//", "d/"),
    ("file:///", "d/"),
]


@pytest.mark.parametrize(("url", "path"), GOOD)
def test_what_nodes_can_do(url: str, path: str) -> None:
    check_source(url, path, "/p")
    check_target(url, "/p")


@pytest.mark.parametrize(("url", "path"), WRONG)
def test_what_they_cannot(url: str, path: str) -> None:
    for check in (lambda: check_source(url, path, "/p"), lambda: check_target(url, "/p")):
        with pytest.raises(Invalid) as caught:
            check()
        assert caught.value.pointer == "/p"
        assert url in caught.value.detail


@pytest.mark.parametrize(("url", "path"), NAMELESS)
def test_a_source_without_a_name_needs_one(url: str, path: str) -> None:
    with pytest.raises(Invalid, match="names no file"):
        check_source(url, path, "/p")
    check_target(url, "/p")


def spec(**fields: Any) -> dict[str, Any]:
    return normalise({"name": "a", "command": ["true"], **fields}, {}, None)


def test_file_urls_below_the_roots() -> None:
    roots = ["/srv/data/", "/mnt"]
    check_roots(
        spec(
            inputs=[
                {"source": "file:///srv/data/x", "path": "x"},
                {"source": "https://x.org/etc/passwd", "path": "y"},
            ],
            outputs=[{"path": "o"}, {"path": "o", "target": "file:///mnt/{job_id}/o"}],
        ),
        roots,
    )
    for path in ("/srv/database/x", "/srv/data/../x", "/mnt/%2e%2e/etc/passwd", "/"):
        with pytest.raises(Invalid) as caught:
            check_roots(spec(outputs=[{"path": "o", "target": f"file://{path}"}]), roots)
        assert caught.value.pointer == "/job/outputs/0/target"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image", "docker.io/nvidia/cuda:12"),
        ("secrets", [{"env": "TOKEN", "ref": "barbican:x"}]),
    ],
)
def test_what_has_no_driver_is_refused_not_ignored(field: str, value: Any) -> None:
    with pytest.raises(Invalid, match="no driver") as caught:
        spec(**{field: value})
    assert caught.value.pointer == f"/job/{field}"
    empty: Any = [] if field == "secrets" else None
    assert spec(**{field: empty})[field] == empty

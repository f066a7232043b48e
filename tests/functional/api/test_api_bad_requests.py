# SPDX-License-Identifier: Apache-2.0
"""Wrong versions, methods, paths, queries and headers get the documented 4xx.

The cases are made from the endpoint table, so that a new endpoint cannot be forgotten.
"""

from __future__ import annotations

import json

import pytest
from api_world import error_of
from valid_bodies import BODIES, key_of, path_of

from gpuservice.api.v1 import endpoints

pytestmark = pytest.mark.a6

ROWS = endpoints()


@pytest.mark.parametrize("row", ROWS, ids=key_of)
def test_microversions(world, target, row):
    path = "/v1" + path_of(row, target)
    for value, status in (
        ("gpu 1.1", 406),
        ("gpu 2.0", 406),
        ("gpu 0.9", 406),
        ("gpu x", 400),
        ("gpu 1", 400),
        ("gpu 1.0.0", 400),
        ("gpu -1.0", 400),
        ("gpu", 400),
        ("compute 2.1, gpu 1.7", 406),
    ):
        response = world.admin.raw(row.method, path, headers={"OpenStack-API-Version": value})
        error = error_of(response)
        assert error["status"] == status, value
        if status == 406:
            assert error["meta"] == {"min_version": "1.0", "max_version": "1.0"}
        assert "OpenStack-API-Version" in response.headers["Vary"]


@pytest.mark.parametrize("path", sorted({row.path for row in ROWS}))
def test_wrong_method(world, target, path):
    rows = [row for row in ROWS if row.path == path]
    allowed = {row.method for row in rows}
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - allowed:
        response = world.admin.raw(method, "/v1" + path_of(rows[0], target))
        assert error_of(response)["status"] == 405
        found = {word.strip() for word in response.headers["Allow"].split(",")}
        assert found - {"HEAD", "OPTIONS"} == allowed


ODD_IDS = (
    "no-such-thing",
    "%00",
    "%0a",
    "a%0a",
    "x" * 300,
    "..%2f..%2fetc",
    "%2e%2e",
    "%ff%fe",
    "%F0%9F%92%A5",
    "'%20OR%201=1--",
    "%7B%7D",
    "-1",
    "%1b%5b31m",
    "a b",
)


@pytest.mark.parametrize("row", [row for row in ROWS if "<" in row.path], ids=key_of)
def test_odd_ids(world, cluster, row):
    body = json.dumps(BODIES[key_of(row)]) if row.body else None
    for odd in ODD_IDS:
        path = "/v1" + row.path.replace("<id>", odd).replace("<int:seq>", "1").replace(
            "<seq>", "1"
        ).replace("<path:path>", odd)
        response = world.admin.raw(
            row.method, path, data=body, content_type="application/json" if body else None
        )
        if "quotas" in path and response.status_code < 300:
            continue  # every project has a quota, if only of defaults
        assert response.status_code in (400, 401, 404), (path, response.text)
        error_of(response)


ODD_VALUES = (
    "",
    " ",
    "-1",
    "0",
    "1.5",
    "1e3",
    "9" * 30,
    "x" * 300,
    "\u0661",
    "null",
    "true",
    "a,b",
    "in:",
    "in:,",
    "neq:",
    "a\nb",
    "\x00",
    "\x1b[0m",
    "\U0001f4a5",
    "'\"--",
    "name:sideways",
    "2026-01-01T00:00:00",
    "00000000-0000-4000-8000-000000000000",
    "9999-12-31T23:59:59-12:00",
    "0001-01-01T00:00:00+12:00",
    "2026-01-01T00:00Z/1",
)


@pytest.mark.parametrize("row", [row for row in ROWS if row.listing or row.query], ids=key_of)
def test_query_parameters(world, target, row):
    path = "/v1" + path_of(row, target)
    names = set(row.listing.names() if row.listing else row.query)
    body = (
        {"data": json.dumps(BODIES[key_of(row)]), "content_type": "application/json"}
        if row.body
        else {}
    )
    for name in names:
        for value in ODD_VALUES:
            response = world.admin.raw(row.method, path, query_string={name: value}, **body)
            assert response.status_code < 500, (name, value, response.text)
            if response.status_code == 400 and not row.agent:
                assert error_of(response)["source"]["pointer"] == f"/{name}", (name, value)
    response = world.admin.raw(row.method, path, query_string={"nmae": "x"}, **body)
    assert (error_of(response)["status"], error_of(response)["source"]["pointer"]) == (400, "/nmae")
    name = min(names)
    response = world.admin.raw(row.method, f"{path}?{name}=a&{name}=a", **body)
    assert error_of(response)["status"] == 400


#: What a project's quota and a process are is not versioned.
UNVERSIONED = ("/quotas", "/services")


@pytest.mark.parametrize(
    "row",
    [
        row
        for row in ROWS
        if row.method in ("PATCH", "DELETE") and not row.path.startswith(UNVERSIONED)
    ],
    ids=key_of,
)
def test_if_match(world, target, row):
    body = (
        {"data": json.dumps(BODIES[key_of(row)]), "content_type": "application/json"}
        if row.body
        else {}
    )
    noun = row.path.split("/")[1]
    ids = dict(target)
    if noun == "gpu-types":
        ids[noun] = world.admin.post("/gpu-types", BODIES["POST /gpu-types"]).get_json()[
            "gpu_type"
        ]["id"]
    for value in (
        '"99"',
        "99",
        "x",
        "",
        '"',
        'W/"1"',
        "9" * 40,
        "\u0661".encode().decode("latin-1"),
    ):
        response = world.admin.raw(
            row.method, "/v1" + path_of(row, ids), headers={"If-Match": value}, **body
        )
        assert error_of(response)["status"] == 412, (value, response.text)


@pytest.mark.parametrize("row", [row for row in ROWS if row.idempotent], ids=key_of)
def test_odd_idempotency_keys(world, target, row):
    for value in ("", " ", "a b", "x" * 256, "\xe9"):
        response = world.admin.raw(
            row.method,
            "/v1" + path_of(row, target),
            headers={"Idempotency-Key": value},
            data=json.dumps(BODIES[key_of(row)]),
            content_type="application/json",
        )
        assert error_of(response)["status"] == 400, value


@pytest.mark.parametrize(
    "path",
    [
        "/v2",
        "/v1/nothing",
        "/v1/jobs/",
        "/v1//jobs",
        "/v1/jobs/a/b/c/d",
        "/v1/JOBS",
        "/favicon.ico",
        "/v1/../v1/jobs",
        "/%00",
        "/v1/%ff",
    ],
)
def test_no_such_path(world, path):
    assert error_of(world.admin.raw("GET", path))["status"] == 404


def test_noauth_serves_this_machine_only(world):
    client = world.client()
    for headers in (
        {"Host": "evil.example"},
        {"Forwarded": "for=1.2.3.4"},
        {"X-Forwarded-For": "1.2.3.4"},
    ):
        assert error_of(client.raw("GET", "/v1/jobs", headers=headers))["status"] == 403
    response = client.raw("GET", "/v1/jobs", environ_overrides={"REMOTE_ADDR": "192.0.2.1"})
    assert error_of(response)["status"] == 403

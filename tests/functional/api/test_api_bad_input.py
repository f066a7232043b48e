# SPDX-License-Identifier: Apache-2.0
"""Wrong input gets the documented 4xx with a pointer, and leaves nothing behind.

The cases are made from the endpoint table and its schemas: each field of each body is missing,
of another type, empty, huge, negative and so on. Whatever the schema refuses must be answered
with 400 and the field's pointer; whatever it allows must not be a 5xx.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from api_world import Client, Cluster, World, error_of
from valid_bodies import BODIES, ids_of, key_of, path_of

from gpuservice.api.endpoint import Endpoint
from gpuservice.api.v1 import endpoints
from gpuservice.api.validation import checker
from gpuservice.db.tables import METADATA
from gpuservice.domain.errors import Invalid

pytestmark = pytest.mark.a6

ROWS = endpoints()
WITH_BODY = [row for row in ROWS if row.body is not None]
#: Values that stand in for any field. ``...`` removes it.
STRANGE: dict[str, Any] = {
    "missing": ...,
    "null": None,
    "empty text": "",
    "empty list": [],
    "empty object": {},
    "true": True,
    "minus one": -1,
    "zero": 0,
    "float": 1.5,
    "exponent": 1e30,
    "exponent of an integer": 1e2,
    "huge": 10**18,
    "beyond 64 bits": 2**63,
    "text": "no such thing",
    "long text": "x" * 70_000,
    "blank": " ",
    "dot": ".",
    "path up": "../../etc/passwd",
    "absolute path": "/etc/passwd",
    "first time": "0001-01-01T00:00:00+14:00",
    "last time": "9999-12-31T23:59:59-14:00",
    "old time": "0999-12-31T23:59:59Z",
    "newline": "a\nb",
    "trailing newline": "abc\n",
    "unicode": "\u0645\u4e2d\U0001f4a5",
    "markup": "<script>",
    "quotes": "'; DROP TABLE jobs; --",
    "format": "%s%n{0}${x}",
    "list of lists": [[[]]],
    "list of null": [None],
    "long list": [0] * 20_000,
    "object": {"a": {"b": 1}},
    "twins": ["a", "a"],
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def walk(schema: dict[str, Any], path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every field that a schema names."""
    for branch in schema.get("anyOf", ()):
        yield from walk(branch, path)
    for name, inner in schema.get("properties", {}).items():
        yield (*path, name)
        yield from walk(inner, (*path, name))
    if "items" in schema:
        yield from walk(schema["items"], (*path, 0))


def with_value(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with one field changed, or None when its parent is not there."""
    changed = copy.deepcopy(body)
    here = changed
    for step in path[:-1]:
        try:
            here = here[step]
        except (KeyError, IndexError, TypeError):
            return None
    if not isinstance(here, dict):
        return None
    if value is ...:
        if path[-1] not in here:
            return None
        del here[path[-1]]
    else:
        here[path[-1]] = value
    return changed


def counts(world: World) -> list[Any]:
    """How many rows each table has."""
    query = " UNION ALL ".join(
        f"SELECT '{table.name}', count(*) FROM {table.name}" for table in METADATA.sorted_tables
    )
    with world.engine.connect() as connection:
        return list(connection.exec_driver_sql(query))


def test_each_endpoint_has_a_valid_body():
    assert {key_of(row) for row in WITH_BODY} == set(BODIES)
    for row in WITH_BODY:
        checker(row.body).check(BODIES[key_of(row)])


@pytest.fixture
def target(world: World, cluster: Cluster, ada: Client) -> dict[str, str]:
    """Ids of existing objects by noun."""
    job = ada.post("/jobs", {"job": {"name": "a", "command": ["true"]}}).get_json()["job"]
    return ids_of(cluster, jobs=job["id"])


def send(client: Client, row: Endpoint, ids: dict[str, str], text: str | bytes) -> Any:
    return client.raw(
        row.method,
        "/v1" + path_of(row, ids),
        data=text,
        content_type="application/json",
        headers={"Authorization": "Bearer " + "0" * 64},
    )


@pytest.mark.parametrize("row", WITH_BODY, ids=key_of)
def test_every_field(world, target, row):
    admin, valid = world.admin, BODIES[key_of(row)]
    tried = refused = 0
    for path in walk(row.body):
        for name, value in STRANGE.items():
            body = with_value(valid, path, value)
            if body is None:
                continue
            tried += 1
            try:
                checker(row.body).check(body)
                expected = None
            except Invalid as error:
                expected = error.pointer
            before = counts(world) if expected is not None else []
            response = send(admin, row, target, json.dumps(body))
            where = f"{key_of(row)} {'/'.join(map(str, path))} {name}: {response.text[:300]}"
            assert response.status_code < 500, where
            if response.status_code >= 400:
                error = error_of(response)
            if expected is None:
                continue
            refused += 1
            assert response.status_code == 400, where
            assert error["source"]["pointer"] == expected, where
            pointer = "/" + "/".join(str(step) for step in path)
            assert expected.startswith(pointer) or pointer.startswith(expected), where
            assert counts(world) == before, where
    assert tried and refused


@pytest.mark.parametrize("row", WITH_BODY, ids=key_of)
def test_unknown_fields(world, target, row):
    valid = BODIES[key_of(row)]
    for body, pointer in (
        ({**valid, "extra": 1}, "/extra"),
        ({**valid, "a/b~c": 1}, "/a~1b~0c"),
    ):
        error = error_of(send(world.admin, row, target, json.dumps(body)))
        assert error["status"] == 400
        assert error["source"]["pointer"] in (pointer, "")


DAMAGED = {
    "nothing": b"",
    "not JSON": b"{",
    "text": b"hello",
    "a list": b"[]",
    "null": b"null",
    "a number": b"1",
    "not UTF-8": b'{"job": "\xff\xfe"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "twice": b'{"job": {}, "job": {}}',
    "NaN": b'{"job": NaN}',
    "infinite": b'{"job": -Infinity}',
    "deep": b'{"job": ' * 30 + b"1" + b"}" * 30,
    "deeper": b"[" * 50_000 + b"]" * 50_000,
    "NUL": b'{"job": "\\u0000"}',
    "escape": b'{"job": "\\u001b[31m"}',
    "surrogate": b'{"job": "\\ud800"}',
    "huge number": b'{"job": ' + b"1" * 10_000 + b"}",
    "trailing": b"{} {}",
    "comment": b"{} // no",
    "form": b"a=1&b=2",
}


@pytest.mark.parametrize("row", WITH_BODY, ids=key_of)
def test_damaged_bodies(world, target, row):
    before = counts(world)
    for name, text in DAMAGED.items():
        response = send(world.admin, row, target, text)
        assert response.status_code == 400, f"{name}: {response.text}"
        error_of(response)
    assert counts(world) == before


@pytest.mark.parametrize("row", WITH_BODY, ids=key_of)
def test_size_and_kind_of_body(world, target, row):
    path = "/v1" + path_of(row, target)
    for size in (2 << 20, 9 << 20):
        response = send(world.admin, row, target, b'{"a": "' + b"x" * size + b'"}')
        assert error_of(response)["status"] == 413
    good = json.dumps(BODIES[key_of(row)])
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/xml",
        "text/json",
        "application/jsonp",
        "",
    ):
        response = world.admin.raw(row.method, path, data=good, content_type=kind)
        assert error_of(response)["status"] == 415, kind
    assert world.admin.raw(row.method, path, data=good).status_code == 415


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

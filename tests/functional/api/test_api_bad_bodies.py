# SPDX-License-Identifier: Apache-2.0
"""Wrong bodies get the documented 4xx with a pointer, and leave nothing behind.

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
from api_world import Client, World, error_of
from valid_bodies import BODIES, key_of, path_of

from gpuservice.api.endpoint import Endpoint
from gpuservice.api.v1 import endpoints
from gpuservice.api.validation import checker
from gpuservice.db.tables import METADATA
from gpuservice.domain.errors import Invalid

pytestmark = pytest.mark.a6

WITH_BODY = [row for row in endpoints() if row.body is not None]

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


def send(client: Client, row: Endpoint, ids: dict[str, str], text: str | bytes) -> Any:
    return client.raw(
        row.method,
        "/v1" + path_of(row, ids),
        data=text,
        content_type="application/json",
        headers={"Authorization": "Bearer " + "0" * 64},
    )


def test_each_endpoint_has_a_valid_body():
    assert {key_of(row) for row in WITH_BODY} == set(BODIES)
    for row in WITH_BODY:
        checker(row.body).check(BODIES[key_of(row)])


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
    for size in (max(2 << 20, row.max_body + 1), 9 << 20):
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

# SPDX-License-Identifier: Apache-2.0
"""Each refusal names the field by pointer, its value and what is allowed."""

import time

import pytest

from gpuservice.api.validation import checker
from gpuservice.domain.errors import Invalid

SCHEMA = {
    "type": "object",
    "required": ["job"],
    "additionalProperties": False,
    "properties": {
        "job": {
            "type": "object",
            "required": ["name"],
            "additionalProperties": False,
            "properties": {
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 8},
                "kind": {"enum": ["training", "data"]},
                "gpus": {"type": "integer", "minimum": 0, "maximum": 8},
                "share": {"type": "number", "minimum": 0.001, "maximum": 0.999},
                "tags": {
                    "type": "array",
                    "maxItems": 2,
                    "items": {"type": "string"},
                    "uniqueItems": True,
                },
                "env": {
                    "type": "object",
                    "maxProperties": 1,
                    "additionalProperties": {"type": "string"},
                    "propertyNames": {"pattern": "^[A-Z]+$"},
                },
                "image": {"type": ["string", "null"], "minLength": 1},
                "where": {
                    "anyOf": [
                        {"type": "integer", "minimum": 0, "maximum": 9},
                        {"type": "string", "enum": ["low", "high"]},
                    ]
                },
            },
        }
    },
}

WRONG = {
    "missing": ({}, "/job", "'job' is missing"),
    "missing inside": ({"job": {}}, "/job/name", "'name' is missing"),
    "not an object": ([], "", "type object"),
    "unknown": ({"job": {"name": "a", "gpu": 1}}, "/job/gpu", "'gpu' is unknown here; allowed: "),
    "unknown with a slash": ({"job": {"name": "a", "a/b": 1}}, "/job/a~1b", "unknown"),
    "type": ({"job": {"name": 5}}, "/job/name", "name is 5; it must be of type string"),
    "pattern": ({"job": {"name": "A"}}, "/job/name", 'name is "A"'),
    "newline after the pattern": ({"job": {"name": "a\n"}}, "/job/name", "must match"),
    "too long": ({"job": {"name": "a" * 9}}, "/job/name", "at most 8"),
    "enum": ({"job": {"name": "a", "kind": "x"}}, "/job/kind", '"training", "data"'),
    "small": ({"job": {"name": "a", "gpus": -1}}, "/job/gpus", "at least 0"),
    "large": ({"job": {"name": "a", "gpus": 9}}, "/job/gpus", "at most 8"),
    "exponent": ({"job": {"name": "a", "gpus": 1e0}}, "/job/gpus", "type integer"),
    "boolean": ({"job": {"name": "a", "gpus": True}}, "/job/gpus", "type integer"),
    "boolean as number": ({"job": {"name": "a", "share": True}}, "/job/share", "type number"),
    "number": ({"job": {"name": "a", "share": 1.0}}, "/job/share", "at most 0.999"),
    "items": ({"job": {"name": "a", "tags": ["a", 1]}}, "/job/tags/1", "type string"),
    "too many": ({"job": {"name": "a", "tags": ["a", "b", "c"]}}, "/job/tags", "at most 2"),
    "twice": ({"job": {"name": "a", "tags": ["a", "a"]}}, "/job/tags", "tags"),
    "key": ({"job": {"name": "a", "env": {"x": "1"}}}, "/job/env/x", "must match"),
    "too many keys": ({"job": {"name": "a", "env": {"X": "1", "Y": "2"}}}, "/job/env", "at most"),
    "null": ({"job": {"name": None}}, "/job/name", "name is null"),
    "empty": ({"job": {"name": "a", "image": ""}}, "/job/image", "at least 1"),
    "neither": (
        {"job": {"name": "a", "where": []}},
        "/job/where",
        'where is []; allowed: integer 0 to 9; "low", "high".',
    ),
    "neither number": (
        {"job": {"name": "a", "where": 1e30}},
        "/job/where",
        'where is 1e+30; allowed: integer 0 to 9; "low", "high".',
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name):
    value, pointer, said = WRONG[name]
    with pytest.raises(Invalid) as caught:
        checker(SCHEMA).check(value)
    assert (caught.value.pointer or "") == pointer
    assert said in caught.value.detail
    assert len(caught.value.detail) < 600


def test_right():
    checker(SCHEMA).check(
        {
            "job": {
                "name": "a",
                "kind": "data",
                "gpus": 8,
                "share": 0.5,
                "tags": ["a", "b"],
                "env": {"X": "1"},
                "image": None,
                "where": "low",
            }
        }
    )


def test_shown_values_are_short():
    with pytest.raises(Invalid) as caught:
        checker(SCHEMA).check({"job": {"name": ["x"] * 10000}})
    assert len(caught.value.detail) < 300


def test_compiled_once():
    assert checker(SCHEMA) is checker(SCHEMA)


HUGE = {
    "list of equals": {"job": {"name": "a", "tags": ["x"] * 200_000}},
    "list of many kinds": {"job": {"name": "a", "tags": [[], {}, 1, "x", None] * 40_000}},
    "map": {"job": {"name": "a", "env": {f"k{n}": n for n in range(100_000)}}},
    "unknown fields": {"job": {f"k{n}": n for n in range(100_000)}},
    "text": {"job": {"name": "a" * 1_000_000}},
}


@pytest.mark.parametrize("name", HUGE)
def test_refusing_much_is_quick(name):
    compiled = checker(SCHEMA)
    began = time.process_time()
    with pytest.raises(Invalid):
        compiled.check(HUGE[name])
    assert time.process_time() - began < 1.0

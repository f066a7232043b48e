# SPDX-License-Identifier: Apache-2.0
"""JSON that is almost right is refused, with a sentence that says what is wrong."""

import json

import pytest

from gpuservice.api.strict_json import MAX_DEPTH, parse
from gpuservice.domain.errors import Invalid


def nested(depth: int, opening: str = '{"a":', closing: str = "}") -> bytes:
    return (opening * depth + "1" + closing * depth).encode()


WRONG = {
    "empty": (b"", "not JSON"),
    "not utf-8": (b'{"a": "\xff"}', "not UTF-8"),
    "truncated": (b'{"a": 1', "not JSON"),
    "trailing": (b'{"a": 1} {}', "not JSON"),
    "duplicate key": (b'{"a": 1, "a": 1}', "stands twice"),
    "duplicate key inside": (b'{"a": {"b": 1, "c": 2, "b": 3}}', "stands twice"),
    "NaN": (b'{"a": NaN}', "NaN"),
    "Infinity": (b'{"a": Infinity}', "Infinity"),
    "-Infinity": (b'{"a": [-Infinity]}', "Infinity"),
    "float that overflows": (b'{"a": 1e999}', "too large"),
    "huge integer": (b'{"a": ' + b"9" * 5000 + b"}", "too large"),
    "nested objects": (nested(MAX_DEPTH + 1), "nested"),
    "nested lists": (nested(MAX_DEPTH + 1, "[", "]"), "nested"),
    "nested without end": (nested(100_000, "[", "]"), "nested"),
    "NUL": (b'{"a": "x\\u0000y"}', "control"),
    "NUL in a key": (b'{"x\\u0000y": 1}', "control"),
    "escape character": (b'{"a": "\\u001b[2J"}', "control"),
    "delete character": (b'{"a": "\\u007f"}', "control"),
    "lone surrogate": (b'{"a": "\\ud800"}', "surrogate"),
    "lone surrogate in a key": (b'{"\\udfff": 1}', "surrogate"),
    "byte order mark": (b'\xef\xbb\xbf{"a": 1}', "not JSON"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_json(name):
    body, said = WRONG[name]
    with pytest.raises(Invalid) as caught:
        parse(body)
    assert said in caught.value.detail


def test_pointer_of_a_control_character():
    with pytest.raises(Invalid) as caught:
        parse(b'{"job": {"env": {"a/b": ["fine", "x\\u0000"]}}}')
    assert caught.value.pointer == "/job/env/a~1b/1"


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"a": [1, 2.5, True, None, "text"]},
        {"text": "lines\nand\ttabs\r\n"},
        {"text": "\u00e9\u4e2d\U0001f600"},
        -12,
        "alone",
    ],
)
def test_right_json(value):
    assert parse(json.dumps(value).encode()) == value


def test_deepest_allowed():
    assert parse(nested(MAX_DEPTH)) is not None

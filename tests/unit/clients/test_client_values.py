# SPDX-License-Identifier: Apache-2.0
"""How values are read and shown."""

from __future__ import annotations

import argparse

import pytest

from gpuservice.clients.osc import values
from gpuservice.clients.osc.failures import value_at


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("15m", 900), ("1h", 3600), ("2d", 172_800), ("1h30m", 5400)],
)
def test_duration(text, seconds):
    assert values.duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "1w", "-1s", "1 h", "1.5h", "1h30", "90s5"])
def test_no_duration(text):
    with pytest.raises(argparse.ArgumentTypeError):
        values.duration(text)


def test_memory():
    assert [values.memory(text) for text in ("512", "512MiB", "64G", "1TiB")] == [
        512,
        512,
        65_536,
        1_048_576,
    ]
    with pytest.raises(argparse.ArgumentTypeError):
        values.memory("1.5G")


def test_compact_is_one_line():
    assert values.compact({"a": [1, None]}) == '{"a":[1,null]}'
    assert values.compact("a\r\nb\u2028c") == "a b c"
    assert values.compact(None) == ""
    assert values.compact(True) == "true"


def test_harmless_leaves_text_and_lines_alone():
    raw = b"a\x1b[31mred\x1b[0m\x1b]0;title\x07 \xc3\xa9\tx\r\nbell\x07\x1b"
    assert values.harmless(raw) == b"ared \xc3\xa9\tx\r\nbell"


def test_value_at_a_pointer():
    body = {"job": {"a/b": [{"c": 1}]}}
    assert value_at(body, "/job/a~1b/0/c") == 1
    assert value_at(body, "/job") == body["job"]
    assert value_at(body, "/job/none/0") is value_at(None, "/x")

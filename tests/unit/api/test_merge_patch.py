# SPDX-License-Identifier: Apache-2.0
"""JSON merge patch: the cases of RFC 7396 that concern maps, and the bound on growth."""

import pytest

from gpuservice.domain.errors import Invalid
from gpuservice.domain.merge_patch import MAX_KEYS, merged


@pytest.mark.parametrize(
    ("old", "patch", "new"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": "b"}, {"a": {"c": None, "d": 1}}, {"a": {"d": 1}}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merging(old, patch, new):
    before = repr(old)
    assert merged(old, patch, "/x") == new
    assert repr(old) == before


def test_growth_is_bounded():
    full = {f"k{n}": n for n in range(MAX_KEYS)}
    assert merged(full, {"k0": None, "new": 1}, "/queue/nominal")
    with pytest.raises(Invalid) as caught:
        merged(full, {"new": 1}, "/queue/nominal")
    assert caught.value.pointer == "/queue/nominal"

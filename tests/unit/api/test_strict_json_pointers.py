# SPDX-License-Identifier: Apache-2.0
"""What JSON itself allows and the service does not is refused with the place where it stands."""

from __future__ import annotations

import pytest

from gpuservice.api import strict_json
from gpuservice.domain.errors import Invalid


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ('{"job": {"env": {"A": "1", "A": "2"}}}', "/job/env/A"),
        ('{"a/b": 1, "a/b": 2}', "/a~1b"),
        ('{"job": [1, NaN]}', "/job/1"),
        ('{"job": {"priority": -Infinity}}', "/job/priority"),
        ('{"job": {"priority": 1e999}}', "/job/priority"),
        ('{"job": {"priority": ' + "9" * 30 + "}}", "/job/priority"),
        ('{"a":' * 25 + "1" + "}" * 25, "/a" * 20),
    ],
)
def test_the_fault_has_a_place(body: str, pointer: str) -> None:
    with pytest.raises(Invalid) as caught:
        strict_json.parse(body.encode())
    assert caught.value.pointer == pointer

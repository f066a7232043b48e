# SPDX-License-Identifier: Apache-2.0
"""Under which names files of tasks are kept."""

from __future__ import annotations

import pytest

from gpuservice.domain.kept import unfit


@pytest.mark.parametrize("path", ["a", "out/model.bin", "é", "模型/权重", "a b", "x" * 255])
def test_names_that_are_kept(path: str) -> None:
    assert unfit(path) is None


@pytest.mark.parametrize(
    "path",
    ["", "/a", "a/../b", "a/./b", "a\nb", "a\x7fb", "a\\b", "C:x", "e\u0301", "a\u200bb",
     "a\udcffb", "\ud800", "x" * 256, "/".join("x" * 33), "/".join(["x" * 255] * 3), "a/"],
)  # fmt: skip
def test_names_that_are_not(path: str) -> None:
    assert unfit(path)

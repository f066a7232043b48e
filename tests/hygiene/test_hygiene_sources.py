# SPDX-License-Identifier: Apache-2.0
"""Sizes, names and words: what every source file of this repository keeps to."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import sources

FILE_LINES = 400
FUNCTION_LINES = 60
#: A file is named after what it decides; these names say nothing.
EMPTY_NAMES = {"utils.py", "util.py", "helpers.py", "manager.py", "rpcapi.py", "misc.py"}
SPDX = "# SPDX-License-Identifier: Apache-2.0"
MARKS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
#: Where a copy of this repository was made, or from where its packages came, is nobody's business.
#: The words are put together here so that this file does not contain them.
PLACES = re.compile(
    "|".join(
        [
            r"/wor" + r"k/(main|venv|shared|team)\b",
            r"--(extra-)?index-" + "url",
            "PIP_INDEX_" + "URL",
        ]
    )
)
BINARY = {".gz", ".npz", ".png", ".ico"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_no_file_is_longer_than_the_ceiling() -> None:
    long = [
        f"{path}: {lines} lines"
        for path in sources.python_files()
        if (lines := len(sources.text(path).splitlines())) > FILE_LINES
    ]
    assert long == []


def test_no_function_is_longer_than_the_ceiling() -> None:
    long = [
        f"{path}:{node.lineno} {node.name}: {lines} lines"
        for path in sources.python_files()
        for node in ast.walk(sources.tree(path))
        if isinstance(node, Function)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES
    ]
    assert long == []


def test_files_are_named_after_what_they_decide() -> None:
    bad = [
        str(path)
        for path in sources.python_files("gpuservice")
        if path.name in EMPTY_NAMES or "common" in path.parts
    ]
    assert bad == []


def test_every_package_folder_is_a_package() -> None:
    folders = {path.parent for path in sources.python_files("gpuservice")}
    present = set(sources.files())
    bad = [
        str(folder)
        for folder in folders
        if folder / "__init__.py" not in present and folder.name != "versions"
    ]
    assert bad == []


def test_each_source_names_its_licence_first() -> None:
    bad = [str(path) for path in sources.python_files() if SPDX not in _first_lines(path)]
    assert bad == []


def _first_lines(path: Path) -> list[str]:
    lines = sources.text(path).splitlines()
    return lines[:2] if lines and lines[0].startswith("#!") else lines[:1]


def test_public_things_have_a_docstring() -> None:
    bad = [
        f"{path}:{getattr(node, 'lineno', 1)} {getattr(node, 'name', 'module')}"
        for path in sources.python_files("gpuservice", "tools")
        for node in _public(sources.tree(path))
        if not ast.get_docstring(node)
    ]
    assert bad == []


def _public(module: ast.Module) -> list[ast.Module | ast.ClassDef | Function]:
    found: list[ast.Module | ast.ClassDef | Function] = [module]
    for node in module.body:
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
            found.append(node)
    return found


def test_nothing_is_left_unfinished() -> None:
    bad = [
        f"{path}:{number} {line.strip()}"
        for path in sources.python_files("gpuservice", "tools", "examples")
        for number, line in enumerate(sources.text(path).splitlines(), 1)
        if MARKS.search(line)
    ]
    assert bad == []


def test_no_error_is_swallowed_in_silence() -> None:
    bad = [
        f"{path}:{node.lineno}"
        for path in sources.python_files("gpuservice")
        for node in ast.walk(sources.tree(path))
        if isinstance(node, ast.ExceptHandler) and _is_silent(node)
    ]
    assert bad == []


def _is_silent(node: ast.ExceptHandler) -> bool:
    """Bare ``except``, or everything caught and nothing done."""
    everything = isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}
    nothing = len(node.body) == 1 and isinstance(node.body[0], ast.Pass)
    return node.type is None or (everything and nothing)


def test_no_file_names_the_place_it_was_written() -> None:
    bad = [
        f"{path}:{number} {line.strip()[:80]}"
        for path in sources.files()
        if path.suffix not in BINARY
        for number, line in enumerate(sources.text(path).splitlines(), 1)
        if PLACES.search(line)
    ]
    assert bad == []

# SPDX-License-Identifier: Apache-2.0
"""The files of the repository, as the hygiene tests look at them."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def files() -> tuple[Path, ...]:
    """Return every file that is, or would be, tracked, relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = sorted(set(listed.split("\0")) - {""})
    return tuple(Path(name) for name in names if (ROOT / name).is_file())


def python_files(*tops: str) -> tuple[Path, ...]:
    """Return the Python files, of all folders or of these alone."""
    return tuple(
        path for path in files() if path.suffix == ".py" and (not tops or path.parts[0] in tops)
    )


@cache
def text(path: Path) -> str:
    """Return the text of a file; bytes that are no text are replaced."""
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(text(path), filename=str(path))

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw the transition tables of gpuservice.domain.states for the documentation.

    python tools/draw_states.py FOLDER

Writes ``states-<noun>.inc`` for each table: a diagram where Graphviz is installed, and always the
table itself.
"""

from __future__ import annotations

import shutil
import sys
from collections import defaultdict
from pathlib import Path

from gpuservice.domain import states

TABLES = (states.JOB, states.ATTEMPT, states.NODE, states.POOL)


def table(transitions: states.Transitions) -> str:
    """Return the transitions as a reStructuredText table, one row a status."""
    rows = ["   * - In status", "     - event", "     - leads to"]
    for source, event, target in transitions.table:
        rows += [f"   * - ``{source}``", f"     - {event}", f"     - ``{target}``"]
    return "\n".join([".. list-table::", "   :header-rows: 1", "", *rows, ""])


def diagram(transitions: states.Transitions) -> str:
    """Return the transitions as a Graphviz directive, parallel edges merged."""
    edges: dict[tuple[str, str], list[str]] = defaultdict(list)
    for source, event, target in transitions.table:
        edges[str(source), str(target)].append(event)
    start = transitions.machine.default_start_state
    lines = [
        f"digraph {transitions.noun} {{",
        'rankdir="LR"; node [shape=box, style=rounded, fontname="sans-serif"];',
        'edge [fontname="sans-serif", fontsize=10];',
        f'"{start}" [penwidth=2];',
        *(f'"{a}" -> "{b}" [label="{", ".join(names)}"];' for (a, b), names in edges.items()),
        "}",
    ]
    body = "\n".join(f"   {line}" for line in lines)
    return f".. graphviz::\n   :alt: Statuses of a {transitions.noun}\n\n{body}\n"


def main(folder: Path) -> None:
    """Write one file a table."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = shutil.which("dot") is not None
    for transitions in TABLES:
        parts = [diagram(transitions)] if draw else []
        text = "\n".join([*parts, table(transitions)])
        (folder / f"states-{transitions.noun}.inc").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

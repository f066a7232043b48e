# SPDX-License-Identifier: Apache-2.0
"""A contract for import-linter: a table that says which of our packages may import which.

Each row is ``package: allowed, allowed``; ``*`` allows everything, and a row of a sub-package
(``clients.sdk``) counts before that of its parent. Only direct imports are looked at: an import
through another package is that package's own row.
"""

from __future__ import annotations

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class ImportTable(Contract):
    """Holds each package to its row; a package without a row breaks the contract too."""

    type_name = "import_table"

    table = fields.ListField(subfield=fields.StringField())
    open_to_all = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Compare every import between two rows with the table."""
        root = self.session_options["root_packages"][0]
        rows = dict(_row(str(text)) for text in self.table)  # type: ignore[attr-defined]
        open_to_all = {str(name) for name in self.open_to_all or ()}  # type: ignore[attr-defined]
        modules = sorted(name for name in graph.modules if name.startswith(f"{root}."))
        where = {name: _package(name.removeprefix(f"{root}."), rows) for name in modules}
        strangers = sorted(name for name, package in where.items() if package is None)
        faults = [
            (name, imported)
            for name, package in where.items()
            if package is not None
            for imported in sorted(graph.find_modules_directly_imported_by(name))
            if not _allowed(package, where.get(imported), rows, open_to_all)
        ]
        return ContractCheck(
            kept=not strangers and not faults,
            metadata={"strangers": strangers, "faults": faults},
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each fault on a line of its own."""
        metadata: dict[str, Any] = check.metadata
        for name in metadata["strangers"]:
            output.print_error(f"{name} belongs to no row of the import table")
        for name, imported in metadata["faults"]:
            output.print_error(f"{name} may not import {imported}")


def _row(text: str) -> tuple[str, frozenset[str]]:
    """Split ``package: allowed, allowed`` into its two halves."""
    package, _, allowed = text.partition(":")
    return package.strip(), frozenset(word.strip() for word in allowed.split(",") if word.strip())


def _package(module: str, rows: dict[str, frozenset[str]]) -> str | None:
    """Return the longest row that holds ``module``, or ``None``."""
    parts = module.split(".")
    for size in range(len(parts), 0, -1):
        candidate = ".".join(parts[:size])
        if candidate in rows:
            return candidate
    return None


def _allowed(
    package: str,
    imported: str | None,
    rows: dict[str, frozenset[str]],
    open_to_all: set[str],
) -> bool:
    """Whether ``package`` may import a module of the row ``imported`` (``None``: not ours)."""
    if imported is None or imported == package or imported in open_to_all:
        return True
    return "*" in rows[package] or imported in rows[package]

# SPDX-License-Identifier: Apache-2.0
"""The contract behind the import table notices what it is there for."""

from __future__ import annotations

import sys

import sources
from grimp import ImportGraph
from importlinter.domain.contract import ContractCheck

sys.path.insert(0, str(sources.ROOT))

from tools.import_table import ImportTable

ROWS = ["low:", "low.inner:", "high: low", "top: *"]


def _check(*imports: tuple[str, str]) -> ContractCheck:
    graph = ImportGraph()
    for module in ("house", "house.low", "house.low.inner", "house.high", "house.top"):
        graph.add_module(module)
    for importer, imported in imports:
        graph.add_import(importer=importer, imported=imported)
    contract = ImportTable(
        name="table",
        session_options={"root_packages": ["house"]},
        contract_options={"table": ROWS},
    )
    return contract.check(graph, verbose=False)


def test_what_a_row_names_is_kept() -> None:
    assert _check(("house.high", "house.low"), ("house.top", "house.high")).kept


def test_an_import_back_up_is_broken() -> None:
    check = _check(("house.low", "house.high"))
    assert check.metadata["faults"] == [("house.low", "house.high")]


def test_a_sub_package_with_a_row_is_judged_by_it() -> None:
    assert not _check(("house.high", "house.low.inner")).kept


def test_a_package_without_a_row_is_broken() -> None:
    check = _check(("house.stranger", "house.low"))
    assert check.metadata["strangers"] == ["house.stranger"]

# SPDX-License-Identifier: Apache-2.0
"""What users and operators touch: entry points, options, rules, commands, the README."""

from __future__ import annotations

import ast
import configparser
import importlib
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import sources

from gpuservice import policies
from gpuservice.conf import opts
from gpuservice.domain import errors


def _setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(delimiters=("=",), comment_prefixes=("#",))
    parser.read(sources.ROOT / "setup.cfg", encoding="utf-8")
    return parser


def _entry_points() -> list[str]:
    groups = _setup()["entry_points"]
    return [
        line.partition("=")[2].strip()
        for group in groups.values()
        for line in group.strip().splitlines()
    ]


@pytest.mark.parametrize("target", _entry_points())
def test_entry_point_resolves(target: str) -> None:
    module, _, name = target.partition(":")
    found = importlib.import_module(module)
    if name:
        assert callable(getattr(found, name))


def test_each_option_is_documented() -> None:
    bare = [
        f"[{group}] {option.name}"
        for group, options in opts.list_opts()
        for option in options
        if not (option.help or "").strip()
    ]
    assert bare == []


def test_each_rule_is_documented() -> None:
    bare = [rule.name for rule in policies.list_rules() if not (rule.description or "").strip()]
    assert bare == []


def test_rule_names_are_unique() -> None:
    names = [rule.name for rule in policies.list_rules()]
    assert sorted(names) == sorted(set(names))


def _error_classes() -> list[type[errors.GpuServiceError]]:
    found = [errors.GpuServiceError]
    for kind in found:
        found.extend(kind.__subclasses__())
    return found


def test_error_codes_are_well_formed_and_titled() -> None:
    bad = [
        kind.__name__
        for kind in _error_classes()
        if not re.fullmatch(r"gpu\.[a-z]+\.[a-z_]+", kind.code) or not kind.title
    ]
    assert bad == []


def test_import_table_holds() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [str(program), "--no-cache"],
        cwd=sources.ROOT,
        env=os.environ | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def _readme_environments() -> list[str]:
    text = sources.text(Path("README.md"))
    return sorted(set(re.findall(r"\btox -e ([a-z0-9-]+)", text)))


def test_readme_names_only_environments_that_exist() -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(sources.ROOT / "tox.ini", encoding="utf-8")
    known = {name.removeprefix("testenv:") for name in parser.sections()} | {"py3"}
    named = _readme_environments()
    assert "demo" in named
    assert set(named) <= known


def test_ci_runs_the_commands_of_the_readme() -> None:
    readme, run = sources.text(Path("README.md")), sources.text(Path(".ci/run"))
    install = "python3 -m venv .venv && .venv/bin/pip install -q tox && .venv/bin/tox"
    assert f"\n    {install} -e demo\n" in readme
    assert f"\n    {install}\n" in readme
    assert f'readme="{install}"' in run


def test_each_skip_on_the_list_has_a_reason() -> None:
    lines = sources.text(Path("tests/hygiene/expected_skips.txt")).splitlines()
    bare = [
        line
        for line in lines
        if line.strip() and not line.startswith("#") and len(line.split(maxsplit=1)) < 2
    ]
    assert bare == []


def test_each_library_that_is_imported_is_required() -> None:
    owners = metadata.packages_distributions()
    required = {_distribution(name) for name in _requirements()}
    undeclared = {
        name
        for path in sources.python_files("gpuservice")
        for name in _imported(path)
        if name not in sys.stdlib_module_names and name != "gpuservice"
        if not {_distribution(owner) for owner in owners.get(name, [name])} & required
    }
    assert undeclared == set()


def _requirements() -> list[str]:
    lines = sources.text(Path("requirements.txt")).splitlines()
    extras = [line for text in _setup()["extras"].values() for line in text.splitlines()]
    found = (re.match(r"[A-Za-z0-9._-]+", line.strip()) for line in lines + extras)
    # Werkzeug is the half of Flask that its users import by its own name.
    return [match.group() for match in found if match] + ["Werkzeug"]


def _distribution(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(sources.tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.partition(".")[0])
    return names

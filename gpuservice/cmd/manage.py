# SPDX-License-Identifier: Apache-2.0
"""gpuservice-manage: schema, quota ledger, and what befalls the simulated cloud."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oslo_config import cfg

from gpuservice import bootstrap
from gpuservice.cmd.lifetime import configuration, plainly
from gpuservice.conf import quota as quota_conf
from gpuservice.db import migrations
from gpuservice.db.engine import create_engine_from
from gpuservice.db.store import DatabaseStore
from gpuservice.drivers.cloud.simulated_state import CONTROL_DEFAULTS, SimulatedState

PROGRAM = "gpuservice-manage"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("--config-file", action="append", default=[], metavar="FILE")
    nouns = parser.add_subparsers(dest="noun", required=True)
    database = nouns.add_parser("db", help="the schema").add_subparsers(dest="verb", required=True)
    database.add_parser("upgrade", help="bring the schema up to date").set_defaults(run=_upgrade)
    database.add_parser("version", help="print the schema's version").set_defaults(run=_version)
    quota = nouns.add_parser("quota", help="the quota ledger").add_subparsers(
        dest="verb", required=True
    )
    recount = quota.add_parser("recount", help="compare the ledger with what is there")
    recount.add_argument("--repair", action="store_true", help="set the ledger right")
    recount.set_defaults(run=_recount)
    cloud = nouns.add_parser("simulated", help="what befalls the simulated cloud")
    cloud.add_argument("--state-dir", help="its directory ([simulated] state_dir by default)")
    verbs = cloud.add_subparsers(dest="verb", required=True)
    for verb, text in (
        ("lose-host", "take a host's power away"),
        ("restore-host", "give it back"),
        ("lose-node", "take the power of the host of a node (its name) away"),
    ):
        one = verbs.add_parser(verb, help=text)
        one.add_argument("name")
        one.set_defaults(run=_power)
    setting = verbs.add_parser("set", help="change how it behaves")
    setting.add_argument(
        "pairs", nargs="+", metavar="KEY=VALUE", help=f"keys: {', '.join(sorted(CONTROL_DEFAULTS))}"
    )
    setting.set_defaults(run=_set)
    return parser


def _upgrade(conf: cfg.ConfigOpts, given: argparse.Namespace) -> int:
    migrations.upgrade(create_engine_from(conf))
    return 0


def _version(conf: cfg.ConfigOpts, given: argparse.Namespace) -> int:
    print(migrations.version(create_engine_from(conf)) or "none")
    return 0


def _recount(conf: cfg.ConfigOpts, given: argparse.Namespace) -> int:
    store = DatabaseStore(
        create_engine_from(conf),
        bootstrap.SystemClock(),
        bootstrap.RandomIds(),
        quota_conf.defaults(conf),
    )
    wrong = store.read(lambda uow: uow.quotas.recount())
    for project, name, ledger, counted in wrong:
        print(f"{project} {name}: ledger {ledger}, counted {counted}")
    if wrong and given.repair:
        store.write(lambda uow: uow.quotas.repair())
        return 0
    return 1 if wrong else 0


def _state(conf: cfg.ConfigOpts, given: argparse.Namespace) -> SimulatedState:
    return SimulatedState(Path(given.state_dir or conf.simulated.state_dir))


def _existing_state(conf: cfg.ConfigOpts, given: argparse.Namespace) -> SimulatedState | None:
    """The state of a simulated cloud that was there before; says so if there is none."""
    state = _state(conf, given)
    if state.root.is_dir():
        return state
    print(f"{PROGRAM}: there is no simulated cloud in {str(state.root)!r}", file=sys.stderr)
    return None


def _power(conf: cfg.ConfigOpts, given: argparse.Namespace) -> int:
    state = _existing_state(conf, given)
    if state is None:
        return 1
    host = given.name
    if given.verb == "lose-node":
        hosts = [one["host"] for one in state.servers() if one["name"] == given.name]
        if not hosts:
            print(f"{PROGRAM}: no server is named {given.name!r}", file=sys.stderr)
            return 1
        host = hosts[-1]
    lost = set(state.control()["lost_hosts"])
    lost = lost - {host} if given.verb == "restore-host" else lost | {host}
    state.set_control(lost_hosts=sorted(lost))
    return 0


def _set(conf: cfg.ConfigOpts, given: argparse.Namespace) -> int:
    values: dict[str, Any] = {}
    for pair in given.pairs:
        key, _, text = pair.partition("=")
        if key not in CONTROL_DEFAULTS:
            print(
                f"{PROGRAM}: {key!r} is not one of {', '.join(sorted(CONTROL_DEFAULTS))}",
                file=sys.stderr,
            )
            return 2
        try:
            values[key] = _control_value(key, text)
        except ValueError as error:
            print(f"{PROGRAM}: {error}", file=sys.stderr)
            return 2
    state = _existing_state(conf, given)
    if state is None:
        return 1
    state.set_control(**values)
    return 0


def _control_value(key: str, text: str) -> Any:
    """What the text says, if the cloud can be told that of this key; raises ``ValueError``."""
    usual = CONTROL_DEFAULTS[key]
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(usual, list):
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return value
        wanted = 'a JSON list of texts, like ["gpu-00"]'
    else:
        kinds = int if isinstance(usual, int) else (int, float)
        most = 1 if key == "fail_rate" else sys.maxsize
        if isinstance(value, kinds) and not isinstance(value, bool) and 0 <= value <= most:
            return value
        wanted = "a whole number" if isinstance(usual, int) else "a number"
        wanted += " from 0 to 1" if most == 1 else ", 0 or more"
    raise ValueError(f"{key} is {text!r}; it must be {wanted}")


@plainly(PROGRAM)
def main(argv: list[str] | None = None) -> int:
    """Run one command."""
    given = _parser().parse_args(argv)
    files = [word for file in given.config_file for word in ("--config-file", file)]
    conf = configuration(files, PROGRAM, None if files else [])
    run: Callable[[cfg.ConfigOpts, argparse.Namespace], int] = given.run
    return run(conf, given)


if __name__ == "__main__":
    sys.exit(main())

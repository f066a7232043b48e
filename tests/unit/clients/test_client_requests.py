# SPDX-License-Identifier: Apache-2.0
"""Every command with each of its options against the table of endpoints itself.

Whatever a command sends must be a request that the service has, with fields that it takes.
"""

from __future__ import annotations

import argparse
import io
import re
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest
from cliff import command, lister, show
from fake_api import JOB_ID, Answer, Asked, FakeApi

from gpuservice.api import listing
from gpuservice.api.endpoint import Endpoint
from gpuservice.api.v1 import endpoints
from gpuservice.api.validation import checker
from gpuservice.clients import sdk
from gpuservice.clients.osc import values
from gpuservice.clients.osc.job import priority
from gpuservice.clients.sdk.errors import GpuNotFound
from gpuservice.domain.errors import Invalid

COMMANDS = sorted(metadata.entry_points(group="openstack.gpu.v1"), key=lambda one: one.name)
ROWS = endpoints()
JOB = {
    "id": JOB_ID,
    "name": "train",
    "status": "succeeded",
    "queue": "vision",
    "generation": 1,
    "attempt": 1,
    "nodes": [],
    "labels": {},
    "projects": [],
    "limits": {},
    "usage": {},
}
#: What an option is given, by command and flag, then by flag, then by how it is read.
BY_COMMAND = {
    ("gpu_type_create", "--partition"): '{"name": "1g.10gb", "kind": "mig"}',
    ("gpu_type_set", "--partition"): '{"name": "1g.10gb", "kind": "mig"}',
    ("gpu_job_elements", "--marker"): "3",
    ("gpu_quota_list", "--marker"): "vision",
    ("gpu_quota_set", "--limit"): "gpus=1",
    ("gpu_quota_set", "--default"): "gpus",
    ("gpu_job_logs", "--offset"): "0",
    ("gpu_job_explain", "--index"): "0",
    ("gpu_simulate_create", "--queue"): "vision:nominal.a100-80gb=8",
    ("gpu_simulate_create", "--quota"): "vision:gpus=8",
    ("gpu_simulate_create", "--policy"): "preempt=priority,reclaim",
    ("gpu_simulate_create", "--history"): "2026-01-01T00:00:00Z/2026-01-02T00:00:00Z",
}
BY_FLAG = {
    "--pci-id": "10de:20b2",
    "--resource-class": "PGPU",
    "--trait": "CUSTOM_GPU",
    "--kinds": '{"training": {"priority": 100}}',
    "--sort": "id:desc",
    "--marker": JOB_ID,
    "--indices": "3,7-9",
    "--input": "data/x=https://example.org/x",
    "--output": "out/=swift://results/x",
    "--deadline": "2099-01-01T00:00:00Z",
    "--depends-on": f"{JOB_ID}=ended",
    "--retry-on": "node_failure",
    "--gpu-fraction": "0.5",
    "--vendor": "nvidia",
}
BY_TYPE = {
    int: "1",
    values.duration: "90s",
    values.memory: "20GiB",
    values.boolean: "true",
    values.pair: "some_key=1",
    values.number_pair: "a100-80gb=1",
    priority: "high",
}
#: Without them a command has nothing to do, or another option makes no sense.
ALONG = {
    "gpu_flavor_create": ["--gpu-type", "a100", "--gpus", "1"],
    "gpu_pool_create": ["--flavor", "a100x4"],
    "gpu_type_create": ["--vendor", "nvidia", "--memory", "80GiB"],
    "gpu_job_download": ["--path", "1/0/out"],
}
#: Options beside which another one is needed.
BESIDE = {
    "--checkpoint-interval": ["--checkpoint", "ckpt"],
    "--checkpoint-ranks": ["--checkpoint", "ckpt"],
    "--array-max-running": ["--array-size", "3"],
    "--array-max-failures": ["--array-size", "3"],
    "--min-tasks": ["--tasks", "2"],
}
#: What is in the file that an option names.
FILES = {
    "--file": "command: [run]\n",
    "--script": "#!/bin/sh\ntrue\n",
    "--workload": "submit_s,duration_s,gpu_milli,gpu_types,preemptible\n0,60.5,2000,a|b,yes\n",
}
SET_SOMETHING = {
    "gpu_type_set": ["--vendor", "nvidia"],
    "gpu_flavor_set": ["--name", "other"],
    "gpu_flavor_unset": ["--price"],
    "gpu_pool_set": ["--name", "other"],
    "gpu_cohort_set": ["--name", "other"],
    "gpu_queue_set": ["--name", "other"],
    "gpu_service_set": ["--enable"],
    "gpu_quota_set": ["--limit", "gpus=1"],
    "gpu_job_set": ["--priority", "high"],
}


class Table(FakeApi):
    """Answers what the endpoint table has, and notes what it has not."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []

    def find(self, asked: Asked) -> Answer:
        row = row_for(asked)
        if row is None:
            self.faults.append(f"{asked.method} {asked.path} is no endpoint")
            return Answer(404)
        try:
            check(row, asked)
        except Invalid as error:
            self.faults.append(f"{asked.method} {asked.path}: {error.detail} ({error.pointer})")
        return answer_of(row, asked)


def row_for(asked: Asked) -> Endpoint | None:
    for row in ROWS:
        pattern = re.sub(r"<path:\w+>", ".+", row.path)
        pattern = re.sub(r"<\w+>", "[^/]+", pattern)
        if row.method == asked.method and re.fullmatch(f"/v1{pattern}", asked.path):
            return row
    return None


def check(row: Endpoint, asked: Asked) -> None:
    if row.body is None and asked.body is not None:
        raise Invalid("takes no body")
    if row.body is not None:
        checker(row.body).check(asked.body)
    if row.listing is not None:
        listing.read(row.listing, asked.query, "vision", True)
        return
    for name, value in asked.query.items():
        if name not in row.query:
            raise Invalid(f"takes no {name}")
        kind = row.query[name]["type"]
        checker(row.query[name]).check(int(value) if kind == "integer" else value)


def answer_of(row: Endpoint, asked: Asked) -> Answer:
    """Something of the right shape."""
    parts = row.path.strip("/").split("/")
    last = parts[-1]
    if last == "logs":
        return Answer(
            raw=b"hello\n"[int(asked.query.get("offset", "0")) :],
            headers={"OpenStack-GPU-Log-Offset": "6", "OpenStack-GPU-Log-End": "true"},
        )
    if row.method == "DELETE":
        return Answer(204)
    if last == "<path:path>":
        return Answer(raw=b"x")
    if last == "explain":
        return Answer(body={"explanation": {"summary": "Because.", "reasons": []}})
    if last == "capacity":
        return Answer(body={"capacity": {"nodes": 1, "hosts": []}})
    if last == "limits":
        return Answer(body={"limits": JOB})
    if last == "artifacts":
        artifact = {"path": "1/0/out", "index": 0, "attempt": 1, "rank": 0, "size": 1}
        return Answer(body={"artifacts": [artifact], "links": []})
    plural = last.replace("-", "_")
    if row.method == "GET" and not last.startswith("<"):
        return Answer(body={plural: [JOB], "links": []})
    noun = parts[0].replace("-", "_").removesuffix("s")
    more = {"dry_run": {"status": "starts_now"}, "differences": []}
    return Answer(body={noun: JOB, **more})


@pytest.fixture(scope="module")
def table():
    table = Table()
    yield table
    table.close()


@pytest.fixture
def app(table):
    table.faults.clear()
    table.asked.clear()
    client = sdk.connect(table.url, username="ada", password="secret").gpu
    manager = SimpleNamespace(gpu=client, auth_plugin_name="password")
    return SimpleNamespace(client_manager=manager, stdout=io.StringIO(), stderr=io.StringIO())


def own_options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The parser's options without those that every command has of cliff."""
    bare: set[str] = set()
    for kind in (command.Command, lister.Lister, show.ShowOne):

        class Bare(kind):  # type: ignore[misc, valid-type]
            """Nothing of its own."""

            def take_action(self, parsed_args):
                """Nothing."""

        for action in Bare(None, None).get_parser("x")._actions:
            bare.update(action.option_strings)
    return [
        one for one in parser._actions if one.option_strings and not bare & set(one.option_strings)
    ]


def sample(name: str, action: argparse.Action, folder: Any) -> list[str]:
    """The words that give an option."""
    flag = action.option_strings[0]
    if action.nargs == 0:
        return [flag]
    if (name, flag) in BY_COMMAND:
        return [flag, BY_COMMAND[name, flag]]
    if flag in FILES:
        content = FILES[flag]
        given = folder / flag.strip("-")
        given.write_text(content)
        return [flag, str(given)]
    if flag == "--dest":
        return [flag, str(folder)]
    if action.choices:
        return [flag, next(iter(action.choices))]
    return [flag, BY_FLAG.get(flag) or BY_TYPE.get(action.type, "word")]


def words_of(name: str, parser: argparse.ArgumentParser, option: list[str], folder: Any) -> Any:
    """A whole command line with one option."""
    flag = option[0] if option else None
    words = [*ALONG.get(name, []), *option]
    if BESIDE.get(flag):
        words += BESIDE[flag]
    something = SET_SOMETHING.get(name)
    if something and (flag is None or flag == "--generation"):
        words += something
    if name == "gpu_job_download" and flag != "--dest":
        words += ["--dest", str(folder)]
    if name == "gpu_job_create" and flag not in ("--script", "--file"):
        return [*words, "--", "python3", "train.py"]
    for action in parser._actions:
        if not action.option_strings and action.dest != "argv":
            words.append({"name": "fresh", "project": "vision"}.get(action.dest, JOB_ID))
    return words


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda one: one.name)
def test_every_request_of_a_command_is_one_that_the_service_takes(
    entry, app, table, tmp_path, capfdbinary
):
    kind = entry.load()
    parser = kind(app, None).get_parser("x")
    lines = [words_of(entry.name, parser, [], tmp_path)]
    for action in own_options(parser):
        if action.option_strings[0] == "--project" and entry.name in OTHERS:
            continue
        option = sample(entry.name, action, tmp_path)
        lines.append(words_of(entry.name, parser, option, tmp_path))
    for line in lines:
        before = len(table.asked)
        doing = kind(app, None)
        doing.run(doing.get_parser("x").parse_args(line))
        assert not table.faults, (line, table.faults)
        assert len(table.asked) > before, line


#: Commands whose ``--project`` is an identity, which only goes without authentication.
OTHERS = ("gpu_job_create", "gpu_limits_show")


def test_a_request_that_the_service_has_not_is_noted(app, table):
    app.client_manager.gpu.post(f"/jobs/{JOB_ID}/action", json={"levitate": None})
    app.client_manager.gpu.get("/jobs", params={"colour": "red"})
    with pytest.raises(GpuNotFound):
        app.client_manager.gpu.get("/nothing")
    assert len(table.faults) == 3

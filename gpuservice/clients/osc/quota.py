# SPDX-License-Identifier: Apache-2.0
"""Commands on quotas and on the caller's own limits."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from osc_lib import exceptions

from gpuservice.clients.osc import values
from gpuservice.clients.osc.generic import GpuCommand, ListNoun
from gpuservice.clients.sdk.v1.quota import Quota

_COLUMNS = ("name", "limit", "used")


def quota_rows(quota: Quota) -> list[dict[str, Any]]:
    """One row a name; -1 is no limit."""
    limits, usage = quota.limits or {}, quota.usage or {}
    return [
        {"name": name, "limit": limits.get(name, -1), "used": usage.get(name, 0)}
        for name in sorted({*limits, *usage})
    ]


class _QuotaRows(ListNoun):
    """Base: limits and use of one project, a row a name."""

    noun = "quota"
    items = "quotas"
    columns: ClassVar[Sequence[str]] = _COLUMNS
    scoped = False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """No paging: it is one object."""
        return GpuCommand.get_parser(self, prog_name)

    def rows(self, parsed_args: argparse.Namespace) -> list[dict[str, Any]]:
        """What is shown."""
        raise NotImplementedError

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Columns and rows."""
        return self.columns, [
            [values.for_output(row.get(column), parsed_args.formatter) for column in self.columns]
            for row in self.rows(parsed_args)
        ]


class ListQuotas(ListNoun):
    """List the quotas of every project that has limits or use."""

    noun = "quota"
    items = "quotas"
    columns = ("project_id", "limits", "usage")
    scoped = False
    sortable = False
    example = "openstack gpu quota list -f json"


class ShowQuota(_QuotaRows):
    """Show a project's limits and use."""

    example = "openstack gpu quota show 8f2a4c"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Whose."""
        parser = super().get_parser(prog_name)
        parser.add_argument("project", metavar="<project>", help="Project id")
        return parser

    def rows(self, parsed_args: argparse.Namespace) -> list[dict[str, Any]]:
        """The project's."""
        return quota_rows(self.gpu.get_quota(parsed_args.project))


class SetQuota(_QuotaRows):
    """Set limits of a project."""

    example = (
        "openstack gpu quota set 8f2a4c --limit gpus=64 --limit gpus:a100-80gb=32 "
        "--limit jobs:queued=-1"
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Whose, and which."""
        parser = super().get_parser(prog_name)
        parser.add_argument("project", metavar="<project>", help="Project id")
        parser.add_argument(
            "--limit",
            action="append",
            type=values.number_pair,
            default=[],
            metavar="NAME=NUMBER",
            help="gpus, gpus:TYPE, pools, nodes, jobs:queued or "
            "jobs:running; -1 for no limit; repeat for more",
        )
        parser.add_argument(
            "--default",
            action="append",
            default=[],
            metavar="NAME",
            help="Go back to the default for this name; repeat for more",
        )
        return parser

    def rows(self, parsed_args: argparse.Namespace) -> list[dict[str, Any]]:
        """The project's, after the change."""
        limits = {**dict(parsed_args.limit), **dict.fromkeys(parsed_args.default)}
        if not limits:
            raise exceptions.CommandError("Nothing to change: name at least one --limit.")
        self.sent = {"quota": {"limits": limits}}
        return quota_rows(self.gpu.update_quota(parsed_args.project, limits))


class DeleteQuota(GpuCommand):
    """Go back to the defaults for a project."""

    example = "openstack gpu quota delete 8f2a4c"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Whose."""
        parser = super().get_parser(prog_name)
        parser.add_argument("project", metavar="<project>", help="Project id")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete its limits."""
        self.gpu.delete_quota(parsed_args.project)


class ShowLimits(_QuotaRows):
    """Show the own project's limits and use, and the GPUs free for it now by type."""

    columns = (*_COLUMNS, "free_now")
    example = "openstack gpu limits show"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Whose, where nothing is authenticated."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--project", metavar="<project>", help="As this project (only without authentication)"
        )
        return parser

    def rows(self, parsed_args: argparse.Namespace) -> list[dict[str, Any]]:
        """The own; a type without a limit of its own has a row too."""
        if parsed_args.project and not self.be_project(parsed_args.project):
            raise exceptions.CommandError("Another project's are shown by gpu quota show.")
        limits = self.gpu.get_limits()
        rows = {row["name"]: row for row in quota_rows(limits)}
        for gpu_type, free in (limits.free_now or {}).items():
            row = rows.setdefault(
                f"gpus:{gpu_type}", {"name": f"gpus:{gpu_type}", "limit": -1, "used": 0}
            )
            row["free_now"] = free
        return [rows[name] for name in sorted(rows)]

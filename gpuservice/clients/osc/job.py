# SPDX-License-Identifier: Apache-2.0
"""Commands on jobs: list, show, set, delete, the actions, and what lies below a job."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from gpuservice.clients.osc.generic import (
    ActOnNoun,
    DeleteNoun,
    ListNoun,
    SetNoun,
    ShowNoun,
)
from gpuservice.clients.osc.options import Option
from gpuservice.clients.osc.values import duration, pair

STATUSES = (
    "held",
    "queued",
    "starting",
    "running",
    "preempting",
    "cancelling",
    "succeeded",
    "failed",
    "cancelled",
    "timed_out",
)


_INDICES = Option("--indices", "Only these elements of the array, like 3,7-9")


def priority(text: str) -> int | str:
    """A number, or a word such as ``high``, as the service takes it."""
    return int(text) if text.isdecimal() else text


class ListJobs(ListNoun):
    """List the project's jobs, each with why it waits.

    With -f value the columns are separated by tabs and what is absent is "-", so that a shell
    loop reads them safely.
    """

    noun = "job"
    items = "jobs"
    columns = ("id", "name", "queue", "status", "priority", "waiting.code")
    long_columns = (
        "kind",
        "attempt",
        "failure_class",
        "exit_code",
        "waiting.position",
        "waiting.estimated_start_at",
        "waiting.summary",
        "created_at",
        "started_at",
        "ended_at",
        "nodes",
        "counts",
        "labels",
        "user_id",
        "project_id",
    )
    filters = (
        Option("--name", "With this name"),
        Option("--status", "With this status; repeat for several", choices=STATUSES, many="list"),
        Option("--queue", "In this queue"),
        Option(
            "--kind",
            "Of this kind",
            choices=("interactive", "training", "evaluation", "data", "service"),
        ),
        Option("--user", "Of the user with this id", field="user_id"),
        Option("--waiting-code", "Waiting for this reason, like insufficient_gpus"),
        Option("--failure-class", "Failed in this way, like out_of_memory"),
        Option(
            "--label",
            "With this label; repeat for several",
            pair,
            "labels",
            "KEY=VALUE",
            many="map",
        ),
    )
    example = (
        "openstack gpu job list --status running --status queued\n"
        "openstack gpu job list -f value -c id -c status | while read id status; do "
        'echo "$id is $status"; done'
    )


class ShowJob(ShowNoun):
    """Show a job."""

    noun = "job"
    example = "openstack gpu job show resnet-sweep -f json"


class SetJob(SetNoun):
    """Change priority, labels or time limit of a job."""

    noun = "job"
    fields = (
        Option("--priority", "low, normal, high, urgent, or 0 to 1000", priority),
        Option("--max-runtime", "Time limit, like 90s, 15m, 1h or 2d", duration, "max_runtime_s"),
        Option(
            "--label", "Set a label; repeat for several", pair, "labels", "KEY=VALUE", many="map"
        ),
    )
    example = "openstack gpu job set resnet-sweep --priority high --label team=vision"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Labels can go, too."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--unset-label",
            action="append",
            default=[],
            metavar="KEY",
            help="Remove a label; repeat for several",
        )
        return parser

    def changes(self, parsed_args: argparse.Namespace, target: Any) -> dict[str, Any]:
        """A label set to null goes."""
        changes = super().changes(parsed_args, target)
        if parsed_args.unset_label:
            changes["labels"] = {
                **changes.get("labels", {}),
                **dict.fromkeys(parsed_args.unset_label),
            }
        return changes


class DeleteJob(DeleteNoun):
    """Delete ended jobs with logs and artifacts; live ones are cancelled first."""

    noun = "job"
    example = "openstack gpu job delete resnet-sweep"


class CancelJob(ActOnNoun):
    """Cancel jobs, or some elements of an array."""

    noun = "job"
    action = "cancel"
    details = (_INDICES,)
    example = "openstack gpu job cancel sweep --indices 3,7-9"


class HoldJob(ActOnNoun):
    """Hold back what waits of jobs."""

    noun = "job"
    action = "hold"
    example = "openstack gpu job hold resnet-sweep"


class ReleaseJob(ActOnNoun):
    """Let held jobs be planned again."""

    noun = "job"
    action = "release"
    example = "openstack gpu job release resnet-sweep"


class RequeueJob(ActOnNoun):
    """Stop starting or running jobs and put them in line again."""

    noun = "job"
    action = "requeue"
    example = "openstack gpu job requeue resnet-sweep"


class SuspendJob(ActOnNoun):
    """Stop what runs of jobs and hold them.

    Each task gets the job's signal and its grace period, and its checkpoint is kept.
    """

    noun = "job"
    action = "suspend"
    details = (_INDICES,)
    example = "openstack gpu job suspend sweep --indices 3,7-9"


class ResumeJob(ActOnNoun):
    """Let suspended jobs be planned again, at their old place in line."""

    noun = "job"
    action = "resume"
    details = (_INDICES,)
    example = "openstack gpu job resume sweep --indices 3,7-9"


class BelowJob(ListNoun):
    """Base of what lists things below one job."""

    noun = "job"
    items = "jobs"
    scoped = False
    #: The proxy's method.
    below: str

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Of which job."""
        parser = super().get_parser(prog_name)
        self.add_target(parser)
        return parser

    def objects(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """What lies below the job."""
        found: Iterable[Any] = getattr(self.gpu, self.below)(
            self.one(parsed_args.target), **self.query(parsed_args)
        )
        return found


class ListAttempts(BelowJob):
    """List a job's attempts, newest first; those of an array from its last element on."""

    below = "job_attempts"
    columns = (
        "number",
        "index",
        "status",
        "outcome",
        "failure_class",
        "exit_code",
        "started_at",
        "ended_at",
    )
    long_columns = ("id", "stop_reason", "evidence", "tasks")
    filters = (
        Option("--index", "Of this element of the array", int),
        Option(
            "--status",
            "With this status; repeat for several",
            choices=("starting", "running", "stopping", "ended"),
            many="list",
        ),
        Option("--outcome", "That ended so, like node_failure"),
    )
    example = "openstack gpu job attempts resnet-sweep --long"


class ListElements(BelowJob):
    """List the elements of an array that have started, ended or wait for another attempt."""

    below = "job_elements"
    sortable = False
    columns = ("index", "status", "attempt", "failure_class", "exit_code", "started_at", "ended_at")
    long_columns = ("status_reason", "queued_at")
    example = "openstack gpu job elements sweep"


class ListJobEvents(BelowJob):
    """List a job's events in the order in which they were written."""

    below = "job_events"
    columns = ("at", "action", "outcome", "actor", "reason", "detail")
    long_columns = ("id", "request_id", "global_request_id")
    filters = (Option("--action", "Of this action, like job.start"),)
    example = "openstack gpu job events resnet-sweep"

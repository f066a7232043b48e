# SPDX-License-Identifier: Apache-2.0
"""Commands on cohorts."""

from __future__ import annotations

from gpuservice.clients.osc.generic import CreateNoun, DeleteNoun, ListNoun, SetNoun, ShowNoun
from gpuservice.clients.osc.options import Option

_FIELDS = (
    Option(
        "--open-to",
        "A project whose queues may be in it, or * (the default); repeat for more",
        field="projects",
        many="list",
    ),
)


class ListCohorts(ListNoun):
    """List cohorts of queues."""

    noun = "cohort"
    items = "cohorts"
    columns = ("id", "name", "projects")
    long_columns = ("created_at", "updated_at")
    scoped = False
    filters = (Option("--name", "With this name"),)
    example = "openstack gpu cohort list"


class ShowCohort(ShowNoun):
    """Show a cohort."""

    noun = "cohort"
    example = "openstack gpu cohort show research"


class CreateCohort(CreateNoun):
    """Create a cohort, whose queues use each other's idle GPUs."""

    noun = "cohort"
    fields = _FIELDS
    example = "openstack gpu cohort create research --open-to vision --open-to speech"


class SetCohort(SetNoun):
    """Change a cohort."""

    noun = "cohort"
    fields = (Option("--name", "A new name"), *_FIELDS)
    example = "openstack gpu cohort set research --name science"


class DeleteCohort(DeleteNoun):
    """Delete cohorts that have no queues."""

    noun = "cohort"
    example = "openstack gpu cohort delete research"

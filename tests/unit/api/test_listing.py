# SPDX-License-Identifier: Apache-2.0
"""Query parameters of lists become conditions, or a 400 that names the parameter."""

from datetime import UTC, datetime

import pytest

from gpuservice.api.listing import Listing, read
from gpuservice.domain.errors import Forbidden, Invalid
from gpuservice.domain.ports_store import Where

JOBS = Listing(
    "job",
    {
        "name": "text",
        "priority": "integer",
        "hold": "boolean",
        "created_at": "time",
        "status": "text",
    },
    sorts=("created_at", "name", "priority"),
    labels=True,
)
HOSTS = Listing("host", {"name": "text"}, scoped=False)
OWN = Where("project_id", "eq", "p1")


def page(query, listing=JOBS, sees_all=False):
    return read(listing, query, "p1", sees_all).page


RIGHT = {
    "nothing": ({}, (OWN,)),
    "field": ({"name": "a"}, (Where("name", "eq", "a"), OWN)),
    "not": ({"name": "neq:a"}, (Where("name", "ne", "a"), OWN)),
    "one of": ({"status": "in:queued,held"}, (Where("status", "in", ["queued", "held"]), OWN)),
    "integer": ({"priority": "in:1,2"}, (Where("priority", "in", [1, 2]), OWN)),
    "boolean": ({"hold": "true"}, (Where("hold", "eq", True), OWN)),
    "time": (
        {"created_at": "2026-01-02T03:04:05Z"},
        (Where("created_at", "eq", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)), OWN),
    ),
    "own project named": ({"project_id": "p1"}, (OWN,)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_conditions(name):
    query, where = RIGHT[name]
    assert page(query).where == where


def test_whose():
    assert page({"all_projects": "true"}, sees_all=True).where == ()
    assert page({"project_id": "p2"}, sees_all=True).where == (Where("project_id", "eq", "p2"),)
    assert page({}, sees_all=True).where == (OWN,)
    assert page({}, HOSTS).where == ()


@pytest.mark.parametrize("query", [{"all_projects": "true"}, {"project_id": "p2"}])
def test_others_are_the_admins(query):
    with pytest.raises(Forbidden):
        page(query)


def test_paging_and_order():
    wanted = read(
        JOBS,
        {
            "limit": "7",
            "marker": "m",
            "sort": "priority:desc,name",
            "with_count": "true",
            "labels.team": "vision",
        },
        "p1",
        False,
    )
    assert wanted.with_count
    assert (wanted.page.limit, wanted.page.marker) == (7, "m")
    assert wanted.page.sort == (("priority", "desc"), ("name", "asc"))
    assert dict(wanted.page.labels) == {"team": "vision"}


WRONG = {
    "unknown": ({"nmae": "a"}, "/nmae"),
    "labels of what has none": ({"labels.a": "b"}, "/labels.a"),
    "limit 0": ({"limit": "0"}, "/limit"),
    "limit too high": ({"limit": "1001"}, "/limit"),
    "limit huge": ({"limit": "1" + "0" * 200}, "/limit"),
    "limit that is high only in its tail": ({"limit": "00000000110000"}, "/limit"),
    "limit negative": ({"limit": "-1"}, "/limit"),
    "limit not ASCII": ({"limit": "\u0661"}, "/limit"),
    "limit float": ({"limit": "1e1"}, "/limit"),
    "limit empty": ({"limit": ""}, "/limit"),
    "sort": ({"sort": "secret"}, "/sort"),
    "sort way": ({"sort": "name:up"}, "/sort"),
    "sort twice": ({"sort": "name,name:desc"}, "/sort"),
    "sort empty": ({"sort": ""}, "/sort"),
    "integer": ({"priority": "many"}, "/priority"),
    "boolean": ({"hold": "yes"}, "/hold"),
    "time": ({"created_at": "yesterday"}, "/created_at"),
    "flag": ({"with_count": "1"}, "/with_count"),
    "long": ({"name": "a" * 256}, "/name"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name):
    query, pointer = WRONG[name]
    listing = HOSTS if "has none" in name else JOBS
    with pytest.raises(Invalid) as caught:
        page(query, listing)
    assert caught.value.pointer == pointer


def test_parameters_are_described():
    names = JOBS.names()
    assert {"limit", "marker", "sort", "all_projects", "name", "priority"} <= set(names)
    assert "all_projects" not in HOSTS.names()

# SPDX-License-Identifier: Apache-2.0
"""What belongs to another project does not exist: on each path, in each body, in each filter.

The cases are made from the endpoint table, so that a new endpoint cannot be forgotten. Each
request is sent twice, with the id of something foreign and with a random UUID; the answers must
be equal but for the request id and the id that was sent.
"""

from __future__ import annotations

import copy
import json
import uuid
from itertools import pairwise
from typing import Any

import pytest
from api_world import Client, Cluster, World, error_of
from valid_bodies import BODIES, key_of, path_of

from gpuservice.api.endpoint import Endpoint
from gpuservice.api.v1 import endpoints

pytestmark = pytest.mark.a7

ROWS = [row for row in endpoints() if not row.agent]
#: Nouns that are the same for everybody, or whose rules admit only the operator and services.
CLOUD_WIDE = {"gpu-types"}
#: Stands for the id in the path or the body of a request.
SENT = "SENT-ID"
OPERATORS = {"hosts", "devices", "services", "quotas"}


@pytest.fixture
def foreign(world: World, cluster: Cluster) -> dict[str, str]:
    """One of each noun that belongs to the project ``vision`` or to the operator."""
    admin, ada = world.admin, world.client("vision", "manager")
    flavor = admin.post(
        "/flavors",
        {
            "flavor": {
                "name": "secret",
                "gpu_type": "a100-80gb",
                "gpu_count": 1,
                "public": False,
                "projects": ["vision"],
            }
        },
    ).get_json()["flavor"]
    pool = ada.post("/pools", {"pool": {"name": "mine", "flavor": "secret"}}).get_json()["pool"]
    node = ada.get(f"/nodes?pool_id={pool['id']}").get_json()["nodes"][0]
    queue = admin.post(
        "/queues", {"queue": {"name": "own", "project_id": "vision", "pools": [pool["id"]]}}
    ).get_json()["queue"]
    job = ada.post(
        "/jobs", {"job": {"name": "a", "command": ["true"], "queue": "own", "labels": {"x": "y"}}}
    )
    event = ada.get("/events?limit=1").get_json()["events"][0]
    return {
        "flavors": flavor["id"],
        "pools": pool["id"],
        "nodes": node["id"],
        "queues": queue["id"],
        "jobs": job.get_json()["job"]["id"],
        "events": event["id"],
        "hosts": cluster.hosts[0].id,
        "devices": cluster.devices[0].id,
        "quotas": "vision",
    }


def normalised(response: Any, *sent: str) -> tuple[int, str, dict[str, str]]:
    """An answer without its request id and without what was sent."""
    text, headers = response.text, dict(response.headers)
    request_id = headers.pop("X-Openstack-Request-Id")
    for word in (request_id, *sent):
        text = text.replace(word, "*")
        headers = {name: value.replace(word, "*") for name, value in headers.items()}
    headers.pop("Content-Length", None)
    return response.status_code, text, headers


def same(client: Client, method: str, known: str, path: str, body: Any = None) -> Any:
    """The answer to ``known`` and to a random UUID, which must be the same; ``SENT`` in path
    and body stands for them."""
    answers = []
    for ident in (known, str(uuid.uuid4())):
        more: dict[str, Any] = {}
        if body is not None:
            more = {
                "data": json.dumps(body).replace(SENT, ident),
                "content_type": "application/json",
            }
        answers.append((client.raw(method, "/v1" + path.replace(SENT, ident), **more), ident))
    first, second = (normalised(response, ident) for response, ident in answers)
    assert first == second
    return answers[0][0]


@pytest.mark.parametrize("role", ["reader", "member", "manager"])
@pytest.mark.parametrize("row", [row for row in ROWS if "<" in row.path], ids=key_of)
def test_every_path_and_verb(world, foreign, row: Endpoint, role):
    noun = row.path.split("/")[1]
    if noun in CLOUD_WIDE:
        return
    eve = world.client("speech", role, user="eve")
    path = path_of(row, {noun: SENT})
    response = same(
        eve,
        row.method,
        foreign.get(noun, str(uuid.uuid4())),
        path,
        BODIES[key_of(row)] if row.body else None,
    )
    refused = {403} if noun in OPERATORS else {403, 404}
    assert error_of(response)["status"] in refused
    if role == "manager" and noun not in OPERATORS and "admin" not in rule_of(row):
        assert response.status_code == 404


def rule_of(row: Endpoint) -> str:
    from gpuservice import policies

    rules = {rule.name: rule.check_str for rule in policies.list_rules()}
    return str(rules[row.rule])


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.listing and "<" not in row.path], ids=key_of
)
def test_every_filter_and_marker(world, foreign, row: Endpoint):
    noun = row.path.split("/")[1]
    eve = world.client("speech", "member", user="eve")
    names = [*row.listing.filters, "marker"]
    for name in names:
        if row.listing.filters.get(name) in ("integer", "boolean", "time"):
            continue
        for ident in foreign.values():
            if noun in OPERATORS | CLOUD_WIDE and name != "marker":
                continue
            response = same(eve, "GET", ident, f"{row.path}?{name}={SENT}")
            assert response.status_code in (200, 400, 403), response.text
            if name == "marker" and response.status_code == 200:
                assert noun == "quotas"


@pytest.mark.parametrize("query", ["all_projects=true", "project_id=vision"])
@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.listing and row.listing.scoped], ids=key_of
)
def test_lists_of_others(world, foreign, row: Endpoint, query):
    if "<" in row.path:
        return
    for role in ("reader", "member", "manager"):
        eve = world.client("speech", role, user="eve")
        assert error_of(eve.get(f"{row.path}?{query}"))["status"] == 403
        text = eve.get(row.path).text
        for ident in foreign.values():
            assert ident not in text or ident == "vision"


#: Endpoint -> fields of its body that name another object, as paths.
REFERENCES: dict[str, tuple[tuple[Any, ...], ...]] = {
    "POST /pools": (("pool", "flavor"),),
    "POST /queues": (("queue", "pools", 0),),
    "PATCH /queues/<id>": (("queue", "pools", 0),),
    "POST /jobs": (("job", "queue"), ("job", "depends_on", 0, "job")),
}


def put(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of a body with a reference in it."""
    changed = copy.deepcopy(body)
    here = changed
    for step, following in pairwise(path):
        if isinstance(here, list):
            here.append({})
            here = here[-1]
            continue
        if isinstance(following, int):
            here[step] = []
        here = here[step]
    if isinstance(here, list):
        here.append(value)
    else:
        here[path[-1]] = value
    return changed


@pytest.mark.parametrize("key", REFERENCES)
def test_references_in_bodies(world, foreign, key):
    noun_of = {"flavor": "flavors", "pools": "pools", "queue": "queues", "job": "jobs"}
    row = next(row for row in ROWS if key_of(row) == key)
    eve = world.client("speech", "manager", user="eve")
    ids = {}
    if key.startswith(("POST /queues", "PATCH /queues")):
        own = world.admin.post("/queues", {"queue": {"name": "eves", "project_id": "speech"}})
        ids = {"queues": own.get_json()["queue"]["id"]}
        if key.startswith("POST"):
            # Only the operator makes queues: for a project they hold that project's pools alone.
            eve = world.admin
    for path in REFERENCES[key]:
        noun = noun_of[str([step for step in path if isinstance(step, str)][-1])]
        body = put(BODIES[key] if key != "PATCH /queues/<id>" else {"queue": {}}, path, SENT)
        if key == "POST /queues":
            body["queue"] |= {"project_id": "speech"}
        response = same(eve, row.method, foreign[noun], path_of(row, ids), body)
        error = error_of(response)
        assert error["status"] == 400, error
        assert error["source"]["pointer"].startswith("/" + "/".join(map(str, path[:2])))


def test_references_by_name(world, foreign):
    eve = world.client("speech", "manager", user="eve")
    for path, body in (
        ("/pools", {"pool": {"name": "p", "flavor": "NAME"}}),
        ("/jobs", {"job": {"name": "j", "command": ["x"], "queue": "NAME"}}),
    ):
        for name in ("secret", "own", "mine"):
            answers = [
                normalised(
                    eve.raw(
                        "POST",
                        "/v1" + path,
                        data=json.dumps(body).replace("NAME", word),
                        content_type="application/json",
                    ),
                    f"'{word}'",
                )
                for word in (name, "qqq")
            ]
            assert answers[0] == answers[1]
            assert answers[0][0] == 400


def test_the_owner_sees_all_of_it(world, foreign):
    ada = world.client("vision", "member")
    for noun, ident in foreign.items():
        if noun in OPERATORS | {"events"}:
            continue
        assert ada.get(f"/{noun}/{ident}").status_code == 200, noun


def test_the_operator_sees_all_of_it(world, foreign):
    for noun, ident in foreign.items():
        if noun != "events":
            assert world.admin.get(f"/{noun}/{ident}").status_code == 200, noun
    for noun in ("pools", "nodes", "jobs", "queues"):
        assert foreign[noun] in world.admin.get(f"/{noun}?all_projects=true").text
        assert foreign[noun] in world.admin.get(f"/{noun}?project_id=vision").text

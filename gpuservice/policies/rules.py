# SPDX-License-Identifier: Apache-2.0
"""The rules: who may do what. Objects of other projects do not exist for a caller (404)."""

from __future__ import annotations

BASES: tuple[tuple[str, str, str], ...] = (
    ("admin", "role:admin", "The operator of the cloud."),
    ("service", "role:admin or role:service", "Another service, or the operator."),
    ("manager", "rule:admin or role:manager", "Who manages a project."),
    ("member", "rule:manager or role:member", "Who works in a project."),
    ("reader", "rule:member or rule:service or role:reader", "Who may look."),
)

Operation = tuple[str, str]

#: What each verb does, in the words of a policy file.
_VERBS = {
    "list": ("GET", "", "List {}"),
    "show": ("GET", "/{id}", "Show one of the {}"),
    "create": ("POST", "", "Create one of the {}"),
    "change": ("PATCH", "/{id}", "Change one of the {}"),
    "delete": ("DELETE", "/{id}", "Delete one of the {}"),
    "act": ("POST", "/{id}/action", "Act on one of the {}"),
}

#: noun -> (words, persona by verb)
_NOUNS: dict[str, tuple[str, dict[str, str]]] = {
    "gpu-types": (
        "GPU types",
        {
            "list": "reader",
            "show": "reader",
            "create": "admin",
            "change": "admin",
            "delete": "admin",
        },
    ),
    "hosts": ("GPU hosts", {"list": "service", "show": "service", "act": "admin"}),
    "devices": ("devices", {"list": "service", "show": "service", "act": "admin"}),
    "flavors": (
        "GPU flavors",
        {
            "list": "reader",
            "show": "reader",
            "create": "admin",
            "change": "admin",
            "delete": "admin",
            "act": "admin",
        },
    ),
    "pools": (
        "pools",
        {
            "list": "reader",
            "show": "reader",
            "create": "member",
            "change": "member",
            "delete": "member",
        },
    ),
    "nodes": ("nodes of pools", {"list": "reader", "show": "reader", "act": "member"}),
    "cohorts": (
        "cohorts of queues",
        {
            "list": "admin",
            "show": "admin",
            "create": "admin",
            "change": "admin",
            "delete": "admin",
        },
    ),
    "queues": (
        "queues",
        {
            "list": "reader",
            "show": "reader",
            "create": "admin",
            "change": "manager",
            "delete": "admin",
        },
    ),
    "jobs": (
        "jobs",
        {
            "list": "reader",
            "show": "reader",
            "create": "member",
            "change": "member",
            "delete": "member",
            "act": "member",
        },
    ),
    "quotas": (
        "quotas of projects",
        {"list": "admin", "show": "admin", "change": "admin", "delete": "admin"},
    ),
    "events": ("events", {"list": "reader"}),
    "simulations": (
        "what-if simulations",
        {"list": "admin", "show": "admin", "create": "admin", "delete": "admin"},
    ),
    "services": (
        "processes of this service",
        {"list": "service", "show": "service", "change": "admin"},
    ),
}


def _operations() -> list[tuple[str, str, str, list[Operation]]]:
    found: list[tuple[str, str, str, list[Operation]]] = []
    for noun, (words, personas) in _NOUNS.items():
        for verb, persona in personas.items():
            method, path, text = _VERBS[verb]
            found.append(
                (
                    f"gpu:{noun}:{verb}",
                    persona,
                    text.format(words) + ".",
                    [(method, f"/v1/{noun}{path}")],
                )
            )
    return found


OPERATIONS: tuple[tuple[str, str, str, list[Operation]], ...] = (
    *_operations(),
    (
        "gpu:flavors:capacity",
        "reader",
        "See how many nodes of a flavor fit now.",
        [("GET", "/v1/flavors/{id}/capacity")],
    ),
    ("gpu:pools:explain", "reader", "See why a pool waits.", [("GET", "/v1/pools/{id}/explain")]),
    (
        "gpu:jobs:explain",
        "reader",
        "See why a job waits or failed.",
        [("GET", "/v1/jobs/{id}/explain")],
    ),
    ("gpu:jobs:logs", "reader", "Read the logs of a job.", [("GET", "/v1/jobs/{id}/logs")]),
    (
        "gpu:jobs:artifacts",
        "reader",
        "List and download the artifacts of a job.",
        [("GET", "/v1/jobs/{id}/artifacts"), ("GET", "/v1/jobs/{id}/artifacts/{path}")],
    ),
    ("gpu:limits:show", "reader", "See the own project's limits and use.", [("GET", "/v1/limits")]),
    ("gpu:all_projects", "admin", "See objects of every project.", [("GET", "/v1/jobs")]),
    (
        "gpu:share_pools",
        "admin",
        "Share a pool with other projects, choose its isolation.",
        [("POST", "/v1/pools")],
    ),
    (
        "gpu:manage_project",
        "manager",
        "Change what is a manager's in the own project.",
        [("PATCH", "/v1/queues/{id}")],
    ),
)

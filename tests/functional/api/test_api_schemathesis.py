# SPDX-License-Identifier: Apache-2.0
"""The served OpenAPI document is tried out: no 5xx, and no answer that it does not describe.

``GPUSERVICE_SCHEMATHESIS_EXAMPLES`` is how many examples each operation gets.
"""

from __future__ import annotations

import os

import pytest
import schemathesis
from api_world import Cluster, World
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from valid_bodies import ids_of

from gpuservice.api import openapi
from gpuservice.api.v1 import endpoints

pytestmark = pytest.mark.a6

EXAMPLES = int(os.environ.get("GPUSERVICE_SCHEMATHESIS_EXAMPLES", "8"))
OPERATIONS = sorted(
    (path, method)
    for path, methods in openapi.document(endpoints())["paths"].items()
    for method in methods
)
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=lambda word: str(word))
def test_operation(world: World, cluster: Cluster, path: str, method: str) -> None:
    schema = schemathesis.openapi.from_wsgi("/v1/openapi.json", world.app)
    operation = schema[path][method.upper()]
    headers = {**world.admin.headers, "Host": "127.0.0.1:9797"}
    known = ids_of(cluster).get(path.split("/")[2])

    @given(case=operation.as_strategy())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    def run(case: schemathesis.Case) -> None:
        if (
            known is not None
            and "id" in case.path_parameters
            and len(str(case.path_parameters["id"])) % 2
        ):
            case.path_parameters["id"] = known
        case.call_and_validate(headers=headers, checks=list(CHECKS))

    run()

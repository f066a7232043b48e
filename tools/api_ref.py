#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the pages of the REST reference from what the service serves and raises.

    python tools/api_ref.py FOLDER

One page a noun, from the very schemas that validate; the list of error codes, from the error
classes, with the anchors that the ``help`` links of error answers point at.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuservice.api import errors as api_errors
from gpuservice.api import openapi
from gpuservice.api.v1 import endpoints
from gpuservice.domain import errors

Json = dict[str, Any]

#: Nouns whose path says too little.
TITLES = {
    "agent": "The agent's side",
    "gpu-types": "GPU types",
    "limits": "Limits of the own project",
}


def nouns(document: Json) -> dict[str, list[tuple[str, str, Json]]]:
    """Return (method, path, operation) by the first part of the path."""
    found: dict[str, list[tuple[str, str, Json]]] = defaultdict(list)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            found[path.split("/")[2]].append((method.upper(), path, operation))
    return dict(sorted(found.items()))


def noun_page(noun: str, operations: list[tuple[str, str, Json]]) -> str:
    """Return the page of one noun."""
    lines = heading(TITLES.get(noun, noun.replace("-", " ").capitalize()), "=")
    for method, path, operation in operations:
        lines += [f".. _{anchor(method, path)}:", ""]
        lines += heading(f"{method} {path}", "-")
        lines += [operation.get("summary", ""), ""]
        lines += parameters(operation.get("parameters", []))
        body = operation.get("requestBody", {}).get("content", {})
        for media, content in body.items():
            lines += [f"Body, ``{media}``:", "", *fields(content.get("schema", {}))]
        lines += answers(operation["responses"])
    return "\n".join(lines) + "\n"


def anchor(method: str, path: str) -> str:
    """Return a label that is unique to the verb."""
    words = path.strip("/").replace("{", "").replace("}", "").replace("_", "-").split("/")
    return "-".join([method.lower(), *words])


def heading(title: str, mark: str) -> list[str]:
    """Return a reStructuredText heading."""
    return [title, mark * len(title), ""]


def parameters(found: list[Json]) -> list[str]:
    """Return the table of path and query parameters."""
    rows = [[f"``{it['name']}``", it["in"], describe(it["schema"])] for it in found]
    return table(["Parameter", "in", "allowed"], rows) if rows else []


def fields(schema: Json) -> list[str]:
    """Return the table of the fields of a body, nested names joined by dots."""
    rows = [
        [f"``{name}``", "yes" if required else "", describe(inner)]
        for name, required, inner in walk(schema)
    ]
    return table(["Field", "required", "allowed"], rows) if rows else [describe(schema), ""]


def walk(schema: Json, prefix: str = "") -> Iterator[tuple[str, bool, Json]]:
    """Yield every field of a schema, outer ones first."""
    for name, inner in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield path, name in schema.get("required", ()), inner
        yield from walk(inner, f"{path}.")
        if isinstance(inner.get("items"), dict):
            yield from walk(inner["items"], f"{path}[].")
        for choice in (*inner.get("anyOf", ()), *inner.get("oneOf", ())):
            yield from walk(choice, f"{path}.")


def describe(schema: Json) -> str:
    """Return one line on what a value may be."""
    if "const" in schema:
        return f"``{json.dumps(schema['const'])}``"
    if "enum" in schema:
        return "one of " + ", ".join(f"``{json.dumps(value)}``" for value in schema["enum"])
    choices = (*schema.get("anyOf", ()), *schema.get("oneOf", ()))
    if choices:
        return " or ".join(describe(choice) for choice in choices)
    kinds = schema.get("type", "any")
    text = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    bounds = [
        f"{word} {schema[key]}"
        for key, word in BOUNDS.items()
        if key in schema and isinstance(schema[key], int | float | str)
    ]
    if "pattern" in schema:
        bounds.append(f"matching ``{escape(schema['pattern'])}``")
    if isinstance(schema.get("items"), dict):
        bounds.append(f"of {describe(schema['items'])}")
    words = ", ".join([text, *bounds])
    note = schema.get("description", "")
    return f"{words}. {note}" if note else words


BOUNDS = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
    "minLength": "length at least",
    "maxLength": "length at most",
    "minItems": "items at least",
    "maxItems": "items at most",
    "maxProperties": "entries at most",
    "format": "format",
    "default": "default",
}


def escape(pattern: str) -> str:
    """Return a pattern that may stand in an inline literal."""
    return pattern.replace("`", "'")


def answers(responses: Json) -> list[str]:
    """Return what comes back."""
    good = sorted(status for status in responses if status < "400")
    bad = sorted(status for status in responses if status >= "400")
    refusals = f"refused with {', '.join(bad)} (:ref:`why <error-codes>`)"
    lines = [f"Answers {', '.join(good)}; {refusals}.", ""]
    for status in good:
        content = responses[status].get("content", {}).get("application/json")
        if content and walk_has_fields(content["schema"]):
            lines += [f"Answer {status}:", "", *fields(content["schema"])]
    return lines


def walk_has_fields(schema: Json) -> bool:
    """Whether the schema names any field."""
    return next(walk(schema), None) is not None


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Return a reStructuredText list table."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: auto", ""]
    for row in [head, *rows]:
        first, *rest = (cell.replace("\n", " ").replace("|", "\\|") or "\\ " for cell in row)
        lines += [f"   * - {first}", *(f"     - {cell}" for cell in rest)]
    return [*lines, ""]


def error_classes() -> list[type[errors.GpuServiceError]]:
    """Return every error a caller may see, by code."""
    found: list[type[errors.GpuServiceError]] = [errors.GpuServiceError]
    for kind in found:
        found.extend(kind.__subclasses__())
    return sorted({kind.code: kind for kind in reversed(found)}.values(), key=lambda it: it.code)


def error_page() -> str:
    """Return the list of error codes."""
    lines = [".. _error-codes:", "", *heading("Error codes", "=")]
    lines += [
        "Every refusal carries ``errors[0].code``; the codes are stable, the sentences are not.",
        "``source.pointer`` names the field at fault, ``meta`` further facts for programs.",
        "",
    ]
    for kind in error_classes():
        label = kind.code.replace(".", "-").replace("_", "-")
        status = api_errors.status_of(kind.__new__(kind))
        lines += [f".. _{label}:", ""]
        lines += heading(kind.code, "-")
        lines += [f"{status}, {kind.title}. {inspect.cleandoc(kind.__doc__ or '')}", ""]
    return "\n".join(lines)


def main(folder: Path) -> None:
    """Write all pages."""
    folder.mkdir(parents=True, exist_ok=True)
    document = openapi.document(endpoints())
    for noun, found in nouns(document).items():
        (folder / f"{noun}.rst").write_text(noun_page(noun, found), encoding="utf-8")
    # Included by the first page: the help links of error answers point at anchors there.
    (folder / "errors.inc").write_text(error_page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

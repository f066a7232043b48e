# SPDX-License-Identifier: Apache-2.0
"""Pieces of schemas: every string, number, list and map has a bound."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$"
_NOT_UUID = {"not": {"pattern": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"}}
#: Printable text on one line, and text with line ends.
LINE = "^[^\\x00-\\x1f\\x7f]*$"
MAX_INT = 2**31 - 1


def text(longest: int = 255, shortest: int = 0, pattern: str = LINE) -> Schema:
    """A string."""
    return {"type": "string", "minLength": shortest, "maxLength": longest, "pattern": pattern}


def name() -> Schema:
    """The name of something: not a UUID, so that a reference is one or the other."""
    return {"type": "string", "pattern": NAME_PATTERN, "maxLength": 255, **_NOT_UUID}


def reference() -> Schema:
    """A name or an id."""
    return {"type": "string", "pattern": NAME_PATTERN, "maxLength": 255}


def whole(least: int = 0, most: int = MAX_INT) -> Schema:
    """An integer."""
    return {"type": "integer", "minimum": least, "maximum": most}


def maybe(schema: Schema) -> Schema:
    """The schema, or null."""
    widened = dict(schema)
    widened["type"] = [schema["type"], "null"]
    if "enum" in schema:
        widened["enum"] = [*schema["enum"], None]
    return widened


def one_of(*words: str) -> Schema:
    """One of some words."""
    return {"type": "string", "enum": list(words)}


def items(schema: Schema, most: int, unique: bool = False) -> Schema:
    """A list."""
    return {"type": "array", "items": schema, "maxItems": most, "uniqueItems": unique}


def mapping(values: Schema, keys: str, most: int) -> Schema:
    """A map with free keys of one pattern."""
    return {
        "type": "object",
        "maxProperties": most,
        "additionalProperties": values,
        "propertyNames": {"pattern": keys, "maxLength": 255},
    }


def record(required: tuple[str, ...] = (), **fields: Schema) -> Schema:
    """An object with known fields."""
    return {
        "type": "object",
        "properties": fields,
        "required": list(required),
        "additionalProperties": False,
    }


def wrapped(noun: str, inner: Schema) -> Schema:
    """``{"noun": {...}}``."""
    return record((noun,), **{noun: inner})


def patch(noun: str, inner: Schema) -> Schema:
    """A merge patch of some fields of a noun."""
    return wrapped(noun, {**inner, "required": [], "minProperties": 1})


def shown(noun: str, **fields: Schema) -> Schema:
    """An answer: an object with at least these fields."""
    common: Schema = {
        "id": {"type": "string"},
        "created_at": {"type": "string"},
        "updated_at": {"type": "string"},
        "generation": {"type": "integer"},
        "links": {"type": "array"},
    }
    inner: Schema = {"type": "object", "properties": {**common, **fields}, "required": ["id"]}
    return {"type": "object", "properties": {noun: inner}, "required": [noun]}


def listed(nouns: str) -> Schema:
    """An answer: a page of a list."""
    return {
        "type": "object",
        "required": [nouns, "links"],
        "properties": {
            nouns: {"type": "array", "items": {"type": "object"}},
            "links": {"type": "array"},
            "count": {"type": "integer"},
        },
    }


ACTION_REASON = record((), reason=text(255))


def actions(**variants: Schema) -> Schema:
    """``{"verb": {...}}`` with exactly one verb."""
    return {
        "type": "object",
        "properties": {
            verb: {"anyOf": [{"type": "null"}, inner]} for verb, inner in variants.items()
        },
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }

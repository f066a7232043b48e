# SPDX-License-Identifier: Apache-2.0
"""Bodies and queries against their schemas; what is wrong is said with value and pointer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend

from gpuservice.api.strict_json import escaped
from gpuservice.domain.errors import Invalid

#: Among so many faults the most telling one is looked for.
_ENOUGH = 100


def _is_integer(checker: Any, value: Any) -> bool:
    """``1e3`` is a float to us, whatever JSON Schema says of it."""
    return isinstance(value, int) and not isinstance(value, bool)


@lru_cache(maxsize=1024)
def _regex(pattern: str) -> re.Pattern[str]:
    """``$`` is the very end of the text, as everywhere but in Python (a newline may follow)."""
    return re.compile(pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern)


def _matches(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and not _regex(pattern).search(value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _within(
    keyword: str, kind: type[list[Any]] | type[dict[str, Any]], bound: str
) -> Callable[..., Iterator[ValidationError]]:
    """A keyword that does not look into what is too long anyway: ``bound`` says that, and the
    time of a refusal does not grow with what was sent."""
    inner = Draft202012Validator.VALIDATORS[keyword]

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, kind) and len(instance) > schema.get(bound, len(instance)):
            return
        yield from inner(validator, value, instance, schema) or ()

    return check


_each_more = _within("additionalProperties", dict, "maxProperties")


def _no_more(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """``additionalProperties``; where none are allowed, one fault says it for all of them."""
    if value is not False:
        yield from _each_more(validator, value, instance, schema)
    elif isinstance(instance, dict) and not instance.keys() <= schema.get("properties", {}).keys():
        yield ValidationError("unknown fields")


Strict = extend(
    Draft202012Validator,
    {
        "pattern": _matches,
        **{name: _within(name, list, "maxItems") for name in ("items", "uniqueItems")},
        "propertyNames": _within("propertyNames", dict, "maxProperties"),
        "additionalProperties": _no_more,
    },
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)


class Checker:
    """One compiled schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        Draft202012Validator.check_schema(schema)
        self._validator = Strict(schema)

    def check(self, value: Any) -> None:
        """Raise ``Invalid`` for the most telling of the faults."""
        if self._validator.is_valid(value):
            return
        error = best_match(islice(self._validator.iter_errors(value), _ENOUGH))
        raise Invalid(_sentence(error), pointer=_pointer(error))

    def faults(self, value: Any) -> list[str]:
        """Every fault, for answers."""
        return [f"{_pointer(one)}: {one.message}" for one in self._validator.iter_errors(value)]


#: Compiled checkers by the identity of their schema, which is kept with them: the schemas of
#: the endpoint table live as long as the process.
_COMPILED: dict[int, tuple[dict[str, Any], Checker]] = {}


def checker(schema: dict[str, Any]) -> Checker:
    """The compiled checker of a schema."""
    known = _COMPILED.get(id(schema))
    if known is None:
        known = _COMPILED[id(schema)] = (schema, Checker(schema))
    return known[1]


def _pointer(error: ValidationError) -> str:
    path = "".join(f"/{escaped(str(part))}" for part in error.absolute_path)
    if _is_key(error):
        return f"{path}/{escaped(error.instance)}"
    if error.validator == "additionalProperties":
        return f"{path}/{escaped(_stranger(error))}"
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return f"{path}/{escaped(missing[0])}" if missing else path
    return path


def _is_key(error: ValidationError) -> bool:
    """Whether the fault is in the name of a field, not in its value."""
    return "propertyNames" in error.absolute_schema_path and isinstance(error.instance, str)


def _stranger(error: ValidationError) -> str:
    """The first of the unknown fields."""
    known = error.schema.get("properties", {})
    return min(str(name) for name in error.instance if name not in known)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:117] + "..."


def _allowed(schema: dict[str, Any]) -> str:
    """In words, what one of several schemas allows."""
    if "enum" in schema:
        return ", ".join(_shown(one) for one in schema["enum"])
    kinds = schema.get("type", "value")
    kind = kinds if isinstance(kinds, str) else " or ".join(kinds)
    bounds = [str(schema[name]) for name in ("minimum", "maximum") if name in schema]
    return f"{kind} {' to '.join(bounds)}".strip()


def _sentence(error: ValidationError) -> str:
    name, limit, value = error.validator, error.validator_value, error.instance
    where = str(error.absolute_path[-1]) if error.absolute_path else "The body"
    if _is_key(error):
        where = "The key"
    match name:
        case "additionalProperties" if error.validator_value is False:
            allowed = ", ".join(sorted(error.schema.get("properties", {}))) or "none"
            return f"The field {_stranger(error)[:80]!r} is unknown here; allowed: {allowed}."
        case "required":
            missing = [one for one in limit if one not in value]
            return f"The field {missing[0]!r} is missing."
        case "type":
            kinds = limit if isinstance(limit, str) else " or ".join(limit)
            return f"{where} is {_shown(value)}; it must be of type {kinds}."
        case "enum":
            return (
                f"{where} is {_shown(value)}; allowed: {', '.join(_shown(one) for one in limit)}."
            )
        case "anyOf" | "oneOf":
            return f"{where} is {_shown(value)}; allowed: {'; '.join(map(_allowed, limit))}."
        case "const":
            return f"{where} is {_shown(value)}; it must be {_shown(limit)}."
        case "minimum" | "exclusiveMinimum":
            return f"{where} is {_shown(value)}; it must be at least {limit}."
        case "maximum" | "exclusiveMaximum":
            return f"{where} is {_shown(value)}; it must be at most {limit}."
        case "pattern":
            return f"{where} is {_shown(value)}; it must match {limit}."
        case "maxLength" | "maxItems" | "maxProperties":
            return f"{where} is too long; at most {limit} are allowed."
        case "minLength" | "minItems" | "minProperties":
            return f"{where} is {_shown(value)}; at least {limit} are needed."
    return f"{where}: {error.message[:200]}"

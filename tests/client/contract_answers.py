"""Answers that fit a schema of the contract, and answers that are broken in one place."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from random import Random
from typing import Any

from contract_files import API

# A value of each type of JSON; a wrong answer has one where the contract has another.
OF_EACH_TYPE: tuple[Any, ...] = (None, True, 7, 0.5, "text", [], {}, [None], {"a": 1})
Place = tuple[Any, ...]
_PLAIN: dict[str, tuple[Any, ...]] = {
    "string": ("text", "\u2028\u00e9\x00"),
    "integer": (1, 1 << 62),
    "number": (1, 0.5),
    "boolean": (True, False),
    "null": (None,),
}


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Follow references into the contract."""
    while "$ref" in schema:
        kind, _, name = schema["$ref"].rpartition("/")
        schema = API["components"][kind.rpartition("/")[2]][name]
    return schema


def answer_schema(operation: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of an operation's JSON; None where it answers nothing, or text alone."""
    for status in ("200", "202"):
        if status in operation["responses"]:
            content = resolved(operation["responses"][status]).get("content", {})
            return content["application/json"]["schema"] if "application/json" in content else None
    return None


def fitting(schema: dict[str, Any], random: Random) -> Any:
    """Return an answer that fits the schema, of few values: the client reads types, and no bounds."""
    schema = resolved(schema)
    if "oneOf" in schema:
        return fitting(random.choice(schema["oneOf"]), random)
    if "enum" in schema or "const" in schema:
        return random.choice(schema.get("enum", [schema.get("const")]))
    kinds = schema.get("type", "object")
    return _of_kind(random.choice(kinds) if isinstance(kinds, list) else kinds, schema, random)


def _of_kind(kind: str, schema: dict[str, Any], random: Random) -> Any:
    if kind == "object":
        return _object(schema, random)
    if kind == "array":
        count = max(schema.get("minItems", 0), random.randrange(2))
        return [fitting(schema["items"], random) for _ in range(count)]
    # A pattern of the contract lists words.
    word = re.search(r"\w{3,}", schema.get("pattern", ""))
    return word[0] if word else random.choice(_PLAIN[kind])


def _object(schema: dict[str, Any], random: Random) -> dict[str, Any]:
    named, required = schema.get("properties", {}), schema.get("required", ())
    more = schema.get("additionalProperties", False)
    if not named:
        return {"any": fitting(more, random)} if isinstance(more, dict) and random.randrange(2) else {}
    chosen = [name for name in named if name in required or random.randrange(2)]
    return {name: fitting(named[name], random) for name in chosen}


def places(value: Any, here: Place = ()) -> Iterator[Place]:
    """Yield the place of each value within an answer, the whole first."""
    yield here
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield from places(one, (*here, key))


def with_value(answer: Any, place: Place, value: Any) -> Any:
    """Return the answer with another value in this place."""
    if not place:
        return value
    changed = copy.deepcopy(answer)
    parent = _parent(changed, place)
    parent[place[-1]] = value
    return changed


def without(answer: Any, place: Place) -> Any:
    """Return the answer without the value in this place, which is not the whole."""
    changed = copy.deepcopy(answer)
    del _parent(changed, place)[place[-1]]
    return changed


def _parent(answer: Any, place: Place) -> Any:
    for key in place[:-1]:
        answer = answer[key]
    return answer

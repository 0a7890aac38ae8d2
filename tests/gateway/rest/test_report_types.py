"""Agreement of the structs of gateway/reports with openapi.yaml and kernel_event.yaml."""

from __future__ import annotations

import types
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from contract_files import API, EVENT

from jupyter_aliquot.gateway.reports import event, history, holders, invitation, kernel, outputs, quota, status, usage

SCHEMAS: dict[str, Any] = API["components"]["schemas"]
STRUCTS = {
    name: struct
    for module in (kernel, status, event, history, outputs, quota, holders, usage, invitation)
    for name, struct in vars(module).items()
    if is_typeddict(struct) and struct.__module__ == module.__name__
}
# Parts of `Kernel`, `History`, `UsageReport`, `RunningCell` and its `input`, each made by one function.
NO_SCHEMA = {"Usage", "HistoryHead", "UsageHead", "CellState", "QuestionId"}
_WORDS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference to another schema of the contract."""
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    return resolved(found)


def branches(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a schema as a list of schemas of one type each."""
    schema = resolved(schema)
    if "oneOf" in schema:
        return [one for part in schema["oneOf"] for one in branches(part)]
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return [{"type": word} for word in sorted({"null" if value is None else "string" for value in values})]
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return [{**schema, "type": name} for name in names]


def differences(where: str, hint: Any, schema: dict[str, Any]) -> list[str]:
    """Return the differences between a type and a schema."""
    hints = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    found = {one["type"]: one for one in branches(schema)}
    words = {_word(one): one for one in hints}
    if set(words) != set(found):
        return [f"{where}: the struct has {sorted(words)}, the schema {sorted(found)}"]
    told = []
    for word, one in words.items():
        if word == "array":
            told += differences(f"{where}[]", get_args(one)[0], found[word]["items"])
        elif get_origin(one) is dict:
            told += values(where, one, found[word])
        elif word == "object":
            told += fields(where, one, found[word])
    return told


def values(where: str, hint: Any, schema: dict[str, Any]) -> list[str]:
    """Return the differences of an object whose names the contract leaves open."""
    value, allowed = get_args(hint)[1], schema.get("additionalProperties", True)
    if value is Any:
        return [] if allowed is True else [f"{where}: the struct has any field, the schema {allowed}"]
    return differences(f"{where}{{}}", value, allowed)


def fields(where: str, struct: Any, schema: dict[str, Any]) -> list[str]:
    """Return the differences of an object's fields: the same are required, and there are no others."""
    hints, properties = get_type_hints(struct), schema["properties"]
    told = [f"{where}: {name} is in one of both" for name in set(hints) ^ set(properties)]
    required = struct.__required_keys__ ^ set(schema["required"])
    told += [f"{where}: {name} is required in one of both" for name in required]
    told += [] if schema.get("additionalProperties") is False else [f"{where}: other fields are allowed"]
    for name in set(hints) & set(properties):
        told += differences(f"{where}.{name}", hints[name], properties[name])
    return told


def _word(hint: Any) -> str:
    if is_typeddict(hint):
        return "object"
    if get_origin(hint) is dict:
        return "object"
    return "array" if get_origin(hint) in (list, tuple) else _WORDS[hint]


@pytest.mark.parametrize("name", sorted(name for name in STRUCTS if name in SCHEMAS))
def test_a_struct_has_the_fields_and_the_types_of_its_schema(name: str) -> None:
    assert fields(name, STRUCTS[name], SCHEMAS[name]) == []


def test_an_event_has_the_fields_and_the_types_of_its_schema() -> None:
    assert fields("KernelEvent", event.KernelEvent, EVENT) == []


def test_every_struct_is_compared() -> None:
    """Check that each struct is compared.

    A struct without a schema of its name is compared as a field of one that has one.
    """
    seen: set[str] = set()

    def see(hint: Any) -> None:
        if is_typeddict(hint) and hint.__name__ not in seen:
            seen.add(hint.__name__)
            for one in get_type_hints(hint).values():
                see(one)
        for one in get_args(hint):
            see(one)

    for name, struct in STRUCTS.items():
        if name in SCHEMAS or struct is event.KernelEvent:
            see(struct)
    assert set(STRUCTS) - seen == NO_SCHEMA
    assert {"Kernel", "Device", "Node", "Status", "Sizes", "DryRun", "Folder"} <= set(SCHEMAS) & set(STRUCTS)

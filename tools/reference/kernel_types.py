"""The types of a kernel's report, gateway/reports/kernel.py, made from the contract, gateway/api/openapi.yaml.

A new field of a kernel is written in the contract alone. The part of the report that the node agent
supplies is a struct of its own, `Usage`: in the contract its fields stand in one piece, from
`memory_limit_bytes` to `devices`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

_CONTRACT = Path(__file__).resolve().parents[2] / "gateway" / "api" / "openapi.yaml"
_HEAD = '''"""The report of one kernel, and its parts.

Times are ISO 8601 in UTC, amounts are bytes, shares are numbers of GPUs. api/openapi.yaml says what
each field means, and lists the words of enumerations. tools/reference_pages.py makes this file of it.
"""

from __future__ import annotations

from typing import TypedDict
'''
# The fields of `Kernel` from the one to the other are the node agent's.
_USAGE = ("memory_limit_bytes", "devices")
# Each struct: the place of its schema, and what it is. A struct comes after its parts.
_STRUCTS = {
    "Compute": ("Compute", "A kernel's part of a device's time in the last second or so."),
    "Load": ("Load", "A kernel's use of a device while it works there."),
    "KernelDevice": ("KernelDevice", "The part of one device that a kernel has."),
    "MemoryQueue": ("Residency.queued", "A kernel's wait for memory: to be restored, or for a larger allocation."),
    "Moving": ("Residency.moving", "A copy of memory that is under way."),
    "Unswappable": ("Residency.unswappable[]", "Memory that a swap-out leaves on the device, and the reason."),
    "Residency": ("Residency", "The place of a kernel's memory: on the GPU, swapped out, or moving."),
    "HostMemory": ("Kernel.host_memory", "Host memory that a kernel has page-locked."),
    "UncontrolledProcess": (
        "UncontrolledProcess",
        "A process of a kernel with memory on a device that no hook counts.",
    ),
    "Requested": ("WaitReason.requested", "The amounts that a queued request needs."),
    "Free": ("WaitReason.free", "The free amounts of the device that has the most free."),
    "HostShortage": (
        "WaitReason.host_memory",
        "Host memory that copies of swapped-out kernels would need, and the amount reserved for them.",
    ),
    "WaitReason": ("WaitReason", "The reason why a request is queued, in numbers."),
    "PredictedStart": ("PredictedStart", "The times between which a request probably starts."),
    "Resize": ("Resize", "A change of size that is queued."),
    "Termination": ("Termination", "The reason and the time of a kernel's end."),
    "ScheduledTermination": ("ScheduledTermination", "An end that the gateway has announced."),
    "Share": ("Share", "One user or team that a kernel is shared with."),
    "OwnerMessage": ("OwnerMessage", "A message of an administrator to a kernel's owner."),
    "DroppedMessages": ("Kernel.dropped_messages", "Counts of messages that were not sent to browsers, by reason."),
}
_NAMES = {place: name for name, (place, _) in _STRUCTS.items()}
_WORDS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

_Schema = dict[str, Any]


def kernel_types(contract: Path = _CONTRACT) -> str:
    """Return the text of gateway/reports/kernel.py."""
    return f"{_HEAD}{''.join(_classes(yaml.safe_load(contract.read_text('utf-8'))['components']['schemas']))}"


def _classes(schemas: dict[str, _Schema]) -> Iterator[str]:
    for name, (place, words) in _STRUCTS.items():
        fields = _schema_at(place, schemas)["properties"]
        yield _class(
            name, "TypedDict", words, {field: _hint(f"{place}.{field}", fields[field], schemas) for field in fields}
        )
    fields = schemas["Kernel"]["properties"]
    hints = {field: _hint(f"Kernel.{field}", fields[field], schemas) for field in fields}
    first, last = (list(hints).index(field) for field in _USAGE)
    usage = list(hints)[first : last + 1]
    words = "A kernel's grant and usage: the part of its report that the node agent supplies."
    yield _class("Usage", "TypedDict", words, {field: hints[field] for field in usage})
    own = {field: hint for field, hint in hints.items() if field not in usage}
    yield _class("Kernel", "Usage", "One kernel, as one user may see it.", own)


def _class(name: str, base: str, words: str, hints: dict[str, str]) -> str:
    fields = "".join(f"    {field}: {hint}\n" for field, hint in hints.items())
    return f'\n\nclass {name}({base}):\n    """{words}"""\n\n{fields}'


def _schema_at(place: str, schemas: dict[str, _Schema]) -> _Schema:
    name, _, field = place.partition(".")
    if not field:
        return schemas[name]
    found: _Schema = schemas[name]["properties"][field.removesuffix("[]")]
    return found["items"] if field.endswith("[]") else found


def _hint(place: str, schema: _Schema, schemas: dict[str, _Schema]) -> str:
    """Return the Python type of a schema that stands at this place."""
    return " | ".join(dict.fromkeys(_hints(place, schema, schemas)))


def _hints(place: str, schema: _Schema, schemas: dict[str, _Schema]) -> Iterator[str]:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from _hints(name, schemas[name], schemas)
    elif "oneOf" in schema:
        for one in schema["oneOf"]:
            yield from _hints(place, one, schemas)
    elif "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        yield "str"
        if None in values:
            yield "None"
    else:
        for word in schema["type"] if isinstance(schema["type"], list) else [schema["type"]]:
            yield _of_type(word, place, schema, schemas)


def _of_type(word: str, place: str, schema: _Schema, schemas: dict[str, _Schema]) -> str:
    if word == "array":
        return f"list[{_hint(f'{place}[]', schema['items'], schemas)}]"
    if word != "object":
        return _WORDS[word]
    if place not in _NAMES:
        raise SystemExit(
            f"{place} is an object of the contract without a name. Name it in {__file__}, before its owner"
        )
    return _NAMES[place]

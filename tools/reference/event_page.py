"""Make docs/reference/events.md from gateway/events/kernel_event.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from .tables import GENERATED, cell, code, table

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "gateway/events/kernel_event.yaml"


def event_page() -> str:
    """Return the whole page."""
    schema = yaml.safe_load(SCHEMA.read_text())
    head = [
        "# Events of kernels",
        "",
        GENERATED,
        "",
        f"Schema {code(schema['$id'])}, version {schema['version']}, of `gateway/events/kernel_event.yaml`.",
        schema["description"].strip(),
        "",
    ]
    return "\n".join([*head, *table(("field", "type", "meaning"), _fields(schema, ""))]) + "\n"


def _fields(schema: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in schema["properties"].items():
        required = "" if name in schema["required"] else " May be absent."
        yield code(prefix + name), _kind(field), cell(field.get("description", "") + required)
        if "properties" in field:
            yield from _fields(field, f"{prefix}{name}.")


def _kind(field: dict[str, Any]) -> str:
    if "enum" in field:
        return "one of " + ", ".join(code(str(value)) for value in field["enum"])
    kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
    return " or ".join(kinds)

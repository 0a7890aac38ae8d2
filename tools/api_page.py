"""Render the contract of the REST API as a page of the documentation site. It runs no script in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

METHODS = ("get", "put", "post", "patch", "delete")


def render(contract: Path, event: Path) -> str:
    """Return the page in Markdown: each operation, then each schema with its fields."""
    api = yaml.safe_load(contract.read_text("utf-8"))
    schemas = {**api["components"]["schemas"], "KernelEvent": yaml.safe_load(event.read_text("utf-8"))}
    parts = [
        "# Operations of the REST API",
        f"Version {api['info']['version']}. {api['info']['description']} This page is made from the "
        "[OpenAPI file](../openapi.yaml); [the REST API](rest-api.md) explains it.",
        "## Operations",
    ]
    for path, methods in api["paths"].items():
        parts += [_operation(api, path, method, methods[method]) for method in METHODS if method in methods]
    parts.append("## Schemas")
    parts += [_schema(name, schema) for name, schema in schemas.items()]
    return "\n\n".join(parts) + "\n"


def _operation(api: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [f"### {operation['operationId']}", f"`{method.upper()} {path}`", operation["summary"]]
    if operation.get("deprecated"):
        parts.append("**Deprecated.**")
    if parameters := operation.get("parameters"):
        parts.append(_table(["parameter", "in", "type", "meaning"], [_parameter(one) for one in parameters]))
    if body := operation.get("requestBody"):
        schema = body["content"]["application/json"]["schema"]
        rows = [_field(name, one, schema.get("required", ())) for name, one in schema["properties"].items()]
        parts.append(_table(["field of the body", "type", "meaning"], rows))
    rows = [[status, *_response(api, response)] for status, response in operation["responses"].items()]
    parts.append(_table(["status", "answer", "when"], rows))
    return "\n\n".join(parts)


def _schema(name: str, schema: dict[str, Any]) -> str:
    parts = [f"### {name}", schema.get("description", "")]
    if properties := schema.get("properties"):
        rows = [_field(field, one, properties) for field, one in properties.items()]
        parts.append(_table(["field", "type", "meaning"], rows))
    else:
        parts.append(f"Type: {_type(schema)}")
    return "\n\n".join(part for part in parts if part)


def _parameter(parameter: dict[str, Any]) -> list[str]:
    needed = "; required" if parameter.get("required") else ""
    told = parameter.get("description", "")
    return [f"`{parameter['name']}`", parameter["in"], _type(parameter["schema"]) + needed, told]


def _field(name: str, schema: dict[str, Any], required: Any) -> list[str]:
    told = schema.get("description", "")
    if schema.get("deprecated"):
        told = f"**Deprecated.** {told}"
    return [f"`{name}`", _type(schema) + ("" if name in required else "; may be left out"), told]


def _response(api: dict[str, Any], response: dict[str, Any]) -> list[str]:
    if "$ref" in response:
        response = api["components"]["responses"][_name(response["$ref"])]
    kinds = response.get("content", {})
    types = [_type(one["schema"]) if "json" in kind else f"`{kind}`" for kind, one in kinds.items()]
    return [", ".join(types) or "nothing", response["description"]]


def _type(schema: dict[str, Any]) -> str:
    """Return a schema's type in one phrase, with links to other schemas."""
    if "$ref" in schema:
        name = "KernelEvent" if schema["$ref"].endswith("kernel_event.yaml") else _name(schema["$ref"])
        return f"[{name}](#{name.lower()})"
    if "oneOf" in schema:
        return " or ".join(_type(one) for one in schema["oneOf"])
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{'null' if one is None else one}`" for one in schema.get("enum", [schema.get("const")]))
    kinds = schema.get("type", "any")
    return " or ".join(_one(kind, schema) for kind in (kinds if isinstance(kinds, list) else [kinds]))


def _one(kind: str, schema: dict[str, Any]) -> str:
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if kind == "object" and (properties := schema.get("properties")):
        return "object: " + ", ".join(f"`{name}` {_type(one)}" for name, one in properties.items())
    return f"{kind} ({schema['format']})" if kind == "string" and "format" in schema else kind


def _name(reference: str) -> str:
    return reference.rpartition("/")[2]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |" for row in lines
    )

"""The contract of this API as one JSON document: api/openapi.yaml with the schema of events in it."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any

import yaml
from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from jupyter_aliquot.gateway.events.stream import SCHEMA
from jupyter_aliquot.gateway.reports import to_json

from .base import AliquotHandler

_FILE = Path(__file__).with_name("openapi.yaml")
_EVENT_IN_FILE = "../events/kernel_event.yaml"
_EVENT = "KernelEvent"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where libyaml was built in


@functools.cache
def contract_text() -> str:
    """Return the document. It refers to no other file."""
    contract, event = (yaml.load(path.read_text("utf-8"), _Loader) for path in (_FILE, SCHEMA))
    return to_json(bundled(contract, event))


def bundled(contract: dict[str, Any], event: dict[str, Any]) -> dict[str, Any]:
    """Return the contract with the schema of events among its own schemas."""
    components = contract["components"]
    schemas = {**components["schemas"], _EVENT: event}
    whole: dict[str, Any] = _with_references({**contract, "components": {**components, "schemas": schemas}})
    return whole


def _with_references(value: Any) -> Any:
    if isinstance(value, dict):
        if value.get("$ref") == _EVENT_IN_FILE:
            return {"$ref": f"#/components/schemas/{_EVENT}"}
        return {name: _with_references(one) for name, one in value.items()}
    return [_with_references(one) for one in value] if isinstance(value, list) else value


class ContractHandler(AliquotHandler):
    """Answer the OpenAPI document of this API."""

    @authenticated
    @authorized
    async def get(self) -> None:
        # The first reading of the files takes most of a second.
        self.answer_text(await asyncio.to_thread(contract_text))

"""Agreement of the client with openapi.yaml: each operation, each parameter, each field of the answers."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any, get_args, get_type_hints

import pytest

from jupyter_aliquot.client import AsyncClient, Client, operations
from jupyter_aliquot.client.exchange import Call

from .test_contract import API, OPERATIONS
from .test_report_types import differences, fields

# Websockets. Node agents open the first with tokens of their own; the faces open the second themselves.
OF_AGENTS, OF_EVENTS = "agents", "events"
# The same operation as `history`, in the other form of its answer.
OTHER_FORMS = {"history_csv", "usage_csv"}
# Jupyter's own API, which the contract does not repeat.
OF_JUPYTER = {"start_kernel", "end_kernel", "run_code"}
SAMPLES: dict[str, Any] = {
    "kernel_id": "K",
    "kind": "users",
    "name": "N",
    "access": "read",
    "node": "N",
    "digest": "D",
    "gpus": 0.5,
    "kernelspec": "python3.gpu-0.5",
    "cpus": "4",
    "ram": "16GiB",
    "folders": "sets",
    "memory": "6GiB",
    "priority": "low",
    "kernel": ["K"],
    "device": ["D"],
    "replaces": "R",
    "models": "H200,A100",
    "size": ["gpu-0.5"],
    "messages": False,
    "session": "S",
    "sent": ["M"],
    "range": "day",
    "month": "2026-11",
    "begin": "2026-11-01",
    "end": "2026-12-01",
    "by": ["user"],
    "user": ["U"],
    "team": ["T"],
    "source": "/s",
    "target": "/t",
    "users": ["*"],
    "teams": ["T"],
    "read_only": False,
    "text": "a message",
    "reason": "a reason",
    "path": "~/project",
    "invited": "bob",
    "until": "2026-12-01T00:00:00Z",
    "id": "I",
}


def snake(operation_id: str) -> str:
    return re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", operation_id)


DOCUMENTED = {snake(one["operationId"]): (path, method, one) for (path, method), one in OPERATIONS.items()}
MADE = {
    name: one
    for name, one in vars(operations).items()
    if inspect.isfunction(one) and one.__module__ == operations.__name__ and not name.startswith("_")
}
COMPARED = sorted(set(MADE) - OTHER_FORMS)


def call_of(name: str) -> Call[Any]:
    """Return the call with a value for each of its arguments."""
    made = MADE[name]
    values = {one: SAMPLES[one] for one in inspect.signature(made).parameters}
    if name.startswith("dry_run"):
        values["kernel"] = "K"
    if name in ("moves", "run_moves"):
        values["size"] = "gpu-0.5"
    found: Call[Any] = made(**values)
    return found


def answer_schema(operation: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the media type and the schema of an operation's success; two empty ones where it answers nothing."""
    for status in ("200", "202"):
        response = operation["responses"].get(status)
        if response is not None:
            name = response.get("$ref", "").rpartition("/")[2]
            content = (API["components"]["responses"][name] if name else response)["content"]
            media_type = next(iter(content))
            return media_type, content[media_type]["schema"]
    return "", {}


def test_the_client_has_each_operation_and_no_other() -> None:
    assert set(MADE) - OTHER_FORMS == set(DOCUMENTED) - {OF_AGENTS, OF_EVENTS}


@pytest.mark.parametrize("name", COMPARED)
def test_a_call_is_the_request_that_the_contract_has(name: str) -> None:
    path, method, operation = DOCUMENTED[name]
    call = call_of(name)
    filled = path.removeprefix("/").format(kernel_id="K", kind="users", name="N", id="I")
    assert (call.method.lower(), call.path) == (method, filled)
    parameters = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
    assert {key for key, _ in call.query} == parameters
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    assert set(json.loads(call.body or "{}")) == set(body.get("properties", {}))


@pytest.mark.parametrize("name", COMPARED)
def test_an_answers_type_has_the_fields_and_types_of_the_contract(name: str) -> None:
    call, (media_type, schema) = call_of(name), answer_schema(DOCUMENTED[name][2])
    if media_type == "application/json":
        inline = schema if "properties" in schema else None
        told = fields(name, call.answer, inline) if inline else differences(name, call.answer, schema)
        assert told == []
    else:
        assert call.answer is {"text/plain": str, "": None}[media_type]


def test_the_declared_type_of_a_call_is_that_of_its_answer() -> None:
    """Compare the annotations that a type checker reads with the types that are checked at run time."""
    for name, made in MADE.items():
        (declared,) = get_args(get_type_hints(made)["return"])
        call = call_of(name)
        found = get_type_hints(call.answer)[call.field] if call.field else call.answer
        assert declared == (type(None) if found is None else found), name


@pytest.mark.parametrize("face", [AsyncClient, Client])
def test_both_faces_have_each_operation_with_its_arguments_and_its_words(face: type) -> None:
    for name, made in MADE.items():
        method = getattr(face, name)
        want, found = inspect.signature(made), inspect.signature(method)
        assert list(found.parameters.values())[1:] == list(want.parameters.values()), name
        assert want.return_annotation == f"Call[{found.return_annotation}]", name
        assert inspect.getdoc(method) == inspect.getdoc(made), name
        assert inspect.iscoroutinefunction(method) == (face is AsyncClient), name


def test_both_faces_have_the_same_methods() -> None:
    public = {face: {name for name in vars(face) if not name.startswith("_")} for face in (AsyncClient, Client)}
    assert public[Client] - public[AsyncClient] == {"close"}
    assert public[AsyncClient] == {*MADE, "events", *OF_JUPYTER}

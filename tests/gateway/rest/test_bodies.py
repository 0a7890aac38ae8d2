"""Bodies of a shape that Jupyter's own handlers do not expect: refused, and nothing starts."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Ask

SESSION = {"path": "a.ipynb", "type": "notebook", "name": "a"}


@pytest.mark.parametrize(
    "body",
    [[], "python3", 5, {"name": 5}, {"name": ["a"]}, {"kernel_id": 5}, {"kernel_id": ["a"]}, {"path": 5}, b"\xff\xfe"],
)
@pytest.mark.parametrize("who", ["alice", "ada"])
async def test_a_body_of_another_shape_is_refused(ask: Ask, who: str, body: Any) -> None:
    for path in ("api/kernels", "api/sessions"):
        answer = await ask(who, "POST", path, body=body)
        assert answer.status == 400
        assert answer.json["message"] != "Unhandled error"
    assert (await ask("ada", "GET", "api/kernels")).json == []


async def test_a_session_with_a_part_of_another_shape_is_refused(ask: Ask) -> None:
    session = (await ask("alice", "POST", "api/sessions", body=SESSION | {"kernel": None})).json
    assert session["kernel"]["name"] == "python3"
    for method, path, body in (
        ("POST", ("api/sessions",), SESSION | {"kernel": "python3"}),
        ("POST", ("api/sessions",), SESSION | {"kernel": {"name": 5}}),
        ("PATCH", ("api/sessions", session["id"]), {"kernel": 5}),
        ("PATCH", ("api/sessions", session["id"]), {"path": 5}),
    ):
        answer = await ask("alice", method, *path, body=body)
        assert answer.status == 400
        assert "of the request is not" in answer.json["message"] or "which is not" in answer.json["message"]

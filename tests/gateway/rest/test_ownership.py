"""Other users' kernels and sessions: a user finds out nothing about them."""

from __future__ import annotations

from typing import Any

from .conftest import Answer, Ask

NOTHING = "00000000-0000-0000-0000-000000000000"


async def start_kernel(ask: Ask, who: str) -> str:
    answer: Answer = await ask(who, "POST", "api/kernels", body={"name": "python3"})
    assert answer.status == 201, answer
    return str(answer.json["id"])


async def start_session(ask: Ask, who: str, path: str) -> Any:
    body = {"path": path, "type": "notebook", "kernel": {"name": "python3"}}
    answer: Answer = await ask(who, "POST", "api/sessions", body=body)
    assert answer.status == 201, answer
    return answer.json


async def test_lists_show_ones_own_and_administrators_everything(ask: Ask) -> None:
    alices, bobs = await start_session(ask, "alice", "a.ipynb"), await start_session(ask, "bob", "b.ipynb")
    want = {"alice": [alices], "bob": [bobs], "ada": [alices, bobs]}
    for who, sessions in want.items():
        kernels = (await ask(who, "GET", "api/kernels")).json
        listed = (await ask(who, "GET", "api/sessions")).json
        assert [kernel["id"] for kernel in kernels] == [session["kernel"]["id"] for session in sessions]
        assert [session["id"] for session in listed] == [session["id"] for session in sessions]


async def test_somebody_elses_kernel_and_none_answer_alike(ask: Ask) -> None:
    session = await start_session(ask, "alice", "a.ipynb")
    for path, theirs in (("api/kernels", session["kernel"]["id"]), ("api/sessions", session["id"])):
        for method in ("GET", "DELETE"):
            found = await ask("bob", method, path, theirs)
            nothing = await ask("bob", method, path, NOTHING)
            assert found.status == nothing.status == 404
            assert found.body == nothing.body.replace(NOTHING.encode(), theirs.encode())


async def test_the_same_path_of_two_users_is_two_sessions(ask: Ask) -> None:
    alices, bobs = await start_session(ask, "alice", "same.ipynb"), await start_session(ask, "bob", "same.ipynb")
    adas = await start_session(ask, "ada", "same.ipynb")
    assert len({session["kernel"]["id"] for session in (alices, bobs, adas)}) == 3
    assert (await start_session(ask, "bob", "same.ipynb"))["id"] == bobs["id"]


async def test_a_session_cannot_be_bound_to_somebody_elses_kernel(ask: Ask) -> None:
    kernel, bobs = await start_kernel(ask, "alice"), await start_session(ask, "bob", "b.ipynb")
    body = {"path": "c.ipynb", "type": "notebook", "kernel": {"id": kernel}}
    assert (await ask("bob", "POST", "api/sessions", body=body)).status == 409
    assert (await ask("bob", "PATCH", "api/sessions", bobs["id"], body={"kernel": {"id": kernel}})).status == 400
    assert (await ask("bob", "GET", "api/sessions", bobs["id"])).json["kernel"]["id"] == bobs["kernel"]["id"]
    assert (await ask("alice", "GET", "api/kernels", kernel)).status == 200


async def test_an_administrator_may_end_anybodys_kernel(ask: Ask) -> None:
    kernel = await start_kernel(ask, "alice")
    assert (await ask("ada", "DELETE", "api/kernels", kernel)).status == 204
    assert (await ask("alice", "GET", "api/kernels", kernel)).status == 404


async def test_what_a_kernel_showed_is_told_as_ones_own_to_its_owner_alone(ask: Ask) -> None:
    kernel = await start_kernel(ask, "alice")
    share = ("PUT", "aliquot/api/v1/kernels", kernel, "shares/users/bob")
    assert (await ask("alice", *share, body={"access": "write"})).status == 200
    for who, is_own in (("alice", True), ("bob", False), ("ada", False)):
        answer = await ask(who, "GET", "aliquot/api/v1/kernels", kernel, "outputs")
        assert (answer.status, answer.json["is_own"]) == (200, is_own), who


async def test_identity_is_the_tokens_whatever_the_client_says(ask: Ask) -> None:
    said = {"X-Forwarded-User": "ada", "Remote-User": "ada", "Cookie": "username=ada"}
    body = {"name": "python3", "env": {"KERNEL_USERNAME": "ada"}, "username": "ada"}
    answer = await ask("bob", "POST", "api/kernels", body=body, headers=said, params={"user": "ada"})
    assert answer.status == 201
    assert (await ask("alice", "GET", "api/kernels", answer.json["id"])).status == 404
    me = (await ask("bob", "GET", "api/me", headers=said)).json["identity"]
    assert (me["username"], me["role"]) == ("bob", "user")


async def test_a_wrong_token_is_nobody(ask: Ask) -> None:
    for header in ("token wrong", "token a-token-of-alic", "Bearer ", "token " + "x" * 5000, "Basic YWxpY2U6"):
        answer = await ask("alice", "GET", "api/kernels", headers={"Authorization": header})
        assert answer.status == 403, header

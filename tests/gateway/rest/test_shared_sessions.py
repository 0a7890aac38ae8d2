"""Shared kernels over REST: rights of collaborators, owners of sessions, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Ask
from .test_contract import check
from .test_ownership import start_kernel, start_session

SHARE = "/aliquot/api/v1/kernels/{kernel_id}/shares/{kind}/{name}"


@pytest.fixture
def users() -> dict[str, Any]:
    """Return Alice, her friends Bob (by name) and Carol (by team), and an administrator."""
    told = {name: {"token": f"a-token-of-{name}"} for name in ("alice", "bob", "carol")}
    return {
        **told,
        "carol": {**told["carol"], "teams": ["vision"]},
        "ada": {"token": "a-token-of-ada", "role": "admin"},
    }


async def share(ask: Ask, kernel: str, kind: str, name: str, access: str, who: str = "alice") -> Any:
    return await ask(who, "PUT", "aliquot/api/v1/kernels", kernel, "shares", kind, name, body={"access": access})


async def test_a_share_is_given_changed_told_and_taken_back(ask: Ask) -> None:
    kernel = await start_kernel(ask, "alice")
    where = ("aliquot/api/v1/kernels", kernel, "shares")
    assert (await ask("bob", "GET", *where)).status == 404, "a kernel that he may not see is none"
    assert (await share(ask, kernel, "users", "bob", "read", who="bob")).status == 404
    report = check(await share(ask, kernel, "users", "bob", "read"), SHARE, "put")
    again = check(await share(ask, kernel, "users", "bob", "write"), SHARE, "put")
    team = check(await share(ask, kernel, "teams", "vision", "read", who="ada"), SHARE, "put")
    bobs = {"kind": "user", "name": "bob", "access": "write"}
    assert report["shares"] == [{**bobs, "access": "read"}]
    assert again["shares"] == [bobs]
    assert team["shares"] == [bobs, {"kind": "team", "name": "vision", "access": "read"}]
    for method, more, body in (("GET", (), None), ("PUT", ("users", "carol"), {"access": "write"})):
        refused = await ask("bob", method, *where, *more, body=body)
        assert (refused.status, "shared with you to use by alice" in refused.json["message"]) == (403, True)
    seen = {who: (await ask(who, "GET", "aliquot/api/v1/kernels")).json["kernels"] for who in ("alice", "bob", "carol")}
    assert {who: [k["access"] for k in found] for who, found in seen.items()} == {
        "alice": ["own"],
        "bob": ["write"],
        "carol": ["read"],
    }
    assert [seen[who][0]["shares"] for who in seen] == [team["shares"], None, None]
    gone = check(await ask("alice", "DELETE", *where, "users", "bob"), SHARE, "delete")
    assert [one["name"] for one in gone["shares"]] == ["vision"]
    missing = await ask("alice", "DELETE", *where, "users", "bob")
    assert (missing.status, "it is shared with team vision" in missing.json["message"]) == (404, True)
    assert (await ask("bob", "GET", *where)).status == 404
    assert (await ask("bob", "GET", "api/kernels", kernel)).status == 404


REFUSED = (
    ("users", "alice", {"access": "read"}, 400, "owns it"),
    ("users", "*", {"access": "read"}, 400, "Name users, or a team"),
    ("users", " ", {"access": "read"}, 400, "printable text"),
    ("users", "bob", {"access": "own"}, 400, "read or write"),
    ("users", "bob", {"access": "read", "more": 1}, 400, "access"),
    ("users", "bob", {}, 400, "access"),
    ("users", "bob", [], 400, "not a JSON object"),
    ("groups", "bob", {"access": "read"}, 404, ""),
)


async def test_what_cannot_be_shared_is_refused_in_words(ask: Ask) -> None:
    kernel = await start_kernel(ask, "alice")
    for kind, name, body, status, said in REFUSED:
        answer = await ask("alice", "PUT", "aliquot/api/v1/kernels", kernel, "shares", kind, name, body=body)
        assert (answer.status, said in answer.body.decode()) == (status, True), answer
    assert (await ask("alice", "GET", "aliquot/api/v1/kernels", kernel, "shares")).json == {"shares": []}


async def test_a_collaborators_session_is_his_own_and_its_end_leaves_the_kernel(ask: Ask) -> None:
    hers = await start_session(ask, "alice", "hers.ipynb")
    kernel = hers["kernel"]["id"]
    await share(ask, kernel, "users", "bob", "write")
    await share(ask, kernel, "users", "ada", "read")
    body = {"path": "his.ipynb", "type": "notebook", "kernel": {"id": kernel}}
    made = {
        who: (await ask(who, "POST", "api/sessions", body={**body, "path": f"{who}.ipynb"})) for who in ("bob", "ada")
    }
    assert {who: (answer.status, answer.json["kernel"]["owner"]) for who, answer in made.items()} == {
        "bob": (201, "alice"),
        "ada": (201, "alice"),
    }
    listed = {who: [s["path"] for s in (await ask(who, "GET", "api/sessions")).json] for who in ("alice", "bob", "ada")}
    assert listed == {
        "alice": ["hers.ipynb"],
        "bob": ["bob.ipynb"],
        "ada": ["hers.ipynb", "bob.ipynb", "ada.ipynb"],
    }
    his, theirs = made["bob"].json["id"], hers["id"]
    assert (await ask("bob", "GET", "api/sessions", theirs)).status == 404
    assert (await ask("bob", "DELETE", "api/sessions", theirs)).status == 404
    assert (await ask("bob", "PATCH", "api/sessions", his, body={"path": "renamed.ipynb"})).status == 200
    told = (await ask("alice", "GET", "aliquot/api/v1/kernels", kernel)).json
    assert (told["label"], told["access"]) == ("hers.ipynb", "own")
    assert (await ask("bob", "DELETE", "api/kernels", kernel)).status == 403
    moved = await ask("bob", "PATCH", "api/sessions", his, body={"kernel": {"name": "python3"}})
    assert moved.json["kernel"]["id"] != kernel
    assert (await ask("ada", "DELETE", "api/sessions", made["ada"].json["id"])).status == 204
    assert (await ask("alice", "GET", "api/kernels", kernel)).json["execution_state"] != "dead"
    assert (await ask("alice", "DELETE", "api/sessions", theirs)).status == 204
    assert (await ask("alice", "GET", "api/kernels", kernel)).status == 404, "her own session's end is its end"


async def test_nobody_takes_the_id_of_somebody_elses_kernel_that_ended(ask: Ask) -> None:
    """Try to take the id: a collaborator knows it, and the owner's notebook comes back to it."""
    kernel = await start_kernel(ask, "alice")
    await share(ask, kernel, "users", "bob", "read")
    assert (await ask("alice", "DELETE", "api/kernels", kernel)).status == 204
    wish = {"name": "python3", "kernel_id": kernel}
    session = {"path": "a.ipynb", "type": "notebook", "kernel": {"name": "python3", "id": kernel}}
    for path, body in (("api/kernels", wish), ("api/sessions", session)):
        assert (await ask("bob", "POST", path, body=body)).status == 409, path
    assert (await ask("bob", "GET", "api/kernels")).json == []
    again = await ask("alice", "POST", "api/kernels", body=wish)
    assert (again.status, again.json["id"]) == (201, kernel), "her own"


async def test_a_path_of_a_kernel_that_was_taken_back_is_free_for_another(ask: Ask) -> None:
    kernel = await start_kernel(ask, "alice")
    await share(ask, kernel, "teams", "vision", "read")
    body = {"path": "c.ipynb", "type": "notebook", "kernel": {"id": kernel}}
    first = (await ask("carol", "POST", "api/sessions", body=body)).json
    assert (await ask("carol", "POST", "api/sessions", body=body)).json["id"] == first["id"]
    await ask("alice", "DELETE", "aliquot/api/v1/kernels", kernel, "shares", "teams", "vision")
    assert (await ask("carol", "GET", "api/sessions")).json == []
    assert (await ask("carol", "POST", "api/sessions", body=body)).status == 409
    other = await start_session(ask, "carol", "c.ipynb")
    assert other["kernel"]["id"] != kernel


async def test_a_user_in_gateway_mode_is_listed_what_is_shared_with_him_by_name(ask: Ask) -> None:
    kernels = [await start_kernel(ask, who) for who in ("alice", "alice", "ada")]
    await share(ask, kernels[0], "users", "ada", "read")
    listed = (await ask("ada", "GET", "api/kernels", params={"owner": "me"})).json
    assert [(k["id"], k.get("owner"), k.get("access")) for k in listed] == [
        (kernels[0], "alice", "own"),
        (kernels[2], None, None),
    ]

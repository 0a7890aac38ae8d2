"""Notebooks that get another kernel.

The old kernel counts for no limit, and ends only when the new one has its grant.
"""

from __future__ import annotations

from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from jupyter_aliquot.provisioner.terminations import asked_by_user

from .conftest import Ask
from .fake_agent import GIB, FakeAgent, device
from .test_contract import until


@pytest.fixture
def jp_server_config(jp_server_config: Config) -> Config:
    jp_server_config.Aliquot.user_limit_gpus = 0.9
    jp_server_config.Limits = Config({"kernels_per_user": 1})
    return jp_server_config


async def a_session(ask: Ask, an_agent: FakeAgent) -> Any:
    """Start Alice's notebook with half a GPU: only 0.4 are left under her limit."""
    an_agent.devices = [device(reserved_bytes=0, reserved_hundredths=0)]
    an_agent.gives_room = True
    await an_agent.start()
    body = {"path": "a.ipynb", "name": "a", "type": "notebook", "kernel": {"name": "python3.gpu-0.5"}}
    answer = await ask("alice", "POST", "api/sessions", body=body)
    assert answer.status == 201, answer
    await until_resident(ask, answer.json["kernel"]["id"])
    return answer.json


async def until_resident(ask: Ask, kernel_id: str) -> None:
    async def state() -> Any:
        return (await ask("alice", "GET", "aliquot/api/v1/kernels", kernel_id)).json.get("state")

    await until(state, lambda state: state == "on_gpu")


async def until_alone(ask: Ask, kernel_id: str) -> None:
    async def kernels() -> Any:
        return [kernel["id"] for kernel in (await ask("alice", "GET", "api/kernels")).json]

    await until(kernels, lambda found: found == [kernel_id])


async def pick(ask: Ask, session: Any, name: str, **more: Any) -> Any:
    return await ask("alice", "PATCH", "api/sessions", session["id"], body={"kernel": {"name": name}, **more})


async def test_at_every_limit_a_notebook_gets_another_kernel_and_the_old_one_ends(
    ask: Ask, an_agent: FakeAgent, a_server: ServerApp
) -> None:
    session = await a_session(ask, an_agent)
    changed = await pick(ask, session, "python3.gpu-0.9")
    assert (changed.status, changed.json["kernel"]["name"]) == (200, "python3.gpu-0.9"), changed.body
    await until_alone(ask, changed.json["kernel"]["id"])

    async def ended() -> Any:
        await ask("alice", "GET", "api")
        return a_server.kernel_manager.endings.remembered.of(session["kernel"]["id"])

    assert (await until(ended, bool)).ending.message == "the kernel was ended by its owner alice"
    plain = await pick(ask, session, "python3")
    assert plain.status == 200, plain.body
    await until_alone(ask, plain.json["kernel"]["id"])
    again = await pick(ask, session, "python3.gpu-0.25")
    await until_alone(ask, again.json["kernel"]["id"])


REFUSED = (
    ("python3.gpu-0.95", {}, 403, "alice holds 0, waits for 0 and may have 0.9 in all"),
    ("python3.gpu-4", {}, 409, "Requested 4 GPUs"),
    ("python3.gpu-0.333", {}, 404, "python3.gpu-0.333"),
    ("nothing.gpu-0.25", {}, 404, "nothing"),
    ("nothing", {}, 404, "nothing"),
    ("python3.gpu-0.25", {"path": "x" * 5000}, 400, "path has 5000 letters"),
)


async def test_a_refusal_says_why_with_its_own_status_and_costs_nothing(ask: Ask, an_agent: FakeAgent) -> None:
    session = await a_session(ask, an_agent)
    for name, more, status, said in REFUSED:
        answer = await pick(ask, session, name, **more)
        assert (answer.status, said in answer.json["message"]) == (status, True), answer
    assert (await ask("alice", "GET", "api/sessions")).json[0]["kernel"]["id"] == session["kernel"]["id"]
    await until_alone(ask, session["kernel"]["id"])
    theirs = await ask("bob", "PATCH", "api/sessions", session["id"], body={"kernel": {"name": "python3"}})
    assert theirs.status == 404
    beside = await ask("alice", "POST", "api/kernels", body={"name": "python3"})
    assert (beside.status, "alice has 1 kernels, and may have 1" in beside.json["message"]) == (403, True)


async def test_while_the_new_one_waits_the_old_one_runs_and_stays_if_that_is_given_up(
    ask: Ask, an_agent: FakeAgent
) -> None:
    session = await a_session(ask, an_agent)
    old = session["kernel"]["id"]
    # Another gateway's kernels hold the other half: the old kernel's room alone is too small for
    # each pick.
    an_agent.devices = [device(reserved_bytes=16 * GIB, reserved_hundredths=100)]
    an_agent.gives_room = False
    an_agent.tell_changed()
    waiting = (await pick(ask, session, "python3.gpu-0.8")).json["kernel"]
    assert waiting["replaces"] == [old]
    smaller = (await pick(ask, session, "python3.gpu-0.7")).json["kernel"]
    assert sorted(smaller["replaces"]) == sorted([old, waiting["id"]]), "in the place of both"

    async def states() -> Any:
        kernels = (await ask("alice", "GET", "aliquot/api/v1/kernels")).json["kernels"]
        return {kernel["id"]: kernel["state"] for kernel in kernels if kernel["state"] != "ended"}

    await until(states, lambda found: found == {old: "on_gpu", smaller["id"]: "queued"})
    assert (await ask("alice", "DELETE", "api/kernels", smaller["id"])).status == 204
    assert await states() == {old: "on_gpu"}
    bound = await ask("alice", "POST", "api/sessions", body={**_NOTEBOOK, "kernel": {"id": old}})
    assert bound.status == 201, "the notebook takes it back"
    last = (await pick(ask, bound.json, "python3.gpu-0.6")).json["kernel"]["id"]
    an_agent.devices = [device(reserved_bytes=0, reserved_hundredths=0)]
    an_agent.gives_room = True
    an_agent.tell_changed()
    await until_resident(ask, last)
    await until_alone(ask, last)


_NOTEBOOK = {"path": "a.ipynb", "name": "a", "type": "notebook"}


async def test_nobody_has_a_kernel_of_somebody_else_replaced(ask: Ask, an_agent: FakeAgent) -> None:
    session = await a_session(ask, an_agent)
    old = session["kernel"]["id"]
    body = {"name": "python3.gpu-0.25", "env": {"KERNEL_REPLACES": old}}
    for who in ("bob", "ada"):
        started = await ask(who, "POST", "api/kernels", body=body)
        assert (started.status, "replaces" in started.json) == (201, False)

        async def state(kernel_id: str = started.json["id"]) -> Any:
            return (await ask("ada", "GET", "aliquot/api/v1/kernels", kernel_id)).json["state"]

        await until(state, lambda found: found == "on_gpu")
    await until_alone(ask, old)
    mine = await ask("alice", "POST", "api/kernels", body=body)
    assert (mine.status, mine.json["replaces"]) == (201, [old]), "as her own server asks in gateway mode"
    await until_alone(ask, mine.json["id"])


async def test_who_names_a_kernel_to_replace_has_no_more_of_them_than_he_may(
    ask: Ask, an_agent: FakeAgent, a_server: ServerApp
) -> None:
    session = await a_session(ask, an_agent)
    body = {"name": "python3", "env": {"KERNEL_REPLACES": session["kernel"]["id"]}}
    plain = await ask("alice", "POST", "api/kernels", body=body)
    assert (plain.status, plain.json["replaces"]) == (201, [session["kernel"]["id"]]), "nobody else ends the old one"
    await until_alone(ask, plain.json["id"])


async def test_a_replaced_kernel_that_ends_by_itself_meanwhile_costs_nobody_the_new_one(
    ask: Ask, an_agent: FakeAgent, a_server: ServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await a_session(ask, an_agent)
    an_agent.gives_room = False
    assert (await pick(ask, session, "python3.gpu-0.8")).json["kernel"]["replaces"] == [session["kernel"]["id"]]
    manager: Any = a_server.kernel_manager
    finish = manager._finish_start

    async def finish_late(kernel_id: str) -> None:
        await finish(kernel_id)
        await manager.end_kernel(session["kernel"]["id"], asked_by_user("alice", "alice"))

    monkeypatch.setattr(manager, "_finish_start", finish_late)
    plain = await pick(ask, session, "python3")
    assert plain.status == 200, plain.body
    await until_alone(ask, plain.json["kernel"]["id"])


async def test_a_dry_run_of_an_administrator_ends_nobody_elses_kernel_as_the_start_ends_none(
    ask: Ask, an_agent: FakeAgent
) -> None:
    session = await a_session(ask, an_agent)
    old = session["kernel"]["id"]
    an_agent.gives_room = False
    an_agent.devices = [device(reserved_hundredths=75)]
    body = {"path": "b.ipynb", "name": "b", "type": "notebook", "kernel": {"id": old}}
    looks_on = await ask("ada", "POST", "api/sessions", body=body)
    dry = await ask("ada", "GET", "aliquot/api/v1/dry-run", params={"gpus": 0.7, "replaces": old})
    changed = await ask(
        "ada", "PATCH", "api/sessions", looks_on.json["id"], body={"kernel": {"name": "python3.gpu-0.7"}}
    )
    assert "replaces" not in changed.json["kernel"], "alice's kernel goes on"
    assert dry.json["outcome"] == "queued"

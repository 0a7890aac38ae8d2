"""The administrator's REST and commands on a real server: holders, messages to owners, ends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp

from jupyter_aliquot.gateway.api.base import SETTING
from jupyter_aliquot.gateway.auth.principals import User

from .conftest import Ask
from .fake_agent import FakeAgent, kernel
from .test_changes import a_kernel_of_alice
from .test_contract import check, until
from .test_team_quotas import run

TEXT = "Please end it by six: the GPU is reserved for a course."


async def holders(ask: Ask) -> Any:
    answer = await ask("ada", "GET", "aliquot/api/v1/holders")
    assert answer.status == 200, answer.body
    return check(answer, "/aliquot/api/v1/holders")


async def message_of(ask: Ask, who: str, kernel_id: str) -> Any:
    return (await ask(who, "GET", "aliquot/api/v1/kernels", kernel_id)).json["owner_message"]


async def test_an_administrator_sees_each_kernel_with_its_processes_and_its_users_sums(
    ask: Ask, an_agent: FakeAgent
) -> None:
    an_agent.kernels = [kernel("elsewhere", "bob")]
    kernel_id = await a_kernel_of_alice(ask, an_agent)

    def is_whole(report: Any) -> bool:
        """Return whether the agent's news is in, and the kernel's process has grown to a Python's."""
        large = [one for one in report["kernels"] if ((one["host"] or {}).get("memory_bytes") or 0) > 10 << 20]
        return len(report["kernels"]) == 2 and [one["id"] for one in large] == [kernel_id]

    told = await until(lambda: holders(ask), is_whole)
    seen = {one["id"]: one for one in told["kernels"]}
    assert set(seen) == {kernel_id, "elsewhere"}
    assert seen["elsewhere"]["host"] is None, "another program's process is not this server's"
    assert {user["name"]: user["gpus"] for user in told["users"]} == {"alice": 0.25, "bob": 0.25}
    assert told["node"]["agent"] == "ok"
    assert len(told["devices"]) == 1
    refused = await ask("alice", "GET", "aliquot/api/v1/holders")
    assert (refused.status, "administrators" in refused.json["message"]) == (403, True)


async def test_a_message_reaches_the_owner_alone_and_once_as_an_event(
    ask: Ask, an_agent: FakeAgent, a_server: ServerApp, caplog: pytest.LogCaptureFixture
) -> None:
    kernel_id = await a_kernel_of_alice(ask, an_agent)
    path = f"aliquot/api/v1/kernels/{kernel_id}"
    assert (await ask("alice", "PUT", f"{path}/shares/users/bob", body={"access": "read"})).status == 200
    events = a_server.web_app.settings[SETTING].events
    listener = events.listen(User("alice", "user"))
    a_server.log.propagate = True
    answer = await ask("ada", "POST", f"{path}/message", body={"text": f"  {TEXT} "})
    assert answer.status == 204, answer.body
    told = await message_of(ask, "alice", kernel_id)
    assert (told["text"], told["by"]) == (TEXT, "ada")
    assert await message_of(ask, "bob", kernel_id) is None
    while (event := await asyncio.wait_for(listener.events.get(), 30))["kind"] != "message":
        pass
    assert (event["kernel_id"], event["owner"]) == (kernel_id, "alice")
    events.tell()
    kinds = [listener.events.get_nowait()["kind"] for _ in range(listener.events.qsize())]
    assert "message" not in kinds
    events.forget(listener)
    line = f"kernel={kernel_id} owner=alice message_by=ada text={TEXT!r}"
    assert line in caplog.text


async def test_an_owner_sees_a_message_about_a_kernel_without_a_gpu(ask: Ask) -> None:
    started = await ask("alice", "POST", "api/kernels", body={"name": "python3"})
    assert started.status == 201, started.body
    kernel_id = started.json["id"]
    assert (await ask("ada", "POST", f"aliquot/api/v1/kernels/{kernel_id}/message", body={"text": TEXT})).status == 204
    listed = (await ask("alice", "GET", "aliquot/api/v1/status")).json["kernels"]
    assert [one["owner_message"]["text"] for one in listed if one["id"] == kernel_id] == [TEXT]


WRONG_MESSAGES = (
    ({}, "'text' of the body is missing"),
    ({"text": ""}, "Use a text that is not empty"),
    ({"text": " \t"}, "Use a text that is not empty"),
    ({"text": 3}, "Use a text that is not empty"),
    ({"text": "a\nb"}, "without control characters"),
    ({"text": "x" * 501}, "Requested a message of 501 characters. Use at most 500"),
    ({"text": "a", "to": "bob"}, "unknown fields ['to']"),
)


async def test_a_message_that_cannot_be_is_refused(ask: Ask, an_agent: FakeAgent) -> None:
    kernel_id = await a_kernel_of_alice(ask, an_agent)
    for body, want in WRONG_MESSAGES:
        answer = await ask("ada", "POST", f"aliquot/api/v1/kernels/{kernel_id}/message", body=body)
        assert (answer.status, want in answer.json["message"]) == (400, True), (body, answer.body)
        assert await message_of(ask, "alice", kernel_id) is None, body


async def test_a_kernel_of_another_program_has_no_owner_messages(ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("elsewhere", "alice")]
    await an_agent.start()
    await until(
        lambda: ask("ada", "GET", "aliquot/api/v1/kernels/elsewhere"), lambda answer: bool(answer.status == 200)
    )
    answer = await ask("ada", "POST", "aliquot/api/v1/kernels/elsewhere/message", body={"text": TEXT})
    assert (answer.status, "another program started it" in answer.json["message"]) == (409, True), answer.body


async def test_the_commands_show_holders_write_to_an_owner_and_end_a_kernel(
    ask: Ask, a_server: Any, an_agent: FakeAgent
) -> None:
    kernel_id = await a_kernel_of_alice(ask, an_agent)
    shown = await run(a_server, "ada", "holders")
    assert (shown.returncode, "alice" in shown.stdout) == (0, True), shown.stderr
    told = json.loads((await run(a_server, "ada", "holders", "--json")).stdout)
    assert [one["id"] for one in told["kernels"]] == [kernel_id]
    refused = await run(a_server, "alice", "holders")
    assert (refused.returncode, "administrators" in refused.stderr) == (1, True)
    wordless = await run(a_server, "ada", "message", kernel_id)
    assert (wordless.returncode, "name a text, in quotes" in wordless.stderr) == (2, True)
    sent = await run(a_server, "ada", "message", kernel_id, TEXT)
    assert (sent.returncode, "sent to its owner" in sent.stdout) == (0, True), sent.stderr
    assert (await message_of(ask, "alice", kernel_id))["text"] == TEXT
    denied = await run(a_server, "bob", "end", kernel_id)
    assert denied.returncode == 1
    ended = await run(a_server, "ada", "end", kernel_id)
    assert (ended.returncode, "was ended" in ended.stdout) == (0, True), ended.stderr
    assert (await ask("alice", "GET", "api/kernels", kernel_id)).status == 404

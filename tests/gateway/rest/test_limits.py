"""Limits against abuse, at the doors of a real server.

Each refusal says what was requested, what limits it, and what to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any

import pytest
from jupyter_client.session import Session
from jupyter_server.serverapp import ServerApp
from tornado.websocket import WebSocketClosedError
from traitlets.config import Config

from .conftest import TOKENS, Ask
from .fake_agent import FakeAgent

WAITS = {"name": "python3.gpu-0.25"}
BURST = 30


@pytest.fixture
def jp_server_config(jp_server_config: Config) -> Config:
    jp_server_config.Limits = Config(
        {
            "kernels_per_user": 4,
            "queued_per_user": 3,
            "queue_length": 5,
            # The budget of requests does not refill while a test runs.
            "requests_per_second": 0.001,
            "requests_burst": BURST,
            "message_bytes": 20_000,
            "body_bytes": 5_000,
            "websockets_per_user": 2,
            "output_bytes": 50_000,
        }
    )
    return jp_server_config


async def refusals(ask: Ask, limit: str) -> float:
    text = (await ask("ada", "GET", "aliquot/api/v1/metrics")).body.decode()
    line = next(line for line in text.splitlines() if line.startswith(f'aliquot_limit_refusals_total{{limit="{limit}"'))
    return float(line.split()[-1])


async def test_kernels_and_places_in_the_queue_are_counted_and_users_hear_of_their_own_only(
    ask: Ask, an_agent: FakeAgent
) -> None:
    await an_agent.start()  # it has no capacity: kernels wait
    for _ in range(3):
        assert (await ask("alice", "POST", "api/kernels", body=WAITS)).status == 201
    own = await ask("alice", "POST", "api/kernels", body=WAITS)
    assert own.status == 403
    assert own.json["message"].startswith("3 kernels of alice wait for a GPU")
    assert (await ask("alice", "POST", "api/kernels", body={"name": "python3"})).status == 201, "one without a GPU"
    session = {"path": "a.ipynb", "type": "notebook", "kernel": {"name": "python3"}}
    for path, body in (("api/kernels", {"name": "python3"}), ("api/sessions", session)):
        full = await ask("alice", "POST", path, body=body)
        assert (full.status, "alice has 4 kernels, and may have 4 at once" in full.json["message"]) == (403, True), path
    for _ in range(2):
        assert (await ask("bob", "POST", "api/kernels", body=WAITS)).status == 201
    everybodys = await ask("bob", "POST", "api/kernels", body=WAITS)
    assert everybodys.status == 403
    assert everybodys.json["message"].startswith("5 kernels wait for a GPU")
    assert "alice" not in everybodys.json["message"]
    assert (await ask("ada", "POST", "api/kernels", body=WAITS)).status == 201, "an administrator's waits beside them"
    for limit, count in {"queued_per_user": 1, "kernels_per_user": 2, "queue_length": 1}.items():
        assert await refusals(ask, limit) == count, limit


async def test_who_asks_too_often_hears_when_to_come_again_and_is_alone_with_it(
    ask: Ask, a_server: ServerApp, caplog: pytest.LogCaptureFixture
) -> None:
    statuses = [(await ask("alice", "GET", "api/kernels")).status for _ in range(BURST)]
    assert set(statuses) == {200}
    for path in ("api/kernels", "aliquot/api/v1/status", "login", "api/kernels/x/channels"):
        refused = await ask("alice", "GET", path)
        assert (refused.status, refused.media_type) == (429, "application/json"), path
        assert 900 <= int(refused.headers["Retry-After"]) <= 1000
        limit = f"Too many requests from alice: 0.001 a second are allowed, after {BURST} at once"
        assert refused.json["message"].startswith(limit)
        assert "Try again in" in refused.json["message"]
    assert (await ask("alice", "POST", "api/kernels", body={"name": "python3"})).status == 429
    assert (await ask("alice", "WEBSOCKET", "aliquot/api/v1/events")).status == 429
    assert (await ask("bob", "GET", "api/kernels")).status == 200
    assert (await ask("nobody", "GET", "api")).status == 200, "the version is for everybody"
    for _ in range(2 * BURST):
        assert (await ask("ada", "GET", "api/kernels")).status == 200
    assert await refusals(ask, "requests_per_second") == 6
    assert len([one for one in caplog.records if "limit=requests_per_second" in one.getMessage()]) == 1
    assert not [one for one in caplog.records if "429" in one.getMessage()], "no line for each"


async def test_the_unknown_are_counted_by_their_address(ask: Ask) -> None:
    answers = [(await ask("nobody", "GET", "api/kernels")).status for _ in range(BURST + 2)]
    assert answers == [403] * BURST + [429] * 2
    wrong = await ask("nobody", "GET", "api/kernels", headers={"Authorization": "token wrong"})
    assert (wrong.status, "from this address" in wrong.json["message"]) == (429, True)
    assert (await ask("alice", "GET", "api/kernels")).status == 200, "who has a token is no stranger"


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(ask: Ask) -> None:
    large = json.dumps({"name": "python3", "path": "x" * 6000}).encode()
    for who in ("alice", "ada", "nobody"):
        for method, path in (("POST", "api/kernels"), ("POST", "api/sessions"), ("PUT", "aliquot/api/v1/folders/x")):
            answer = await ask(who, method, path, body=large)
            assert answer.status == 413, (who, path)
            limit = f"a body of {len(large)} bytes, but this server reads at most 5000 (c.Limits.body_bytes)"
            assert limit in str(answer.json)
    assert await refusals(ask, "body_bytes") == 9
    # Files are uploads of administrators; Jupyter has a limit of its own for them.
    body = {"type": "file", "format": "text", "content": "x" * 6000}
    assert (await ask("ada", "PUT", "api/contents/large.txt", body=body)).status == 201


async def test_a_length_that_is_no_number_to_python_is_too_large(ask: Ask, jp_http_port: int, jp_base_url: str) -> None:
    assert (await ask("nobody", "GET", "api")).status == 200
    reader, writer = await asyncio.open_connection("127.0.0.1", jp_http_port)
    head = f"POST {jp_base_url}api/kernels HTTP/1.1\r\nHost: localhost\r\nContent-Length: {'9' * 5000}\r\n\r\n"
    writer.write(head.encode())
    assert b" 413 " in await asyncio.wait_for(reader.readline(), 60)
    writer.close()


async def test_a_body_of_unknown_length_is_read_up_to_the_limit(ask: Ask) -> None:
    """Send a body of unknown length, as tornado's client does for a POST without a body.

    Other clients do so, too.
    """
    kernel = (await ask("alice", "POST", "api/kernels", body={"name": "python3"})).json["id"]
    assert (await ask("alice", "POST", "api/kernels", kernel, "interrupt")).status == 204

    async def produce(write: Any) -> None:
        for _ in range(6):
            await write(b"x" * 1000)

    answer = await ask("alice", "POST", "api/kernels", body_producer=produce)
    assert answer.status in (400, 599), "400, or the connection ended while it was sent"
    assert len((await ask("alice", "GET", "api/kernels")).json) == 1


async def test_sessions_of_a_kernel_and_their_names_are_bounded(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bound the sessions: the server reads all for each user's list, and keeps all on disk."""
    monkeypatch.setattr("jupyter_aliquot.gateway.kernels.sessions._MOST_SESSIONS", 2)
    kernel = (await ask("alice", "POST", "api/kernels", body={"name": "python3"})).json["id"]

    async def begin(who: str, path: str) -> Any:
        return await ask(who, "POST", "api/sessions", body={"path": path, "type": "notebook", "kernel": {"id": kernel}})

    first = await begin("alice", "1.ipynb")
    assert [first.status, (await begin("alice", "2.ipynb")).status] == [201, 201]
    third = await begin("alice", "3.ipynb")
    assert (third.status, "alice has 2 sessions of kernel" in third.json["message"]) == (403, True)
    assert (await begin("alice", "2.ipynb")).status == 201, "it is there"
    share = ("aliquot/api/v1/kernels", kernel, "shares", "users", "bob")
    assert (await ask("alice", "PUT", *share, body={"access": "read"})).status == 200
    assert [(await begin("bob", f"{number}.ipynb")).status for number in range(3)] == [201, 201, 403]
    long = "x" * 4097
    renamed = await ask("alice", "PATCH", "api/sessions", first.json["id"], body={"path": long})
    for answer in (await begin("alice", long), renamed):
        assert (answer.status, "path has 4097 letters" in answer.json["message"]) == (400, True)


async def a_socket(ask: Ask, jp_ws_fetch: Any) -> Any:
    kernel = (await ask("alice", "POST", "api/kernels", body={"name": "python3"})).json["id"]
    headers = {"Authorization": f"token {TOKENS['alice']}"}
    return await jp_ws_fetch("api", "kernels", kernel, "channels", headers=headers)


def kernel_info(padding: str = "") -> str:
    header = {"msg_id": f"m{len(padding)}", "msg_type": "kernel_info_request", "session": "s", "version": "5.3"}
    parts = {"parent_header": {}, "metadata": {"x": padding}, "content": {}, "buffers": [], "channel": "shell"}
    return json.dumps({"header": {**header, "username": "", "date": "2024-01-01T00:00:00Z"}, **parts})


async def test_open_websockets_are_counted_and_one_that_closes_makes_room(ask: Ask, jp_ws_fetch: Any) -> None:
    assert (await ask("alice", "GET", "aliquot/api/v1/status")).status == 200, "the server's extensions are started"

    async def opened(who: str) -> Any:
        return await jp_ws_fetch("aliquot/api/v1/events", headers={"Authorization": f"token {TOKENS[who]}"})

    first, _ = await opened("alice"), await opened("alice")
    full = await ask("alice", "WEBSOCKET", "aliquot/api/v1/events")
    assert (full.status, "alice has 2 websockets open, and may have 2" in full.json["message"]) == (403, True)
    for who in ("bob", "ada", "ada", "ada"):
        await opened(who)
    first.close()
    while await asyncio.wait_for(first.read_message(), 60) is not None:
        pass
    assert (await opened("alice")) is not None
    assert await refusals(ask, "websockets_per_user") == 1


async def test_a_message_that_is_too_large_closes_its_socket_and_says_why(ask: Ask, jp_ws_fetch: Any) -> None:
    socket = await a_socket(ask, jp_ws_fetch)
    await socket.write_message(kernel_info("x" * 15_000))
    while "kernel_info_reply" not in (message := await asyncio.wait_for(socket.read_message(), 60)):
        assert message is not None
    with contextlib.suppress(
        WebSocketClosedError
    ):  # with short buffers the client gets the answer before it has sent all
        await socket.write_message(kernel_info("x" * 6_000_000))
    while await asyncio.wait_for(socket.read_message(), 60) is not None:
        pass
    assert socket.close_code == 1009
    assert socket.close_reason == "message too big: at most 20000 bytes (c.Limits.message_bytes); send it in parts"
    assert await refusals(ask, "message_bytes") == 1


async def test_an_output_that_is_too_large_is_left_out_its_cell_says_so_and_the_next_one_works(
    ask: Ask, jp_ws_fetch: Any
) -> None:
    socket = await a_socket(ask, jp_ws_fetch)
    shown: dict[str, str] = {}
    cells = {"large": "print('x' * 60_000)", "large as UTF-8": "print('漢' * 20_000)", "next": "print('small')"}
    for cell, code in cells.items():
        request = Session().msg("execute_request", {"code": code, "silent": False, "store_history": False})
        await socket.write_message(json.dumps({**request, "channel": "shell"}, default=str))
        shown[cell], is_answered = "", False
        while not (shown[cell] and is_answered):
            message = json.loads(await asyncio.wait_for(socket.read_message(), 90))
            if message["parent_header"].get("msg_id") == request["header"]["msg_id"]:
                is_answered = is_answered or message["msg_type"] == "execute_reply"
                shown[cell] += message["content"].get("text", "")
    socket.close()
    for cell in ("large", "large as UTF-8"):
        assert "bytes is not shown: at most 50000 are sent at once (c.Limits.output_bytes)" in shown[cell]
        assert ("xxx" in shown[cell], "漢漢" in shown[cell]) == (False, False)
    assert shown["next"] == "small\n"
    assert await refusals(ask, "output_bytes") == 2


class StillClock:
    """A clock that moves only with its sleepers.

    On a slow machine, messages might never come too fast by its own clock.
    """

    def __init__(self) -> None:
        self._now = time.monotonic()

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += max(seconds, 0.001)  # a step below the clock's precision would never pass
        await asyncio.sleep(0)


async def test_messages_that_come_too_fast_are_read_later_and_none_is_lost(
    ask: Ask, jp_ws_fetch: Any, a_server: ServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = a_server.web_app.settings["aliquot_limits"]
    guard.limits.messages_per_second = 20.0
    monkeypatch.setattr(guard, "clock", StillClock())
    socket = await a_socket(ask, jp_ws_fetch)
    for number in range(30):
        await socket.write_message(kernel_info("x" * number))
    seen = set()
    while len(seen) < 30:
        message = json.loads(await asyncio.wait_for(socket.read_message(), 90))
        if message["msg_type"] == "kernel_info_reply":
            seen.add(message["parent_header"]["msg_id"])
    assert await refusals(ask, "messages_per_second") == 10
    socket.close()

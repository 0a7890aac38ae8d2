"""Questions to /aliquot/api/v1 of the user's own server: the gateway's answers, by user.

The tests include a gateway without Aliquot.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest
import websocket

from .conftest import TOKENS, Server
from .test_remote_kernels import NOTHING, a_session


def a_stream(server: Server, seconds: float = 90) -> websocket.WebSocket:
    return websocket.create_connection(
        f"ws://127.0.0.1:{server.port}/aliquot/api/v1/events",
        timeout=seconds,
        header=[f"Authorization: token {server.token}"],
    )


def test_dry_runs_and_outputs_are_the_gateways(a_gateway: Server, own_servers: Callable[..., list[Server]]) -> None:
    alices, bobs = own_servers("alice", "bob")
    kernel_id = a_session(alices)["kernel"]["id"]
    query = "aliquot/api/v1/dry-run?gpus=0.3&memory=6GiB&priority=low"
    want = a_gateway.ask("GET", query, token=TOKENS["alice"])
    told = alices.ask("GET", query)
    assert (told.status, told.body) == (200, want.body)
    assert told.body["suffix"] == "gpu-0.3-6g-low"
    assert told.body["outcome"] == "queued", "no node agent answers this gateway"
    wrong = alices.ask("GET", "aliquot/api/v1/dry-run?gpus=50%25")
    assert (wrong.status, json.loads(wrong.body)["message"]) == (
        400,
        "Requested gpus='50%', which is not a number. Use one such as 0.25",
    ), "the gateway's own words"
    for name in ("python3.gpu-99", "nobody-has-it"):
        asked = {"path": "b.ipynb", "name": "", "type": "notebook", "kernel": {"name": name}}
        answers = {
            "kernels": alices.ask("POST", "api/kernels", {"name": name}),
            "sessions": alices.ask("POST", "api/sessions", asked),
        }
        want = a_gateway.ask("POST", "api/kernels", {"name": name}, token=TOKENS["alice"])
        for route, answer in answers.items():
            said = json.loads(answer.body)["message"], json.loads(want.body)["message"]
            assert (answer.status, said[0]) == (want.status, said[1]), route
    of_kernel = f"aliquot/api/v1/dry-run?gpus=0.5&kernel={kernel_id}"
    assert "holds no GPU" in alices.ask("GET", of_kernel).body
    stranger, nobody = bobs.ask("GET", of_kernel), bobs.ask("GET", f"aliquot/api/v1/dry-run?gpus=0.5&kernel={NOTHING}")
    assert (stranger.status, nobody.status) == (404, 404)
    assert stranger.body.replace(kernel_id, NOTHING) == nobody.body
    alices.execute(kernel_id, "print('seen')", until="seen")
    cells = alices.ask("GET", f"aliquot/api/v1/kernels/{kernel_id}/outputs")
    assert (cells.status, bobs.ask("GET", f"aliquot/api/v1/kernels/{kernel_id}/outputs").status) == (200, 404)
    assert "cells" in cells.body


def test_the_stream_ends_with_either_end_and_is_opened_again(
    own_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    [mine] = own_servers("alice", gateway=own_gateway)
    first = a_stream(mine)
    own_gateway.end(signal.SIGKILL)
    opcode, data = first.recv_data()
    assert (opcode, int.from_bytes(data[:2], "big")) == (websocket.ABNF.OPCODE_CLOSE, 1013), "it may be asked again"
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        a_stream(mine)
    assert refused.value.status_code == 503
    for path in ("status", "kernels", "sizes", "dry-run?gpus=1"):
        away = mine.ask("GET", f"aliquot/api/v1/{path}")
        assert (away.status, "does not answer" in away.body) == (503, True), (path, away)
    own_gateway.start()
    again = a_stream(mine)
    again.close()


def test_a_gateway_without_aliquot_is_said_to_be_one(
    a_stock_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    [mine] = own_servers("alice", gateway=a_stock_gateway)
    for path in (
        "status",
        "sizes",
        "kernels",
        f"kernels/{NOTHING}",
        "dry-run?gpus=1",
        "history",
        f"kernels/{NOTHING}/outputs",
    ):
        answer = mine.ask("GET", f"aliquot/api/v1/{path}")
        assert (answer.status, "has no Aliquot" in answer.body) == (404, True), (path, answer)
    assert mine.ask("PATCH", f"aliquot/api/v1/kernels/{NOTHING}", {"gpus": 1}).status == 404
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        a_stream(mine)
    assert refused.value.status_code == 404
    kernel_id = a_session(mine)["kernel"]["id"]
    assert mine.execute(kernel_id, "print(6 * 7)", until="\n") == "42\n"


def test_users_of_a_server_of_several_do_not_speak_for_its_owner(own_servers: Callable[..., list[Server]]) -> None:
    guests = {"owner": {"token": "own", "role": "admin"}, "guest": {"token": "a-guest"}}
    [mine] = own_servers("alice", more=[f"--AliquotIdentityProvider.users={guests}"])
    kernel_id = a_session(mine)["kernel"]["id"]
    for method, path in (
        ("GET", "sizes"),
        ("GET", "dry-run?gpus=0.5"),
        ("GET", "history"),
        ("GET", f"kernels/{kernel_id}/outputs"),
        ("PATCH", f"kernels/{kernel_id}"),
        ("POST", f"kernels/{kernel_id}/postpone-culling"),
    ):
        answer = mine.ask(method, f"aliquot/api/v1/{path}", {} if method != "GET" else None, token="a-guest")
        assert answer.status in (403, 404), (path, answer)
        assert "as one of its owner's" in answer.body or "does not exist" in answer.body, answer
    assert mine.ask("GET", "aliquot/api/v1/kernels", token="a-guest").body == {"kernels": []}

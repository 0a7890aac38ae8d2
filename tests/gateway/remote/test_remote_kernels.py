"""Restarts of the user's own server: kernels stay on the gateway, and notebooks find them again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import websocket
from ports import free_port
from quick_start import python_m

from .conftest import TOKENS, Server

NOTHING = "00000000-0000-0000-0000-000000000000"


def a_session(server: Server, path: str = "a.ipynb", name: str = "python3") -> dict[str, Any]:
    body = {"path": path, "name": path, "type": "notebook", "kernel": {"name": name}}
    answer = server.ask("POST", "api/sessions", body)
    assert answer.status == 201, answer
    found: dict[str, Any] = answer.body
    return found


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_kernel_session_and_running_cell_outlive_the_users_server(
    how: int, a_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    [mine] = own_servers("alice")
    session = a_session(mine)
    kernel_id = session["kernel"]["id"]
    mine.execute(kernel_id, "import time\nx = 40\nprint('begun', flush=True)\ntime.sleep(2)\nx += 2", until="begun")
    mine.end(how)
    assert a_gateway.kernels() == [kernel_id]
    mine.start()
    assert mine.kernels() == [kernel_id]
    [found] = mine.ask("GET", "api/sessions").body
    assert (found["id"], found["path"], found["kernel"]["id"]) == (session["id"], "a.ipynb", kernel_id)
    assert mine.execute(kernel_id, "print('x is', x)", until="\n") == "x is 42\n"
    assert mine.ask("POST", f"api/kernels/{kernel_id}/interrupt").status == 204
    assert mine.ask("DELETE", f"api/sessions/{session['id']}").status == 204, "what its user ends, ends"
    assert (mine.kernels(), a_gateway.kernels()) == ([], [])


def test_a_stop_that_somebody_asked_for_ends_the_kernels_of_that_server_alone(
    a_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    laptop, desk = own_servers("alice", "alice")
    kept, ended = a_session(laptop)["kernel"]["id"], a_session(desk)["kernel"]["id"]
    desk.end(signal.SIGKILL)
    desk.start()
    assert laptop.kernels() == desk.kernels() == sorted([kept, ended]), "the gateway's list is each server's list"
    assert desk.ask("POST", "api/shutdown", {}).status == 200
    desk.wait()
    assert a_gateway.kernels() == [kept]
    laptop.until(lambda: laptop.kernels() == [kept])
    report = a_gateway.ask("GET", f"aliquot/api/v1/kernels/{ended}", token=TOKENS["alice"]).body
    assert report["termination"]["message"] == "the kernel was ended by its owner alice"


def test_nobody_finds_or_takes_the_kernels_of_somebody_else(
    a_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    alices, bobs, adas = own_servers("alice", "bob", "ada")
    kernel_id = a_session(alices)["kernel"]["id"]
    own = a_session(bobs)["kernel"]["id"]
    for other in (bobs, adas):
        other.end(signal.SIGTERM)
        other.start()
    assert (alices.kernels(), bobs.kernels(), adas.kernels()) == ([kernel_id], [own], [])
    assert bobs.ask("GET", f"api/kernels/{kernel_id}").status == 404
    taken = bobs.ask("POST", "api/sessions", {"path": "b.ipynb", "type": "notebook", "kernel": {"id": kernel_id}})
    assert taken.status == 404, taken
    assert bobs.ask("POST", "api/sessions", {"path": "b", "type": "notebook", "kernel": {"id": NOTHING}}).status == 404
    assert bobs.kernels() == [own]
    # An administrator may use this kernel, but gets it only on request.
    attached = adas.ask("POST", "api/sessions", {"path": "c.ipynb", "type": "notebook", "kernel": {"id": kernel_id}})
    assert attached.status == 201, attached
    bobs.ask("POST", "api/shutdown", {})
    bobs.wait()
    assert a_gateway.kernels() == [kernel_id]


def test_a_gateway_that_is_away_loses_no_session(a_gateway: Server, own_servers: Callable[..., list[Server]]) -> None:
    [mine] = own_servers("alice")
    session = a_session(mine)
    mine.end(signal.SIGTERM)
    there = list(mine.words)
    nowhere = f"http://127.0.0.1:{free_port()}/"
    mine.words = [word.replace(a_gateway.url, nowhere) for word in there] + ["--GatewayClient.gateway_retry_max=0"]
    mine.start()
    for path in ("api/kernels", "api/sessions", f"api/sessions/{session['id']}"):
        assert mine.ask("GET", path).status in (500, 503, 599), path
    mine.end(signal.SIGTERM)
    mine.words = there
    mine.start()
    assert [found["id"] for found in mine.ask("GET", "api/sessions").body] == [session["id"]]


def test_the_users_own_server_tells_what_the_gateway_says_of_its_kernels(
    a_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    alices, bobs = own_servers("alice", "bob")
    session = a_session(alices, "work/a.ipynb")
    kernel_id = session["kernel"]["id"]
    assert alices.ask("POST", f"aliquot/api/v1/kernels/{kernel_id}/postpone-culling", {}).status == 204
    assert bobs.ask("POST", f"aliquot/api/v1/kernels/{kernel_id}/postpone-culling", {}).status == 404
    assert a_gateway.ask("DELETE", f"api/kernels/{kernel_id}").status == 204, "the administrator ends it"
    status = alices.ask("GET", "aliquot/api/v1/status").body
    assert (status["user"]["name"], status["user"]["role"]) == ("alice", "user"), "she is who the gateway takes her for"
    [ended] = [kernel for kernel in status["kernels"] if kernel["id"] == kernel_id]
    assert (ended["label"], ended["state"]) == ("work/a.ipynb", "ended")
    assert ended["termination"]["message"] == "the kernel was ended by the administrator ada"
    assert alices.ask("GET", f"aliquot/api/v1/kernels/{kernel_id}").body["termination"] == ended["termination"]
    assert bobs.ask("GET", f"aliquot/api/v1/kernels/{kernel_id}").status == 404
    sizes = alices.ask("GET", "aliquot/api/v1/sizes").body
    assert "python3.gpu-0.25" in [size["name"] for size in sizes["sizes"]]
    assert sizes["default_size"] is None


def test_a_server_with_a_default_size_tells_it_and_a_name_can_ask_for_no_gpu_there(
    a_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    [mine] = own_servers("bob", variables={"KERNEL_GPU": "0.50-LOW"})
    assert mine.ask("GET", "aliquot/api/v1/sizes").body["default_size"] == "0.5-low"
    assert a_gateway.ask("GET", "aliquot/api/v1/sizes").body["default_size"] is None
    kernel = a_session(mine, name="python3.gpu-none")["kernel"]
    assert kernel["name"] == "python3.gpu-none"
    assert mine.execute(kernel["id"], "print('it runs')", until="\n") == "it runs\n"
    assert mine.ask("GET", "aliquot/api/v1/status").body["kernels"] == [], "it holds nothing, and waits for nothing"


def test_the_history_is_the_gateways(a_gateway: Server, own_servers: Callable[..., list[Server]]) -> None:
    [mine] = own_servers("alice")
    want = a_gateway.ask("GET", "aliquot/api/v1/history?range=week", token=TOKENS["alice"])
    told = mine.ask("GET", "aliquot/api/v1/history?range=week")
    assert (told.status, want.status) == (200, 200)
    assert told.body["range"] == "week"
    assert [one["uuid"] for one in told.body["devices"]] == [one["uuid"] for one in want.body["devices"]]
    assert mine.ask("GET", "aliquot/api/v1/history?range=year").status == 400


def test_changes_and_events_are_passed_on_to_the_gateway(
    a_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    """Change a plain kernel: the gateway's own message shows that the gateway was asked."""
    [mine] = own_servers("alice")
    kernel_id = a_session(mine)["kernel"]["id"]
    path = f"aliquot/api/v1/kernels/{kernel_id}"
    asked = {"PATCH": path, "POST": f"{path}/prefetch"}
    for method, where in asked.items():
        answer = mine.ask(method, where, {"gpus": 0.5} if method == "PATCH" else {})
        assert (answer.status, "holds no GPU" in answer.body) == (409, True), answer
    for verb in ("swap-out", "restore"):
        assert mine.ask("POST", f"{path}/{verb}", {}).status == 409
    assert "but none is queued" in mine.ask("DELETE", f"{path}/resize").body
    assert mine.ask("PATCH", f"aliquot/api/v1/kernels/{NOTHING}", {"gpus": 0.5}).status == 404
    stream = websocket.create_connection(
        f"ws://127.0.0.1:{mine.port}/aliquot/api/v1/events", timeout=90, header=[f"Authorization: token {mine.token}"]
    )
    try:
        stream.settimeout(0.5)
        with pytest.raises(websocket.WebSocketTimeoutException):
            stream.recv()
        assert stream.connected
    finally:
        stream.close()


def test_a_kernel_that_is_shared_is_used_from_another_users_server_and_outlives_it(
    a_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    hers, his = own_servers("alice", "bob")
    kernel_id = a_session(hers)["kernel"]["id"]
    share = f"aliquot/api/v1/kernels/{kernel_id}/shares/users/bob"
    assert his.kernels() == []
    told = {"JUPYTER_GATEWAY_URL": a_gateway.url, "JUPYTER_GATEWAY_AUTH_TOKEN": TOKENS["alice"]}
    hers_in_a_hub = {"JUPYTERHUB_USER": "alice", "JUPYTERHUB_SERVICE_URL": hers.url, "JUPYTERHUB_API_TOKEN": hers.token}
    for word, more in ((kernel_id, {}), ("a.ipynb", hers_in_a_hub)):
        command = [*python_m("jupyter_aliquot.gateway.cli.app", "share", word), "--user", "bob", "--write"]
        done = subprocess.run(command, env={**os.environ, **told, **more}, capture_output=True, text=True, timeout=90)
        assert (done.returncode, done.stdout) == (0, f"{word} is shared with user bob (write)\n"), done.stderr
    assert his.kernels() == [kernel_id], "what is shared with its user is in the server's list"
    body = {"path": "b.ipynb", "name": "b.ipynb", "type": "notebook", "kernel": {"id": kernel_id}}
    session = his.ask("POST", "api/sessions", body).body
    assert (session["kernel"]["id"], session["kernel"]["owner"]) == (kernel_id, "alice")
    assert his.execute(kernel_id, "x = 42\nprint('x is', x)", until="\n") == "x is 42\n"
    told = his.ask("GET", f"aliquot/api/v1/kernels/{kernel_id}").body
    assert (told["access"], told["owner"], told["shares"], told["label"]) == ("write", "alice", None, "")
    refused = his.ask("DELETE", f"api/kernels/{kernel_id}")
    assert (refused.status, "shared with you to use by alice" in refused.body) == (403, True)
    assert his.ask("DELETE", f"api/sessions/{session['id']}").status == 204
    session = his.ask("POST", "api/sessions", body).body
    other = his.ask("PATCH", f"api/sessions/{session['id']}", {"kernel": {"name": "python3"}}).body["kernel"]["id"]
    back = his.ask("PATCH", f"api/sessions/{session['id']}", {"kernel": {"id": kernel_id}}).body["kernel"]
    assert (back["id"], his.until(lambda: other not in his.kernels())) == (kernel_id, True), "his own kernel ended"
    assert his.ask("POST", "api/shutdown", {}).status == 200
    his.wait()
    assert a_gateway.kernels() == [kernel_id], "his server's stop ends what is his alone"
    his.start()
    [found] = his.ask("GET", "api/sessions").body
    assert found["kernel"]["id"] == kernel_id
    url = f"ws://127.0.0.1:{his.port}/api/kernels/{kernel_id}/channels?session_id=his"
    open_page = websocket.create_connection(url, timeout=60, header=[f"Authorization: token {his.token}"])
    assert hers.ask("DELETE", share).status == 200
    while open_page.recv():  # an empty message means that it is closed
        pass
    his.until(lambda: his.kernels() == [] and his.ask("GET", "api/sessions").body == [])
    assert hers.execute(kernel_id, "print('still', x)", until="\n") == "still 42\n"


def test_a_notebook_that_gets_another_kernel_keeps_the_old_one_until_the_gateway_has_room_for_the_new(
    a_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    """No agent runs there, so a kernel that requests a GPU waits."""
    [mine] = own_servers("alice")
    session = a_session(mine)
    old = session["kernel"]["id"]

    def pick(name: str) -> Any:
        return mine.ask("PATCH", f"api/sessions/{session['id']}", {"kernel": {"name": name}})

    refused = pick("python3.gpu-0.333")
    assert (refused.status, "steps of 0.01" in refused.body) == (404, True)
    waiting = pick("python3.gpu-0.25").body["kernel"]
    assert waiting["replaces"] == [old]
    assert mine.kernels() == a_gateway.kernels() == sorted([old, waiting["id"]])
    other = pick("python3.gpu-0.5").body["kernel"]["id"]
    mine.until(lambda: a_gateway.kernels() == sorted([old, other]))
    plain = pick("python3").body["kernel"]["id"]
    mine.until(lambda: mine.kernels() == a_gateway.kernels() == [plain])
    assert mine.execute(plain, "print('here')", until="\n") == "here\n"


def test_a_page_whose_kernel_the_gateway_refuses_is_told_once_and_then_refused_before_its_socket_opens(
    a_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    [mine] = own_servers("alice")
    kernel_id = a_session(mine)["kernel"]["id"]
    assert a_gateway.ask("DELETE", f"api/kernels/{kernel_id}", token=TOKENS["alice"]).status == 204
    url = f"ws://127.0.0.1:{mine.port}/api/kernels/{kernel_id}/channels"
    header = [f"Authorization: token {mine.token}"]
    first = websocket.create_connection(url, timeout=90, header=header)
    code, data = first.recv_data()
    assert (code, int.from_bytes(data[:2], "big")) == (websocket.ABNF.OPCODE_CLOSE, 1008)
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        websocket.create_connection(url, timeout=90, header=header)
    assert refused.value.status_code == 404

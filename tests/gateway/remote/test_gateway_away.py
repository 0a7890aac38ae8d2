"""A page whose gateway goes away for longer than its server tries.

The server reports it to the page, keeps the page away, and lets it in when the gateway is back. The
page speaks as JupyterLab's KernelConnection does: it asks for the kernel's description on each
socket that opens, and after a refused one asks the server about the kernel before it comes again.
"""

from __future__ import annotations

import json
import signal
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import websocket

from .conftest import Server
from .test_remote_kernels import a_session

# Settings of Jupyter: with SHORT, one more try after a quarter of a second, then an error.
SHORT = ("--GatewayClient.gateway_retry_max=1", "--GatewayClient.gateway_retry_interval=0.25")
LONG = ("--GatewayClient.gateway_retry_max=20", "--GatewayClient.gateway_retry_interval=0.25")


class Page:
    """One browser's connection to a kernel."""

    def __init__(self, server: Server, kernel_id: str) -> None:
        self._server, self._kernel_id, self._session = server, kernel_id, uuid.uuid4().hex
        self._socket = websocket.WebSocket()

    def open(self) -> Page:
        """Connect, and wait until the kernel has answered a first question and rests.

        Raises WebSocketBadStatusException.
        """
        url = f"ws://127.0.0.1:{self._server.port}/api/kernels/{self._kernel_id}/channels?session_id={self._session}"
        self._socket = websocket.create_connection(
            url, timeout=90, header=[f"Authorization: token {self._server.token}"]
        )
        asked, told = self.send("kernel_info_request", {}), set[str]()
        while told < {"kernel_info_reply", "idle"}:
            message = self.hear()
            if message["parent_header"].get("msg_id") == asked:
                told.add(message["content"].get("execution_state", message["msg_type"]))
        return self

    def send(self, kind: str, content: dict[str, Any]) -> str:
        header = {"msg_id": uuid.uuid4().hex, "username": "", "session": self._session, "msg_type": kind}
        message = {"channel": "shell", "header": {**header, "version": "5.3"}, "parent_header": {}, "metadata": {}}
        self._socket.send(json.dumps({**message, "content": content}))
        return header["msg_id"]

    def hear(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv())
        return message

    def run(self, code: str) -> str:
        """Run a cell to its end, and return its output."""
        ask = {"silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        asked, printed = self.send("execute_request", {"code": code, **ask}), ""
        while True:
            message = self.hear()
            if message["parent_header"].get("msg_id") != asked:
                continue
            printed += message["content"].get("text", "")
            if message["content"].get("execution_state") == "idle":
                return printed

    def end(self) -> tuple[int, str]:
        """Return the code and the reason with which the server closes the socket."""
        while True:
            code, data = self._socket.recv_data()
            if code == websocket.ABNF.OPCODE_CLOSE:
                return int.from_bytes(data[:2], "big"), data[2:].decode()


def test_a_page_is_told_that_the_gateway_is_away_kept_out_while_it_is_and_runs_cells_when_it_is_back(
    a_lasting_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    [mine] = own_servers("alice", gateway=a_lasting_gateway, more=SHORT)
    kernel_id = a_session(mine)["kernel"]["id"]
    page = Page(mine, kernel_id).open()
    assert page.run("runs = 1\nprint('it runs', flush=True)") == "it runs\n"
    a_lasting_gateway.end(signal.SIGKILL)
    code, reason = page.end()
    assert (code, "gateway" in reason) == (1013, True), reason
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        page.open()
    assert refused.value.status_code == 503
    told = mine.ask("GET", f"api/kernels/{kernel_id}")
    assert told.status == 503, "JupyterLab asks again after it, and takes the kernel for dead after any other failure"
    assert mine.kernels() == [kernel_id], "what is not listed is closed by JupyterLab"
    a_lasting_gateway.start()
    assert mine.ask("GET", f"api/kernels/{kernel_id}").body["id"] == kernel_id
    assert page.open().run("runs += 1\nprint('runs', runs, flush=True)") == "runs 2\n"


def test_a_page_that_comes_while_the_gateway_is_away_shortly_is_let_in_once_it_is_back(
    a_lasting_gateway: Server, own_servers: Callable[..., list[Server]]
) -> None:
    [mine] = own_servers("alice", gateway=a_lasting_gateway, more=LONG)
    page = Page(mine, a_session(mine)["kernel"]["id"]).open()
    a_lasting_gateway.end(signal.SIGKILL)
    assert page.end()[0] == 1013
    printed: list[str] = []
    coming = threading.Thread(target=lambda: printed.append(page.open().run("print('again')")))
    coming.start()
    mine.until(lambda: (mine.folder / "log").read_text().count("tries=again") >= 1)
    a_lasting_gateway.start()
    coming.join(90)
    assert printed == ["again\n"]

"""A user's own server, and an output too large for Jupyter's client of a gateway."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import websocket

from .conftest import Server

_WINDOW_SECONDS = 4.0
# The cell waits until its page has gone, then prints more than a server in gateway mode takes at
# once.
CELL = """
import os, time
os.chdir({folder!r})
open('begun', 'w').close()
while not os.path.exists('gone'): time.sleep(0.05)
print('y' * 12_000_000)
open('shown', 'w').close()
"""


@pytest.mark.soak
def test_an_output_above_ten_mebibytes_that_nobody_saw_ends_no_connection_for_ever(
    a_gateway: Server, own_servers: Callable[..., list[Server]], tmp_path: Path
) -> None:
    [mine] = own_servers("alice")
    kernel = mine.ask("POST", "api/kernels", {"name": "python3"}).body["id"]
    session = uuid.uuid4().hex

    def a_page() -> websocket.WebSocket:
        url = f"ws://127.0.0.1:{mine.port}/api/kernels/{kernel}/channels?session_id={session}"
        return websocket.create_connection(url, timeout=90, header=[f"Authorization: token {mine.token}"])

    def run(page: websocket.WebSocket, code: str) -> None:
        header = {"msg_id": uuid.uuid4().hex, "username": "", "session": session, "msg_type": "execute_request"}
        content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
        message = {"channel": "shell", "header": {**header, "version": "5.3"}, "parent_header": {}, "metadata": {}}
        page.send(json.dumps({**message, "content": content}))

    page = a_page()
    run(page, CELL.format(folder=str(tmp_path)))
    mine.until((tmp_path / "begun").exists)
    page.close()
    a_gateway.until(lambda: a_gateway.ask("GET", f"api/kernels/{kernel}").body["connections"] == 0)
    (tmp_path / "gone").touch()
    mine.until((tmp_path / "shown").exists)
    # Jupyter counts output younger than its window against its rates, and would leave it out.
    mine.until(lambda: time.time() - (tmp_path / "shown").stat().st_mtime > _WINDOW_SECONDS)
    page = a_page()
    run(page, "print('the next cell')")
    seen = ""
    while "the next cell\n" not in seen:
        message = json.loads(page.recv())
        seen += message["content"].get("text", "") if message["msg_type"] == "stream" else ""
    page.close()
    assert "is not shown: at most" in seen
    assert "Lost connection to Gateway" not in (mine.folder / "log").read_text()

"""Messages with buffers, as widgets send them, between a page and its kernel.

Jupyter sends such a message as a binary frame of its websocket, and the buffers need not be UTF-8.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
import websocket
from jupyter_server.services.kernels.connection.base import (
    deserialize_binary_message,
    serialize_binary_message,
)

from .conftest import Server
from .test_remote_kernels import a_session

BUFFER = bytes(range(256))
# Answers each message of a comm with its buffers, each reversed.
MIRROR = """
def opened(comm, _):
    comm.on_msg(lambda message: comm.send({}, buffers=[bytes(buffer)[::-1] for buffer in message["buffers"]]))
get_ipython().kernel.comm_manager.register_target("mirror", opened)
print("ready")
"""


class Page:
    """A websocket of one kernel that sends and receives text and binary frames."""

    def __init__(self, server: Server, kernel_id: str) -> None:
        self._session = uuid.uuid4().hex
        url = f"ws://127.0.0.1:{server.port}/api/kernels/{kernel_id}/channels?session_id={self._session}"
        headers = [f"Authorization: token {server.token}"]
        self._socket = websocket.create_connection(url, timeout=90, header=headers)

    def send(self, kind: str, content: dict[str, Any], buffers: list[bytes]) -> None:
        now = datetime.now(timezone.utc)
        header = {"msg_id": uuid.uuid4().hex, "username": "", "session": self._session, "msg_type": kind, "date": now}
        parts = {"parent_header": {}, "metadata": {}, "content": content, "buffers": buffers}
        message = {"channel": "shell", "header": {**header, "version": "5.3"}, **parts}
        self._socket.send_binary(serialize_binary_message(message))

    def find_buffers(self) -> list[bytes]:
        """Return the buffers of the first message that comes as a binary frame."""
        while not isinstance(frame := self._socket.recv(), bytes):
            pass
        return [bytes(buffer) for buffer in deserialize_binary_message(frame)["buffers"]]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["local", "gateway"])
def a_page(
    request: pytest.FixtureRequest, a_gateway: Server, own_servers: Callable[..., list[Server]]
) -> Iterator[Page]:
    """A page whose kernel mirrors the buffers of its comms, for each server mode."""
    [server] = own_servers("alice") if request.param == "gateway" else [a_gateway]
    kernel_id = a_session(server)["kernel"]["id"]
    assert server.execute(kernel_id, MIRROR, until="ready") == "ready\n"
    page = Page(server, kernel_id)
    try:
        yield page
    finally:
        page.close()


def test_buffers_go_to_the_kernel_and_come_back_as_they_are(a_page: Page) -> None:
    comm = {"comm_id": uuid.uuid4().hex, "data": {}}
    a_page.send("comm_open", {**comm, "target_name": "mirror", "target_module": None}, [])
    a_page.send("comm_msg", comm, [BUFFER, b""])
    assert a_page.find_buffers() == [BUFFER[::-1], b""]

"""Kernels by Jupyter's own API, as far as a script needs it: start, end, and run code.

The kernelspec's name is the request for a GPU, such as ``python3.gpu-0.25``. For more of Jupyter's API,
use its own clients: the gateway is a Jupyter server.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict
from urllib.parse import quote

from .answers import read_json
from .errors import NoAnswerError
from .exchange import Call, refusal
from .transport import RawAnswer

_CHANNELS = "WEBSOCKET /api/kernels/…/channels"


class JupyterKernel(TypedDict):
    """A kernel in Jupyter's words; its GPU is in the report of `kernel`."""

    id: str
    name: str


class _Header(TypedDict):
    msg_type: str


class _Message(TypedDict):
    header: _Header
    parent_header: dict[str, Any]
    content: dict[str, Any]


class Channels(Protocol):
    """An open websocket to a kernel, as tornado's."""

    def write_message(self, message: str) -> Awaitable[None]:
        """Send a message."""

    def read_message(self) -> Awaitable[str | bytes | None]:
        """Return the next message; None once the websocket is closed."""

    def close(self) -> None:
        """Close it."""


OpenChannels = Callable[[str, tuple[tuple[str, str], ...]], Awaitable[Channels | RawAnswer]]


@dataclass(frozen=True)
class CellResult:
    """The end of a cell.

    Attributes:
        text: Its output as text: printed lines, and the text of results and displays.
        error: The error's name and message; None where it ended well.
    """

    text: str
    error: str | None = None


@dataclass
class _Output:
    """The output of one cell while it runs."""

    parts: list[str] = field(default_factory=list)
    error: str | None = None
    # The reply comes on one channel, the end of the output on another.
    is_replied: bool = False
    is_idle: bool = False

    def take(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream":
            self.parts.append(str(content.get("text", "")))
        elif kind in ("execute_result", "display_data"):
            data = content.get("data")
            self.parts.append(f"{data.get('text/plain', '')}\n" if isinstance(data, dict) else "")
        elif kind == "status":
            self.is_idle = self.is_idle or content.get("execution_state") == "idle"
        elif kind == "execute_reply":
            self.is_replied = True
            if content.get("status") != "ok":
                self.error = f"{content.get('ename', 'aborted')}: {content.get('evalue', '')}"


def start_kernel(kernelspec: str, path: str = "") -> Call[JupyterKernel]:
    """Start a kernel. It may wait in the queue: its `state` tells.

    Args:
        kernelspec: Its name, with a size: ``python3.gpu-0.25``.
        path: The folder or notebook that it is for, as Jupyter names it.
    """
    body = json.dumps({"name": kernelspec, "path": path})
    return Call("POST", "api/kernels", JupyterKernel, body=body)


def end_kernel(kernel_id: str) -> Call[None]:
    """End a kernel, or withdraw it from the queue."""
    return Call("DELETE", f"api/kernels/{quote(kernel_id, safe='')}", None)


async def run_code(open_channels: OpenChannels, kernel_id: str, code: str) -> CellResult:
    """Run code in a kernel and return its output. It waits for a kernel that waits.

    Args:
        open_channels: Opens a websocket below the server's base URL.
        kernel_id: The kernel.
        code: The code of one cell; it cannot ask its user with ``input()``.

    Raises:
        NoAnswerError: The connection was lost. The cell may run on; `kernel_outputs` has its output.
        RefusedError: The server refused the connection.
    """
    session, msg_id = uuid.uuid4().hex, uuid.uuid4().hex
    path = f"api/kernels/{quote(kernel_id, safe='')}/channels"
    channels = await open_channels(path, (("session_id", session),))
    if isinstance(channels, RawAnswer):
        raise refusal(channels, _CHANNELS)
    try:
        await channels.write_message(_request(session, msg_id, code))
        output = _Output()
        while not (output.is_replied and output.is_idle):
            message = await channels.read_message()
            if message is None:
                raise NoAnswerError(
                    f"The connection to kernel {kernel_id} was closed before its cell ended. Read kernel_outputs: a "
                    "cell of a kernel that lives runs on"
                )
            told: _Message = read_json(message, _Message, _CHANNELS)
            if told["parent_header"].get("msg_id") == msg_id:
                output.take(told["header"]["msg_type"], told["content"])
        return CellResult("".join(output.parts), output.error)
    finally:
        channels.close()


def _request(session: str, msg_id: str, code: str) -> str:
    header = {"msg_id": msg_id, "session": session, "username": "", "msg_type": "execute_request", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    message = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content}
    return json.dumps({**message, "buffers": []})

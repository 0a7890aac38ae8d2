"""Kernels by Jupyter's own API, as far as a script needs it: start, end, and run code.

The kernelspec's name is the request for a GPU, such as ``python3.gpu-0.25``. For more of Jupyter's API,
use its own clients: the gateway is a Jupyter server.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict

from .answers import read_json
from .errors import NoAnswerError
from .exchange import Call, path_part, refusal
from .transport import RawAnswer

_CHANNELS = "WEBSOCKET /api/kernels/…/channels"
_WORD_BYTES = 4  # of a binary frame's table


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
    is_begun: bool = False

    @property
    def is_whole(self) -> bool:
        return self.is_replied and self.is_idle

    def take(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream":
            self.parts.append(str(content.get("text", "")))
        elif kind in ("execute_result", "display_data"):
            data = content.get("data")
            self.parts.append(f"{data.get('text/plain', '')}\n" if isinstance(data, dict) else "")
        elif kind == "status":
            self.is_begun = True
            self.is_idle = self.is_idle or content.get("execution_state") == "idle"
        elif kind == "execute_reply":
            self.is_replied = True
            if content.get("status") != "ok":
                self.error = f"{content.get('ename', 'aborted')}: {content.get('evalue', '')}"

    def is_lost(self, kind: str, content: dict[str, Any]) -> bool:
        """Return whether a message that answers no request tells the end of the process that has the cell."""
        state = content.get("execution_state") if kind == "status" else None
        # A kernel tells its start once: after the cell began, the start is another process's.
        return kind == "shutdown_reply" or state in ("restarting", "dead") or (state == "starting" and self.is_begun)


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
    return Call("DELETE", f"api/kernels/{path_part(kernel_id)}", None)


async def run_code(
    open_channels: OpenChannels, kernel_id: str, code: str, timeout_seconds: float | None = None
) -> CellResult:
    """Run code in a kernel and return its output. It waits for a kernel that waits.

    Args:
        open_channels: Opens a websocket below the server's base URL.
        kernel_id: The kernel.
        code: The code of one cell; it cannot ask its user with ``input()``.
        timeout_seconds: The longest wait for the cell's end, the kernel's wait included; None for any time.

    Raises:
        NoAnswerError: The connection was lost, the time was over, or the kernel died or restarted. A cell of a kernel
            that lives may run on; `kernel_outputs` has its output.
        RefusedError: The server refused the connection.
    """
    session = uuid.uuid4().hex
    path = f"api/kernels/{path_part(kernel_id)}/channels"
    channels = await open_channels(path, (("session_id", session),))
    if isinstance(channels, RawAnswer):
        raise refusal(channels, _CHANNELS)
    try:
        return await asyncio.wait_for(_result(channels, kernel_id, session, code), timeout_seconds)
    except asyncio.TimeoutError as error:
        raise NoAnswerError(
            f"Waited {timeout_seconds:g} s for the end of a cell in kernel {kernel_id}, and it has not ended. Read "
            "kernel_outputs, or pass a longer timeout_seconds: the cell runs on"
        ) from error
    finally:
        channels.close()


async def _result(channels: Channels, kernel_id: str, session: str, code: str) -> CellResult:
    msg_id, output = uuid.uuid4().hex, _Output()
    await channels.write_message(_request(session, msg_id, code))
    while not output.is_whole:
        message = await channels.read_message()
        if message is None:
            raise NoAnswerError(
                f"The connection to kernel {kernel_id} was closed before its cell ended. Read kernel_outputs: a "
                "cell of a kernel that lives runs on"
            )
        told: _Message = read_json(_json_part(message), _Message, _CHANNELS)
        kind = told["header"]["msg_type"]
        if told["parent_header"].get("msg_id") == msg_id:
            output.take(kind, told["content"])
        elif output.is_lost(kind, told["content"]):
            raise NoAnswerError(
                f"Kernel {kernel_id} died or was restarted before its cell ended, and its variables are lost. Read "
                "the kernel's reason, and run the code again once it is there"
            )
    return CellResult("".join(output.parts), output.error)


def _json_part(message: str | bytes) -> str | bytes:
    """Return the JSON of a message.

    Jupyter sends a message with buffers as a binary frame: the count of its parts, the offset of each, and the parts,
    of which the first is the JSON. Numbers have 32 bits, the highest first.
    """
    if isinstance(message, str):
        return message
    count, first, second = (int.from_bytes(message[at : at + _WORD_BYTES], "big") for at in (0, 4, 8))
    return message[first : second if count > 1 else None]


def _request(session: str, msg_id: str, code: str) -> str:
    header = {"msg_id": msg_id, "session": session, "username": "", "msg_type": "execute_request", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    message = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content}
    return json.dumps({**message, "buffers": []})

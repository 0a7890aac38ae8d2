"""Code in a kernel: messages with buffers, and kernels that end before their cell."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_aliquot.client import AnswerError, NoAnswerError
from jupyter_aliquot.client.jupyter import CellResult, run_code

# Makes a message of a kernel for the id of the cell's request.
Told = Callable[[str], str | bytes]


class KernelChannels:
    """A websocket to a kernel, which tells the messages of a test and then nothing."""

    def __init__(self, *told: Told) -> None:
        self._told = list(told)
        self._request_id = ""
        self.is_closed = False

    async def write_message(self, message: str) -> None:
        self._request_id = json.loads(message)["header"]["msg_id"]

    async def read_message(self) -> str | bytes | None:
        if not self._told:
            await asyncio.Event().wait()
        return self._told.pop(0)(self._request_id)

    def close(self) -> None:
        self.is_closed = True


def message(kind: str, parent: str, **content: Any) -> str:
    header = {"msg_id": parent} if parent else {}
    return json.dumps({"header": {"msg_type": kind}, "parent_header": header, "content": content})


def own(kind: str, **content: Any) -> Told:
    return lambda request_id: message(kind, request_id, **content)


def other(kind: str, **content: Any) -> Told:
    return lambda request_id: message(kind, "", **content)


def with_buffers(told: Told, *buffers: bytes) -> Told:
    """Return the message as Jupyter Server frames one with buffers."""

    def framed(request_id: str) -> bytes:
        parts = [str(told(request_id)).encode(), *buffers]
        offsets = [4 + 4 * len(parts)]
        for part in parts[:-1]:
            offsets.append(offsets[-1] + len(part))
        return b"".join(number.to_bytes(4, "big") for number in (len(parts), *offsets)) + b"".join(parts)

    return framed


END = (own("execute_reply", status="ok"), own("status", execution_state="idle"))
BUSY = own("status", execution_state="busy")


def result(*told: Told, timeout_seconds: float | None = None) -> CellResult:
    channels = KernelChannels(*told)

    async def open_channels(path: str, query: tuple[tuple[str, str], ...]) -> KernelChannels:
        return channels

    async def run() -> CellResult:
        # The bound is for a client that hangs; none of these tests comes near it.
        return await asyncio.wait_for(run_code(open_channels, "k", "1", timeout_seconds), 60)

    try:
        return asyncio.run(run())
    finally:
        assert channels.is_closed


@pytest.mark.parametrize("buffers", [(), (b"",), (b"\x00\xff", b"{")], ids=["none", "empty", "two"])
def test_a_message_with_buffers_is_read_as_any_other(buffers: tuple[bytes, ...]) -> None:
    shown = own("display_data", data={"text/plain": "a figure"}, metadata={})
    assert result(BUSY, with_buffers(shown, *buffers), *END).text == "a figure\n"


def test_a_message_of_others_with_buffers_is_passed_over() -> None:
    assert result(with_buffers(other("comm_msg", data={}), b"\x00\xff"), *END) == CellResult("")


@pytest.mark.parametrize("frame", [b"", b"\x00\x00", b"\x00\x00\x00\x02\x00\x00\x00\xff\x00\x00\x00\x01{}"])
def test_a_frame_that_is_none_of_jupyters_ends_in_an_error_of_the_client(frame: bytes) -> None:
    with pytest.raises(AnswerError, match="no JSON"):
        result(lambda request_id: frame)


@pytest.mark.parametrize(
    "told",
    [
        other("status", execution_state="restarting"),
        other("status", execution_state="dead"),
        other("shutdown_reply", restart=True),
        other("status", execution_state="starting"),
    ],
    ids=["restarts", "is dead", "shuts down", "starts anew"],
)
def test_a_kernel_that_ends_before_its_cell_ends_the_wait(told: Told) -> None:
    with pytest.raises(NoAnswerError, match="died or was restarted"):
        result(BUSY, told)


def test_the_start_of_a_kernel_that_waited_does_not_end_the_wait() -> None:
    assert result(other("status", execution_state="starting"), BUSY, *END) == CellResult("")


def test_a_caller_may_bound_the_wait() -> None:
    with pytest.raises(NoAnswerError, match=r"Waited 0\.01 s .* timeout_seconds"):
        result(BUSY, timeout_seconds=0.01)

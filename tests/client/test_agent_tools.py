"""The tools for agents: they start only what has a size, and change kernels of their own user alone."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_aliquot.client import AsyncClient, ClientError, NoAnswerError, Retries
from jupyter_aliquot.client.agent_tools import AgentTools, WaitEstimate
from jupyter_aliquot.client.exchange import Exchange
from jupyter_aliquot.client.transport import RawAnswer

sys.path.insert(0, str(Path(__file__).parent))
if TYPE_CHECKING:
    from tests.client.client_parts import ScriptedTransport, a_kernel, api_error
else:
    from client_parts import ScriptedTransport, a_kernel, api_error

STARTED = RawAnswer(201, b'{"id": "k", "name": "python3.gpu-0.25"}')

NEEDED = {"gpus": 0.5, "memory_bytes": None}


class ScriptedClient(AsyncClient):
    """The client, on answers that a test sets."""

    def __init__(self, *answers: RawAnswer | NoAnswerError) -> None:
        super().__init__("http://gpu.example.org/")
        self.transport = ScriptedTransport.of(*answers)
        self._exchange = Exchange(self.transport, Retries(attempts=1))


def report(access: str, **more: Any) -> RawAnswer:
    return RawAnswer(200, json.dumps(a_kernel("k", "on_gpu", access=access, owner="bob", **more)).encode())


@pytest.mark.parametrize("access", ["write", "read", "admin", ""])
@pytest.mark.parametrize(
    "change", [lambda tools: tools.gpu_end_kernel("k"), lambda tools: tools.gpu_resize("k", 0.5)], ids=["end", "resize"]
)
def test_a_kernel_of_another_user_is_not_changed(
    change: Callable[[AgentTools], Awaitable[object]], access: str
) -> None:
    client = ScriptedClient(report(access))

    async def run() -> None:
        await change(AgentTools(client))

    with pytest.raises(ClientError, match="which is bob's"):
        asyncio.run(run())
    assert [method for method, _ in client.transport.requests] == ["GET"]


def test_a_kernel_of_the_user_is_ended_and_resized() -> None:
    client = ScriptedClient(report("own"), RawAnswer(204), report("own"), report("own", gpus=0.5))

    async def run() -> None:
        tools = AgentTools(client)
        assert "was ended" in await tools.gpu_end_kernel("k")
        assert (await tools.gpu_resize("k", 0.5)).gpus == 0.5

    asyncio.run(run())
    assert [method for method, _ in client.transport.requests] == ["GET", "DELETE", "GET", "PATCH"]


@pytest.mark.parametrize("kernelspec", ["python3", "", "gpu-0.25", "python3.11"])
def test_a_kernelspec_without_a_size_is_refused_before_it_starts(kernelspec: str) -> None:
    client = ScriptedClient()
    with pytest.raises(ClientError, match=r"names no size.*python3\.gpu-0\.25"):
        asyncio.run(AgentTools(client).gpu_start_kernel(kernelspec))
    assert client.transport.requests == []


@pytest.mark.parametrize("second", [api_error(404, "not yet"), NoAnswerError("not yet")], ids=["404", "no answer"])
def test_an_agent_gets_the_id_of_a_kernel_whose_report_is_missing(second: RawAnswer | NoAnswerError) -> None:
    line = asyncio.run(AgentTools(ScriptedClient(STARTED, second)).gpu_start_kernel("python3.gpu-0.25", "a.ipynb"))
    assert (line.kernel_id, line.state, line.gpus, line.notebook) == ("k", "unknown", None, "a.ipynb")
    assert line.reason == "The kernel was started, but its state could not be read: not yet"


def test_the_wait_of_a_change_of_size_is_estimated() -> None:
    resize = {
        **{"state": "queued", "gpus": 0.5, "requested_memory_bytes": None, "priority": "normal", "reason": "no room"},
        **{"position": 2, "queue_length": 3, "expected_start": "2026-11-29T12:00:00Z", "since": ""},
        "wait_reason": {"code": "gpus", "requested": NEEDED, "free": {**NEEDED, "device": 0}, "host_memory": None},
    }
    client = ScriptedClient(report("own", resize=resize))
    estimate = asyncio.run(AgentTools(client).gpu_wait_estimate("k"))
    want_reason = "A change of size waits: no room"
    assert estimate == WaitEstimate("on_gpu", 2, 3, want_reason, "2026-11-29T12:00:00Z")

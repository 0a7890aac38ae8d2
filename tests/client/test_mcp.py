"""The tools for agents, by the protocol's own client library over stdio, against a gateway with a node agent."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from live_gateway import TOKEN, LiveGateway, a_live_gateway

PROGRAM = [sys.executable, "-m", "jupyter_aliquot.client.mcp_server"]
LOOKS = 1500
READS = {"gpu_status", "gpu_sizes", "gpu_wait_estimate"}


@pytest.fixture(scope="module")
def gateway() -> Iterator[LiveGateway]:
    with a_live_gateway() as found:
        yield found


def variables(gateway: LiveGateway, token: str = TOKEN) -> dict[str, str]:
    cleared = {name: one for name, one in os.environ.items() if not name.startswith("JUPYTER")}
    return cleared | {"JUPYTER_GATEWAY_URL": gateway.url, "JUPYTER_GATEWAY_AUTH_TOKEN": token}


def talk(gateway: LiveGateway, talking: Callable[[Any], Awaitable[None]], *options: str, token: str = TOKEN) -> None:
    """Start the program as an agent's host does, and talk to it."""
    import mcp  # takes a second, which no other worker needs

    words = [*PROGRAM[1:], *options]
    program = mcp.StdioServerParameters(command=PROGRAM[0], args=words, env=variables(gateway, token))

    async def run() -> None:
        async with mcp.Client(program) as client:
            await talking(client)

    asyncio.run(run())


async def answer(client: Any, tool: str, **arguments: Any) -> Any:
    """Return what the tool answers, as data."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    found = result.structured_content
    return found["result"] if set(found) == {"result"} else found


async def until(look: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool]) -> Any:
    """Look again until ``holds`` accepts what it sees. Each look is a request."""
    for _ in range(LOOKS):
        if holds(found := await look()):
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"never held; last: {found}")


def test_an_agent_may_read_and_resize_and_more_only_where_its_user_allows_it(gateway: LiveGateway) -> None:
    async def talking(client: Any) -> None:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert set(tools) == READS | {"gpu_resize"}
        assert {name for name, one in tools.items() if one.annotations.read_only_hint} == READS
        assert all(one.description and one.output_schema for one in tools.values())

    talk(gateway, talking)


def test_an_agent_starts_resizes_and_ends_a_kernel_and_hears_of_the_queue(gateway: LiveGateway) -> None:
    async def talking(client: Any) -> None:
        sizes = {one["size"]: one["outcome"] for one in await answer(client, "gpu_sizes")}
        assert sizes["gpu-0.25"] == "starts"
        kernel_id = (await answer(client, "gpu_start_kernel", kernelspec="python3.gpu-0.25"))["kernel_id"]
        await until(
            lambda: answer(client, "gpu_wait_estimate", kernel_id=kernel_id), lambda one: one["state"] == "on_gpu"
        )
        resized = await answer(client, "gpu_resize", kernel_id=kernel_id, gpus=0.5, memory="6GiB")
        assert (resized["gpus"], resized["memory_limit_bytes"]) == (0.5, 6 << 30)
        estimate = await answer(client, "gpu_wait_estimate", size="gpu-1")
        assert (estimate["state"], estimate["queue_position"]) == ("queued", 1)
        waiting_id = (await answer(client, "gpu_start_kernel", kernelspec="python3.gpu-1"))["kernel_id"]
        estimate = await answer(client, "gpu_wait_estimate", kernel_id=waiting_id)
        assert (estimate["state"], estimate["queue_position"], estimate["queue_length"]) == ("queued", 1, 1)
        assert estimate["reason"].startswith("Needs 1 GPU")
        status = await answer(client, "gpu_status")
        assert {one["kernel_id"] for one in status["kernels"]} == {kernel_id, waiting_id}
        assert (status["user"], status["held_gpus"], len(status["devices"])) == ("alice", 0.5, 1)
        for one in (waiting_id, kernel_id):
            assert one in await answer(client, "gpu_end_kernel", kernel_id=one)
        await until(lambda: answer(client, "gpu_status"), lambda one: one["kernels"] == [])

    talk(gateway, talking, "--start-and-end")


@pytest.mark.parametrize(
    ("tool", "arguments", "token", "want"),
    [
        ("gpu_resize", {"kernel_id": "none", "gpus": 0.5}, TOKEN, "Kernel does not exist: none"),
        ("gpu_wait_estimate", {}, TOKEN, "Pass kernel_id or size"),
        ("gpu_wait_estimate", {"size": "huge"}, TOKEN, "huge"),
        ("gpu_status", {}, "a-wrong-token", "Forbidden"),
    ],
)
def test_a_refusal_reaches_the_agent_in_the_servers_words(
    gateway: LiveGateway, tool: str, arguments: dict[str, Any], token: str, want: str
) -> None:
    async def talking(client: Any) -> None:
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert want in result.content[0].text

    talk(gateway, talking, token=token)


def test_a_program_without_a_server_says_what_to_set() -> None:
    cleared = {name: one for name, one in os.environ.items() if not name.startswith("JUPYTER")}
    done = subprocess.run(PROGRAM, env=cleared, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Set JUPYTER_GATEWAY_URL" in done.stderr

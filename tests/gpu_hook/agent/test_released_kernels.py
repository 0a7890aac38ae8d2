"""Released kernels of which a process keeps memory, through restarts of the agent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_aliquot.gpu_hook.agent.base.processes import start_time_ticks
from jupyter_aliquot.gpu_hook.agent.kernels.reservations import Refused

if TYPE_CHECKING:
    from tests.gpu_hook.agent.conftest import ANode
    from tests.gpu_hook.agent.reservations_node import MIB, AProcess, AReservationsNode
else:
    from reservations_node import MIB, AProcess, AReservationsNode

GRACE_SECONDS = 0.05


def play(scenario: Callable[[AReservationsNode], Coroutine[Any, Any, None]], folder: Path) -> None:
    async def run() -> None:
        node = AReservationsNode(folder, GRACE_SECONDS)
        try:
            await asyncio.wait_for(scenario(node), 60)
        finally:
            await node.end(is_killed=True)

    asyncio.run(run())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_released_kernel_that_keeps_memory_is_counted_through_restarts(
    an_idle_node: ANode, open_holder: Callable[[], Any], number: signal.Signals
) -> None:
    node = an_idle_node
    node.start()
    holder = open_holder()
    holder.reserve("k", 100)
    process = node.a_hook_process("1000", "reconnect")
    process.stdout.readline()
    assert holder.ask("release", kernel_id="k")["released"] is True
    node.set_devices(count=1, processes={process.pid: 1000})
    for _ in range(2):
        node.end(number)
        node.start()
        assert node.status()["ending_kernels"] == ["k"], "a gateway counts it for its user"
        assert open_holder().reserve("l", 25)["code"] == "no_room"
    process.kill()
    node.until(lambda: node.status()["ending_kernels"] == [])
    assert open_holder().reserve("l", 100)["ok"]


def test_a_released_kernel_that_ends_while_the_agent_is_away_is_forgotten(
    an_idle_node: ANode, open_holder: Callable[[], Any]
) -> None:
    node = an_idle_node
    node.start()
    holder = open_holder()
    holder.reserve("k", 100)
    process = node.a_hook_process("1000", "reconnect")
    process.stdout.readline()
    assert holder.ask("release", kernel_id="k")["released"] is True
    node.end(signal.SIGKILL)
    process.kill()
    process.wait()
    node.start()
    assert node.kernel() is None
    assert open_holder().reserve("l", 100)["ok"]


def test_a_released_kernel_is_its_owners_again_after_a_restart(
    an_idle_node: ANode, open_holder: Callable[[], Any]
) -> None:
    node = an_idle_node
    node.start()
    holder = open_holder()
    before = holder.reserve("k", 100)["grant"]
    process = node.a_hook_process("1000", "reconnect")
    process.stdout.readline()
    holder.ask("release", kernel_id="k")
    node.end(signal.SIGKILL)
    node.start()
    holder = open_holder()
    assert holder.reserve("k", 100)["grant"] == before
    assert node.kernel()["ending"] is False
    node.until(lambda: node.kernel()["pids"] == [process.pid])
    assert holder.ask("release", kernel_id="k")["released"] is True
    assert node.status()["ending_kernels"] == ["k"], "its process came back, and keeps its memory"


def test_a_process_that_no_device_has_keeps_no_released_kernel(
    an_idle_node: ANode, open_holder: Callable[[], Any]
) -> None:
    """A program of the account can write any process into the kernel's record."""
    node = an_idle_node
    node.start()
    holder = open_holder()
    holder.reserve("k", 100)
    process = node.a_hook_process("1000", "reconnect")
    process.stdout.readline()
    assert holder.ask("release", kernel_id="k")["released"] is True
    node.end(signal.SIGKILL)
    process.kill()
    record = node.folder / "kernels" / "k" / "grant.json"
    told = json.loads(record.read_text())
    forged = {"pid": 1, "start_time_ticks": start_time_ticks(1)}
    record.write_text(json.dumps(told | {"sessions": [forged], "lent": [forged | {"amounts": [1000, 0]}]}))
    node.start()
    node.until(lambda: node.status()["ending_kernels"] == [])
    assert open_holder().reserve("l", 100)["ok"]


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_kernel_released_before_its_process_is_back_keeps_its_room(a_folder: Path, is_recorded: bool) -> None:
    """The record need not tell of loans within the guarantee."""

    async def scenario(node: AReservationsNode) -> None:
        kernel = node.reserve(node.a_connection(), "k", 100)
        process = AProcess(node.folder("k"))
        await process.hello()
        assert await process.borrow(900 * MIB) == 900 * MIB
        if is_recorded:
            kernel.write_journal()
        await node.end(is_killed=True)
        node.start()
        connection = node.a_connection()
        node.reserve(connection, "k", 100)
        node.reservations.release("k")
        await asyncio.sleep(4 * GRACE_SECONDS)
        node.look()
        assert list(node.reservations.ending) == ["k"]
        with pytest.raises(Refused):
            node.reserve(connection, "l", 100)
        process.close()

    play(scenario, a_folder)


def test_a_grant_outlasts_its_last_connection_longer_than_its_last_process(a_folder: Path) -> None:
    """A client whose agent was too busy to answer renews on another connection."""

    async def scenario() -> None:
        node = AReservationsNode(a_folder, orphan_seconds=0.0, reconnect_seconds=3600.0)
        waiting, other = node.a_connection(), node.a_connection()
        before = node.reserve(waiting, "waiting", 25)
        node.reserve(other, "ended", 25)
        process = AProcess(node.folder("ended"))
        await process.hello()
        node.reservations.drop_connection(waiting)
        node.reservations.drop_connection(other)
        process.close()
        await node.gone("ended")
        assert node.reserve(node.a_connection(), "waiting", 25) is before
        await node.end(is_killed=True)

    asyncio.run(asyncio.wait_for(scenario(), 60))


BORROWER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from reservations_node import MIB, AProcess
async def main():
    process = AProcess(Path({folder!r}))
    await process.hello()
    print(await process.borrow(900 * MIB) // MIB, flush=True)
asyncio.run(main())
"""


def test_a_kernel_that_is_requested_again_is_lent_no_byte_twice(a_folder: Path) -> None:
    async def scenario(node: AReservationsNode) -> None:
        node.reserve(node.a_connection(), "k", 100)
        first = AProcess(node.folder("k"))
        await first.hello()
        assert await first.borrow(900 * MIB) == 900 * MIB
        node.reservations.release("k")
        await node.end(is_killed=True)
        node.start()
        node.reserve(node.a_connection(), "k", 100)
        record = json.loads((node.folder("k") / "grant.json").read_text())
        assert record["is_ending"] is False
        code = BORROWER.format(tests=os.path.dirname(__file__), folder=str(node.folder("k")))
        second = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
        assert second.stdout is not None
        back = AProcess(node.folder("k"))
        await back.hello(900 * MIB)
        assert await second.stdout.readline() == b"0\n"
        await second.wait()
        back.close()

    play(scenario, a_folder)

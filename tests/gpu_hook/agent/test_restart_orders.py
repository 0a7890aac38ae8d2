"""Live kernels keep their reservation through any order of restarts of the agent and the gateway."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from jupyter_aliquot.gpu_hook.agent.base.processes import start_time_ticks
from jupyter_aliquot.gpu_hook.protocol.codec import Welcome

if TYPE_CHECKING:
    from tests.gpu_hook.agent.conftest import ANode
    from tests.gpu_hook.agent.reservations_node import MIB, AProcess, AReservationsNode, close_quietly
else:
    from reservations_node import MIB, AProcess, AReservationsNode, close_quietly

SHARE = 10  # hundredths of the one device
GRACE_SECONDS = 0.02
T = TypeVar("T")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_kernel_without_cuda_keeps_its_reservation_through_restarts_without_a_gateway(
    an_idle_node: ANode, open_holder: Callable[[], Any], number: signal.Signals
) -> None:
    node = an_idle_node
    node.start()
    sleeper = subprocess.Popen(["sleep", "600"])
    node.helpers.append(sleeper)
    holder = open_holder()
    holder.reserve()
    ticks = start_time_ticks(sleeper.pid)
    assert holder.ask("bind", kernel_id="k", pid=sleeper.pid, start_time_ticks=ticks)["ok"]
    for _ in range(3):
        node.end(number)
        node.start()
        journal = json.loads((node.folder / "kernels" / "k" / "grant.json").read_text())
        assert [process["pid"] for process in journal["bound"]] == [sleeper.pid]
    kernel = node.kernel()
    assert kernel is not None
    assert kernel["pids"] == [sleeper.pid]


class Restarts(RuleBasedStateMachine):
    """The restarts of agent and gateway in any order.

    ``gateway`` is its control connection, None while it is away. ``live`` has each kernel's
    process. ``using_cuda`` are the kernels whose process is connected to the agent, or tries to be.
    """

    kernels = Bundle("kernels")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
        self.node = self.do(self.begin())
        self.gateway: int | None = self.node.a_connection()
        self.live: dict[str, subprocess.Popen[bytes]] = {}
        self.using_cuda: dict[str, AProcess] = {}
        self.count = 0

    def do(self, work: Awaitable[T]) -> T:
        return self.loop.run_until_complete(work)

    async def begin(self) -> AReservationsNode:
        return AReservationsNode(self.folder, GRACE_SECONDS, GRACE_SECONDS)

    async def start_agent(self) -> None:
        self.node.start()

    def teardown(self) -> None:
        for process in self.live.values():
            process.kill()
            process.wait()
        for connection in self.using_cuda.values():
            close_quietly(connection)
        self.do(self.node.end(is_killed=True))
        self.loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @precondition(lambda self: self.gateway is not None and len(self.live) < 3)
    @rule(target=kernels)
    def a_kernel_starts(self) -> str:
        self.count += 1
        name = f"k{self.count}"
        self.live[name] = subprocess.Popen(["sleep", "600"])
        self.renew(name)
        return name

    @rule(name=kernels)
    def a_kernel_uses_cuda(self, name: str) -> None:
        """Let a kernel use CUDA for the first time, or again after the agent came back."""
        process = self.using_cuda.setdefault(name, AProcess(self.node.folder(name)))
        if not process.is_connected:
            assert isinstance(self.do(process.hello(process.lent)), Welcome)
            assert self.do(process.borrow(MIB)) == MIB

    @rule(name=consumes(kernels))
    def a_kernel_ends(self, name: str) -> None:
        self.live[name].kill()
        self.live.pop(name).wait()
        close_quietly(self.using_cuda.pop(name, AProcess(self.folder)))
        self.do(self.release(name))

    async def release(self, name: str) -> None:
        """End a kernel: the gateway notices the end, if it is there; else the agent does."""
        if self.gateway is not None:
            self.node.reservations.release(name)
            self.node.look(lists_processes=False)  # its process, which has the test's pid, is gone from the device
        await self.node.gone(name)

    @rule(is_killed=st.booleans())
    def the_agent_dies_and_another_starts(self, is_killed: bool) -> None:
        """Replace the agent.

        The gateway renews later, by ``the_gateway_comes_back``, or never.
        """
        self.do(self.node.end(is_killed=is_killed))
        for process in self.using_cuda.values():
            close_quietly(process)
        self.gateway = None
        self.do(self.start_agent())

    @precondition(lambda self: self.gateway is not None)
    @rule()
    def the_gateway_dies(self) -> None:
        assert self.gateway is not None
        self.do(self.drop(self.gateway))
        self.gateway = None

    async def drop(self, connection: int) -> None:
        self.node.reservations.drop_connection(connection)

    @precondition(lambda self: self.gateway is None)
    @rule()
    def the_gateway_comes_back(self) -> None:
        self.gateway = self.node.a_connection()
        for name in self.live:
            self.renew(name)

    def renew(self, name: str) -> None:
        self.do(self.reserve_and_bind(name))

    async def reserve_and_bind(self, name: str) -> None:
        assert self.gateway is not None
        self.node.reserve(self.gateway, name, SHARE)
        pid = self.live[name].pid
        self.node.reservations.bind(name, pid, start_time_ticks(pid) or 0)

    @rule()
    def time_passes(self) -> None:
        self.do(self.node.let_time_pass())

    @invariant()
    def every_live_kernel_has_its_reservation(self) -> None:
        found = {kernel.kernel_id: kernel for kernel in self.node.reservations.kernels}
        assert set(found) == set(self.live)
        assert all(process.pid in found[name].pids for name, process in self.live.items())
        assert not any(kernel.is_ending for kernel in found.values())
        self.node.ledger.check()

    @invariant()
    def its_memory_is_counted_while_it_is_connected(self) -> None:
        for name, process in self.using_cuda.items():
            if process.is_connected:
                assert self.node.ledger.accounts(name)[0].lent == process.lent


TestRestarts = Restarts.TestCase
TestRestarts.settings = settings(
    max_examples=60, stateful_step_count=20, deadline=None, phases=[Phase.explicit, Phase.generate]
)

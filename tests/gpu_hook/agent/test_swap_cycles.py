"""Agent, hook and software GPU: a working kernel is swapped at random.

It has several processes on two devices.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_aliquot.gpu_hook.agent.base.descriptors import Descriptors
from jupyter_aliquot.gpu_hook.agent.devices.nvml import softgpu_environment
from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import SoftGpuSettings
from jupyter_aliquot.gpu_hook.agent.host_copies.arena import Arena, HostBudget
from jupyter_aliquot.gpu_hook.agent.kernels.kernel import Kernel
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Entry, Reservation, Tally, read_entry
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts, Ledger
from jupyter_aliquot.gpu_hook.agent.swap.facts import Move, MoveResult
from jupyter_aliquot.gpu_hook.agent.swap.residency import SwapTools
from jupyter_aliquot.gpu_hook.agent.swap.settings import SwapSettings
from jupyter_aliquot.gpu_hook.agent.swap.table import LEASE_HELD, KernelState
from jupyter_aliquot.gpu_hook.paths import PathError, shim_dir, softgpu_driver
from jupyter_aliquot.gpu_hook.placement.placement import Part

if TYPE_CHECKING:
    from tests.gpu_hook.agent.residency_node import until
else:
    from residency_node import until

HERE = Path(__file__).parent
MIB = 1 << 20
SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))
MEMORY = 1024 * MIB
SETTINGS = SwapSettings(segment_bytes=16 * MIB, ring_bytes=8 * MIB, chunk_bytes=4 * MIB, drain_milliseconds=20_000)
LIST_DEVICES = """
import ctypes, uuid
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
for device in range(2):
    found = ctypes.create_string_buffer(16)
    assert cuda.cuDeviceGetUuid(found, device) == 0
    print("GPU-" + str(uuid.UUID(bytes=found.raw)))
"""


class AProcess:
    """One swap_program.py with the hook before the software GPU."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        line = (await asyncio.wait_for(self.process.stdout.readline(), 60)).decode().strip()
        assert line, f"the program ended with {await self.process.wait()}"
        return line

    async def ask(self, word: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        return await self.line()


class ARing:
    """A kernel with two whole devices on the test's own loop, and its processes."""

    def __init__(self, folder: Path, env: dict[str, str], uuids: list[str], mode: str) -> None:
        self.folder = folder / "k"
        self.parts = tuple(Part(uuid, index, 100, MEMORY) for index, uuid in enumerate(uuids))
        self.env = {**env, "ALIQUOT_KERNEL_DIR": str(self.folder)}
        self.processes: list[AProcess] = []
        self.woken = asyncio.Event()
        reservation = Reservation("k", "ada", 200, None, "production", "", {}, self.parts, 1.0, residency=mode)
        self.start(Entry(reservation, tallies=(Tally(), Tally())))

    def start(self, entry: Entry) -> None:
        self.ledger = Ledger()
        self.ledger.set_devices(DeviceFacts(part.uuid, part.index, "soft", MEMORY) for part in self.parts)
        self.ledger.reserve("k", self.parts)
        self.arena = Arena(HostBudget(1024 * MIB), SETTINGS.segment_bytes)
        tools = SwapTools(self.arena, SETTINGS)
        self.kernel = Kernel(entry, self.folder, self.ledger, 0.2, lambda *_: None, None, tools, Descriptors(1024))
        self.kernel.restore(entry)
        self.residency = self.kernel.residency
        self.residency.wants_wake = lambda _: self.woken.set()

    def restart_agent(self) -> None:
        entry = read_entry(self.folder)
        self.kernel.close(keep=True)
        self.arena.close()
        self.start(entry)

    async def a_process(self, threads: int) -> AProcess:
        command = [str(HERE / "swap_program.py"), str(threads)]
        pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
        process = AProcess(await asyncio.create_subprocess_exec(sys.executable, *command, env=self.env, **pipes))
        self.processes.append(process)
        assert await process.line() == "ready"
        return process

    async def work_goes_on(self) -> None:
        """Wait until each thread of each process has done some more steps."""
        for process in self.processes:
            assert await process.ask("work") == "True"

    async def verify(self) -> None:
        """Check that every buffer of every process is correct."""
        for process in self.processes:
            assert await process.ask("pause") == "True"
            assert int(await process.ask("verify")) > 0

    async def close(self) -> None:
        for process in self.processes:
            if process.process.returncode is None:
                process.process.kill()
            await process.process.wait()
        self.kernel.close(keep=False)
        self.arena.close()


Scenario = Callable[[ARing], Coroutine[Any, Any, None]]


@pytest.fixture
def play(a_folder: Path) -> Callable[..., None]:
    try:
        driver = softgpu_driver()
    except PathError as error:
        pytest.skip(f"no software GPU: {error}")
    knobs = softgpu_environment(a_folder / "softgpu", SoftGpuSettings(devices=2, memory_bytes=MEMORY))
    clean = {name: word for name, word in os.environ.items() if not name.startswith(("ALIQUOT_", "LD_", "CUDA_"))}
    env = {
        **clean,
        **knobs,
        "LD_LIBRARY_PATH": str(shim_dir()),
        "ALIQUOT_REAL_CUDA": str(driver.cuda),
        "ALIQUOT_REAL_NVML": str(driver.nvml),
        "ALIQUOT_HOOK_LOG": str(a_folder / "hook.log"),
    }
    plain = {**clean, **knobs, "LD_LIBRARY_PATH": str(driver.cuda.parent)}
    found = subprocess.run([sys.executable, "-c", LIST_DEVICES], env=plain, capture_output=True, text=True, check=True)

    def play(scenario: Scenario, mode: str = "vmm") -> None:
        async def run() -> None:
            ring = ARing(a_folder, env, found.stdout.split(), mode)
            try:
                await asyncio.wait_for(scenario(ring), max(250, 100 * SOAK))
                ring.ledger.check()
            finally:
                await ring.close()

        asyncio.run(run())

    return play


async def swap_out(ring: ARing) -> None:
    """Swap out, again if need be.

    A loaded machine, or four threads, may make the drain too slow.
    """
    for _ in range(20):
        move = await ring.residency.swap_out("test")
        if move.result is not MoveResult.BUSY:
            break
    assert move.is_done, move


@pytest.mark.soak
@pytest.mark.timeout(300 + 60 * SOAK)
def test_random_swaps_of_three_working_processes_change_no_byte(play: Callable[..., None]) -> None:
    async def scenario(ring: ARing) -> None:
        for _ in range(3):
            await ring.a_process(threads=2)
        chance = random.Random(5)
        for _ in range(20 * SOAK):
            await ring.work_goes_on()
            ring.woken.clear()
            await swap_out(ring)
            assert ring.residency.facts().swapped_bytes > 0
            if chance.random() < 0.7:
                await asyncio.wait_for(ring.woken.wait(), 60)  # its calls wake it
            move = await ring.residency.swap_in()
            assert move.is_done, move
        await ring.work_goes_on()
        await ring.verify()
        assert ring.residency.facts().swaps_in == 20 * SOAK

    play(scenario)


STEPS: list[tuple[str, Callable[[ARing], object]]] = [
    ("out", lambda ring: ring.arena.use.used_bytes),  # the agent is making host memory
    ("out", lambda ring: ring.residency.is_lease_ended),  # processes have their orders
    ("out", lambda ring: ring.residency.facts().swapped_bytes),  # one process is out
    ("in", lambda ring: True),  # processes have their orders
    # one process is in
    ("in", lambda ring: any(device.on_device_bytes for device in ring.residency.facts().devices)),
]


async def begin_to_move(ring: ARing, way: str, step: Callable[[ARing], object]) -> asyncio.Task[Move]:
    """Begin a move, and return at this step or later: the machine may be quicker than the test."""
    if way == "in":
        await swap_out(ring)
    # without warm memory, the arena takes time to make it
    await ring.arena.configure(HostBudget(0))
    await ring.arena.configure(HostBudget(1024 * MIB))
    moving = asyncio.create_task(ring.residency.swap_in() if way == "in" else ring.residency.swap_out("test"))
    await until(lambda: moving.done() or step(ring))
    return moving


@pytest.mark.soak
@pytest.mark.timeout(300 + 10 * SOAK)
@pytest.mark.parametrize(("way", "step"), STEPS)
def test_a_process_killed_at_a_step_of_a_swap_harms_no_other(
    play: Callable[..., None], way: str, step: Callable[[ARing], object]
) -> None:
    async def scenario(ring: ARing) -> None:
        for _ in range(2):
            await ring.a_process(threads=2)
        for _ in range(SOAK):
            victim = await ring.a_process(threads=2)
            await ring.work_goes_on()
            moving = await begin_to_move(ring, way, step)
            victim.process.kill()
            await victim.process.wait()
            ring.processes.remove(victim)
            assert (await moving).result in (MoveResult.DONE, MoveResult.BUSY)
            if ring.residency.facts().state is KernelState.SWAPPED:
                assert (await ring.residency.swap_in()).is_done
            await ring.work_goes_on()
            assert ring.kernel.pids == sorted(process.process.pid for process in ring.processes)
        await ring.verify()

    play(scenario)


@pytest.mark.soak
@pytest.mark.timeout(300 + 10 * SOAK)
@pytest.mark.parametrize(("way", "step"), STEPS)
def test_the_agent_may_end_at_a_step_of_a_swap(
    play: Callable[..., None], way: str, step: Callable[[ARing], object]
) -> None:
    async def scenario(ring: ARing) -> None:
        for _ in range(3):
            await ring.a_process(threads=1)
        for _ in range(SOAK):
            await ring.work_goes_on()
            moving = await begin_to_move(ring, way, step)
            ring.restart_agent()
            await moving
            await until(lambda: len(ring.kernel.pids) == 3)
            while ring.residency.facts().state not in LEASE_HELD:
                await ring.residency.swap_in()  # an unfinished move may end in the meantime, as a refusal
        await ring.work_goes_on()
        await ring.verify()

    play(scenario)


def test_a_process_that_starts_while_its_kernel_is_swapped_waits_with_it(play: Callable[..., None]) -> None:
    async def scenario(ring: ARing) -> None:
        await ring.a_process(threads=1)
        await ring.work_goes_on()
        assert await ring.processes[0].ask("pause") == "True"
        await swap_out(ring)
        ring.woken.clear()
        joining = asyncio.create_task(ring.a_process(threads=1))
        await asyncio.wait_for(ring.woken.wait(), 60)
        assert len(ring.kernel.pids) == 2
        assert (await ring.residency.swap_in()).is_done
        await joining
        assert await ring.processes[0].ask("go on") == "True"
        await ring.work_goes_on()
        await ring.verify()

    play(scenario)


def test_a_stopped_process_keeps_its_kernel_and_comes_back_when_it_goes_on(play: Callable[..., None]) -> None:
    async def scenario(ring: ARing) -> None:
        for _ in range(2):
            await ring.a_process(threads=1)
        await ring.work_goes_on()
        going, stopped = ring.processes
        stopped.process.send_signal(signal.SIGSTOP)
        move = await ring.residency.swap_out("test")
        assert move.result is MoveResult.SILENT, move
        assert ring.residency.facts().silent_pids == (stopped.process.pid,)
        assert await going.ask("work") == "True"  # the other process goes on
        stopped.process.send_signal(signal.SIGCONT)
        await until(lambda: not ring.residency.facts().silent_pids)
        await until(lambda: ring.residency.facts().state is KernelState.RESIDENT)
        await ring.work_goes_on()
        await ring.verify()
        assert ring.residency.facts().swapped_bytes == 0

    play(scenario)


def test_unified_memory_is_prefetched_without_host_memory_of_ours(play: Callable[..., None]) -> None:
    async def scenario(ring: ARing) -> None:
        for _ in range(2):
            await ring.a_process(threads=1)
        for _ in range(3):
            await ring.work_goes_on()
            await swap_out(ring)
            assert ring.residency.facts().swapped_bytes > 0
            assert ring.arena.use.used_bytes == 0
            assert (await ring.residency.swap_in()).is_done
        await ring.work_goes_on()
        await ring.verify()

    play(scenario, mode="managed")

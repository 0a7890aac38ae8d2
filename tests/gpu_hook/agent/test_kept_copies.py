"""Host copies that a process takes with it when it leaves the agent count until the process is gone."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_aliquot.gpu_hook.agent.base.descriptors import OF_A_WATCH, Descriptors
from jupyter_aliquot.gpu_hook.agent.base.processes import Process, start_time_ticks
from jupyter_aliquot.gpu_hook.agent.host_copies.arena import Arena, ArenaFullError, HostBudget
from jupyter_aliquot.gpu_hook.agent.host_copies.segments import open_for_process
from jupyter_aliquot.gpu_hook.agent.swap.facts import MoveResult

if TYPE_CHECKING:
    from tests.gpu_hook.agent.residency_node import ANodeHere, until
    from tests.gpu_hook.agent.scripted_hook import ScriptedHook
else:
    from residency_node import ANodeHere, until
    from scripted_hook import ScriptedHook

MIB = 1 << 20
PIECE = b"x" * MIB


def process_of(pid: int) -> Process:
    return Process(pid, start_time_ticks(pid) or 0)


def play(
    scenario: Callable[[Arena], Coroutine[Any, Any, None]],
    budget: int = 16 * MIB,
    descriptors: Descriptors | None = None,
) -> None:
    async def run() -> None:
        arena = Arena(HostBudget(budget), 4 * MIB, descriptors=descriptors)
        try:
            await asyncio.wait_for(scenario(arena), 60)
        finally:
            arena.close()

    asyncio.run(run())


def held(descriptor: int) -> int:
    return os.fstat(descriptor).st_blocks * 512


class TestArena:
    @pytest.fixture
    def a_process(self) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        yield process
        process.kill()
        process.communicate()

    @pytest.fixture
    def opened(self) -> Iterator[list[int]]:
        """Yield descriptors that the test has open, as a hostile process would."""
        descriptors: list[int] = []
        yield descriptors
        for descriptor in descriptors:
            os.close(descriptor)

    async def take_along(self, arena: Arena, number: int, pid: int, amount: int) -> None:
        arena.enter("k", number, process_of(pid))
        await arena.lend("k", number, amount)
        arena.leave("k", number)

    def test_it_counts_until_the_process_ends_and_is_emptied_then(
        self, a_process: subprocess.Popen[bytes], opened: list[int]
    ) -> None:
        async def scenario(arena: Arena) -> None:
            arena.enter("k", 1, process_of(a_process.pid))
            (segment,) = await arena.lend("k", 1, 4 * MIB)
            opened.append(open_for_process(segment))
            arena.leave("k", 1)
            arena.forget("k")
            assert (arena.use.used_bytes, arena.use.kept_bytes, held(opened[0])) == (4 * MIB,) * 3
            a_process.kill()
            await until(lambda: arena.use.used_bytes == 0)
            assert held(opened[0]) == 0

        play(scenario)

    def test_the_same_process_gets_no_more_meanwhile_and_the_budget_holds(
        self, a_process: subprocess.Popen[bytes]
    ) -> None:
        async def scenario(arena: Arena) -> None:
            await self.take_along(arena, 1, a_process.pid, 12 * MIB)
            arena.enter("k", 2, process_of(a_process.pid))
            with pytest.raises(ArenaFullError, match=f"process {a_process.pid} keeps 12582912 bytes of a copy"):
                await arena.lend("k", 2, 2 * MIB)
            with pytest.raises(ArenaFullError, match=", but 0 of 16777216 are free"):
                await arena.lend("other", 3, 8 * MIB)
            arena.leave("other", 3)
            arena.release("k", 2)
            await arena.lend("k", 2, 16 * MIB)

        play(scenario)

    def test_processes_of_a_kernel_keep_and_have_twice_its_quota_at_most(self) -> None:
        async def scenario(arena: Arena) -> None:
            await self.take_along(arena, 1, os.getpid(), 8 * MIB)
            await arena.lend("k", 2, 8 * MIB, 8 * MIB)
            with pytest.raises(ArenaFullError, match="have 8388608 and keep 8388608 more open, and twice its quota"):
                await arena.lend("k", 3, 2 * MIB, 8 * MIB)

        play(scenario, 64 * MIB)

    def test_what_is_filled_again_after_its_use_counts_until_it_is_closed(self, opened: list[int]) -> None:
        async def scenario(arena: Arena) -> None:
            arena.enter("k", 1, process_of(os.getpid()))
            (segment,) = await arena.lend("k", 1, 4 * MIB)
            opened.append(open_for_process(segment))
            arena.release("k", 1)
            arena.leave("k", 1)
            await until(lambda: arena.use.used_bytes == 0)
            for offset in range(0, 4 * MIB, MIB):
                os.pwrite(opened[0], PIECE, offset)
            await until(lambda: (arena.use.used_bytes, arena.kernel_bytes("k")) == (4 * MIB, 4 * MIB))
            os.close(opened.pop())
            await until(lambda: arena.use.used_bytes == 0)

        play(scenario)

    def test_segments_cost_their_kernel_descriptors_until_they_are_closed(
        self, a_process: subprocess.Popen[bytes], opened: list[int]
    ) -> None:
        async def scenario(arena: Arena) -> None:
            descriptors = arena.descriptors
            arena.enter("k", 1, process_of(a_process.pid))
            for amount in range(2, 114, 2):
                segments = await arena.lend("k", 1, amount * MIB)
            with pytest.raises(ArenaFullError, match="has 56 of the 112 descriptors of all kernels"):
                await arena.lend("k", 1, 114 * MIB)
            assert descriptors.held("k") == len(segments) == 56
            await arena.lend("other", 2, 2 * MIB)
            opened.append(open_for_process(segments[0]))
            arena.leave("k", 1)
            assert descriptors.held("k") == 56 + OF_A_WATCH
            a_process.kill()
            await until(lambda: descriptors.held("k") == 1, 20)
            os.close(opened.pop())
            await until(lambda: descriptors.held("k") == 0)

        play(scenario, 1024 * MIB, Descriptors(128))


class TestKernel:
    def play(self, folder: Path, scenario: Callable[[ANodeHere], Coroutine[Any, Any, None]]) -> None:
        async def run() -> None:
            node = ANodeHere(folder, budget=32 * MIB)
            try:
                await asyncio.wait_for(scenario(node), 60)
            finally:
                node.close()

        asyncio.run(run())

    def test_a_process_that_leaves_again_and_again_with_its_copy_pins_no_more_than_is_counted(
        self, a_folder: Path
    ) -> None:
        async def scenario(node: ANodeHere) -> None:
            hooks: list[ScriptedHook] = []
            for _ in range(6):
                hook = await node.a_hook(12)
                await node.residency.swap_out("test")
                hook.lose_agent()  # and keeps its segments
                hooks.append(hook)
                await until(lambda: not node.kernel.is_in_use)
                pinned = sum(held(descriptor) for one in hooks for descriptor, _ in one.segments.values())
                assert pinned <= node.arena.use.used_bytes <= 32 * MIB
            assert pinned <= 12 * MIB

        self.play(a_folder, scenario)

    def test_one_that_comes_back_with_its_copy_is_counted_once_and_moves_again(self, a_folder: Path) -> None:
        async def scenario(node: ANodeHere) -> None:
            hook = await node.a_hook(12)
            want_memory = hook.memory
            assert (await node.residency.swap_out("test")).is_done
            hook.lose_agent()
            await until(lambda: not node.kernel.is_in_use)
            assert node.arena.use.used_bytes == 12 * MIB
            await hook.connect()
            assert node.arena.use.used_bytes == 12 * MIB
            await until(lambda: hook.memory == want_memory)
            await until(lambda: node.arena.use.used_bytes == 0)
            assert (await node.residency.swap_out("again")).result is MoveResult.DONE

        self.play(a_folder, scenario)

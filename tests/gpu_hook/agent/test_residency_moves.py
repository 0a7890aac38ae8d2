"""A kernel moves whole or not at all, even if one of its processes is busy, silent or dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_aliquot.gpu_hook.agent.ledger.journal import read_entry
from jupyter_aliquot.gpu_hook.agent.swap.facts import MoveResult
from jupyter_aliquot.gpu_hook.agent.swap.table import KernelState
from jupyter_aliquot.gpu_hook.protocol.codec import HookPage, Lease, MessageType, Moved, MoveOutcome, Residency

if TYPE_CHECKING:
    from tests.gpu_hook.agent.residency_node import SETTINGS, ANodeHere, until
    from tests.gpu_hook.agent.scripted_hook import MIB
else:
    from residency_node import SETTINGS, ANodeHere, until
    from scripted_hook import MIB

Scenario = Callable[[ANodeHere], Coroutine[Any, Any, None]]


@pytest.fixture
def play(a_folder: Path) -> Callable[..., None]:
    def play(scenario: Scenario, **settings: Any) -> None:
        async def run() -> None:
            budget = settings.pop("budget", 256 * MIB)
            node = ANodeHere(a_folder, replace(SETTINGS, **settings), budget)
            try:
                await asyncio.wait_for(scenario(node), 60)
                node.ledger.check()
            finally:
                node.close()

        asyncio.run(run())

    return play


def test_three_processes_go_out_and_come_back_with_their_bytes(play: Any) -> None:
    async def scenario(node: ANodeHere) -> None:
        hooks = [await node.a_hook(mib, seed=mib) for mib in (3, 9, 0)]
        want = [hook.memory for hook in hooks]
        move = await node.residency.swap_out("test")
        assert (move.result, move.moved_bytes) == (MoveResult.DONE, 12 * MIB)
        assert [hook.residency for hook in hooks] == [Residency.SWAPPED] * 3
        assert [hook.lease for hook in hooks] == [Lease.ENDED] * 3
        assert [hook.memory for hook in hooks] == [b""] * 3
        facts = node.residency.facts()
        assert (facts.state, facts.swapped_bytes, facts.devices[0].on_device_bytes) == (
            KernelState.SWAPPED,
            12 * MIB,
            0,
        )
        assert node.arena.use.used_bytes == 14 * MIB  # in pieces of 2 MiB
        move = await node.residency.swap_in()
        assert (move.result, move.moved_bytes) == (MoveResult.DONE, 12 * MIB)
        assert [hook.memory for hook in hooks] == want
        assert [hook.lease for hook in hooks] == [Lease.HELD] * 3
        assert node.residency.facts().devices[0].on_device_bytes == 12 * MIB
        assert node.arena.use.warm_bytes == 14 * MIB

    play(scenario)


def test_one_busy_process_brings_the_others_back(play: Any) -> None:
    async def scenario(node: ANodeHere) -> None:
        hooks = [await node.a_hook(4, seed=number) for number in range(3)]
        want = [hook.memory for hook in hooks]
        for attempt in (1, 2):
            hooks[1].script = [MoveOutcome.BUSY]
            assert (await node.residency.swap_out("test")).result is MoveResult.BUSY
            facts = node.residency.facts()
            assert facts.state is KernelState.RESIDENT
            assert facts.refusal is not None
            assert facts.refusal.attempts == attempt
            assert [hook.memory for hook in hooks] == want
            assert [hook.lease for hook in hooks] == [Lease.HELD] * 3
            assert node.arena.use.warm_bytes == node.arena.use.used_bytes == 12 * MIB  # others may have it
        assert hooks[0].orders == [MessageType.SWAP_OUT, MessageType.SWAP_IN] * 2
        assert (await node.residency.swap_out("test")).is_done
        assert node.residency.facts().refusal is None

    play(scenario)


@pytest.mark.parametrize("way", ["out", "in"])
def test_a_process_that_dies_in_between_is_gone_and_the_others_move(play: Any, way: str) -> None:
    async def scenario(node: ANodeHere) -> None:
        one, dying = await node.a_hook(4, seed=1), await node.a_hook(4, seed=2)
        want = one.memory
        if way == "in":
            assert (await node.residency.swap_out("test")).is_done
        dying.goes_on.clear()
        move = asyncio.create_task(node.residency.swap_out("test") if way == "out" else node.residency.swap_in())
        await until(lambda: one.orders and one.orders[-1].name == f"SWAP_{way.upper()}")
        dying.die()
        assert (await move).is_done
        if way == "out":
            assert (await node.residency.swap_in()).is_done
        assert one.memory == want
        assert node.kernel.accounts[0].lent == 4 * MIB
        await until(lambda: node.arena.use.used_bytes == 4 * MIB)

    play(scenario)


def test_a_kernel_whose_last_process_died_starts_anew(play: Any) -> None:
    async def scenario(node: ANodeHere) -> None:
        hook = await node.a_hook(4)
        assert (await node.residency.swap_out("test")).is_done
        hook.die()
        await until(lambda: node.residency.state is KernelState.STARTING)
        assert not read_entry(node.folder).is_swapped
        again = await node.a_hook(2)
        assert again.lease is Lease.HELD
        await until(lambda: node.arena.use.used_bytes == 0)

    play(scenario)


def test_without_host_memory_nobody_is_told_to_move(play: Any) -> None:
    async def scenario(node: ANodeHere) -> None:
        hooks = [await node.a_hook(5, seed=number) for number in range(2)]
        move = await node.residency.swap_out("test")
        assert move.result is MoveResult.HOST_FULL
        assert "of host memory" in move.text
        assert [hook.orders for hook in hooks] == [[], []]
        assert [hook.lease for hook in hooks] == [Lease.HELD] * 2
        assert node.residency.state is KernelState.RESIDENT

    play(scenario, budget=8 * MIB)


def test_who_allocated_since_gets_more_segments_once(play: Any) -> None:
    async def scenario(node: ANodeHere) -> None:
        hook = await node.a_hook(9)
        want = hook.memory
        hook.reported_swappable = 2 * MIB
        hook.write_pages()
        assert (await node.residency.swap_out("test")).is_done
        assert hook.orders == [MessageType.SWAP_OUT] * 2
        assert (await node.residency.swap_in()).is_done
        assert hook.memory == want

    play(scenario)


def test_who_wants_more_than_it_was_lent_is_not_believed(play: Any) -> None:
    async def scenario(node: ANodeHere) -> None:
        hook = await node.a_hook(2)
        hook.bytes, hook.reported_swappable = 100 * MIB, 1 << 62
        hook.write_pages()
        assert (await node.residency.swap_out("test")).result is MoveResult.HOST_FULL
        assert hook.orders == [MessageType.SWAP_OUT]
        assert node.arena.use.used_bytes == 2 * MIB
        assert node.residency.facts().swappable_bytes == 2 * MIB

    play(scenario)


def test_no_room_at_a_wake_leaves_all_of_it_out(play: Any) -> None:
    async def scenario(node: ANodeHere) -> None:
        hooks = [await node.a_hook(4, seed=number) for number in range(3)]
        want = [hook.memory for hook in hooks]
        assert (await node.residency.swap_out("test")).is_done
        hooks[2].wake()
        await until(lambda: node.woken == 1)
        hooks[1].script = [MoveOutcome.NO_ROOM]
        assert (await node.residency.swap_in()).result is MoveResult.NO_ROOM
        assert [hook.residency for hook in hooks] == [Residency.SWAPPED] * 3
        facts = node.residency.facts()
        assert (facts.state, facts.devices[0].on_device_bytes) == (KernelState.SWAPPED, 0)
        assert facts.waits_since is not None
        assert node.woken == 2  # the keeper is woken again
        assert (await node.residency.swap_in()).is_done
        assert [hook.memory for hook in hooks] == want
        assert node.residency.facts().waited_seconds > 0

    play(scenario)


def test_a_late_answer_brings_back_who_went_out_after_all(play: Any) -> None:
    async def scenario(node: ANodeHere) -> None:
        one, stopped = await node.a_hook(4, seed=1), await node.a_hook(4, seed=2)
        want = [one.memory, stopped.memory]
        stopped.goes_on.clear()
        assert (await node.residency.swap_out("test")).result is MoveResult.SILENT
        assert node.residency.state is KernelState.RESIDENT
        assert one.memory == want[0]
        assert len(node.residency.facts().silent_pids) == 1
        assert (await node.residency.swap_out("test")).result is MoveResult.SILENT  # not again before it answered
        assert one.orders == [MessageType.SWAP_OUT, MessageType.SWAP_IN]
        stopped.goes_on.set()
        await until(lambda: stopped.orders == [MessageType.SWAP_OUT, MessageType.SWAP_IN])
        await until(lambda: node.residency.state is KernelState.RESIDENT)
        assert [one.memory, stopped.memory] == want
        assert node.residency.facts().silent_pids == ()
        assert (await node.residency.swap_out("test")).is_done

    play(scenario, patience_seconds=1.5)


def test_nobody_waits_at_a_wake_for_who_does_not_answer(play: Any) -> None:
    async def scenario(node: ANodeHere) -> None:
        one, stopped = await node.a_hook(4, seed=1), await node.a_hook(4, seed=2)
        want = [one.memory, stopped.memory]
        assert (await node.residency.swap_out("test")).is_done
        stopped.goes_on.clear()
        assert (await node.residency.swap_in()).is_done
        assert one.memory == want[0]
        assert node.residency.facts().devices[0].on_device_bytes == 8 * MIB  # the room of both is its own
        stopped.goes_on.set()
        await until(lambda: stopped.memory == want[1])
        await until(lambda: node.arena.use.warm_bytes == 8 * MIB)

    play(scenario, patience_seconds=1.5)


def test_who_joins_a_swapped_kernel_finds_the_lease_ended(play: Any) -> None:
    async def scenario(node: ANodeHere) -> None:
        await node.a_hook(4)
        assert (await node.residency.swap_out("test")).is_done
        child = await node.a_hook(0)
        assert child.lease is Lease.ENDED
        child.wake()
        await until(lambda: node.woken == 1)
        child.wake()
        assert (await node.residency.swap_in()).is_done
        assert child.lease is Lease.HELD
        assert child.orders == []

    play(scenario)


def test_a_swap_out_that_still_makes_host_memory_can_be_called_off(play: Any) -> None:
    async def scenario(node: ANodeHere) -> None:
        hook = await node.a_hook(64)
        move = asyncio.create_task(node.residency.swap_out("test"))
        await until(lambda: node.residency.state is KernelState.SWAPPING_OUT)
        node.residency.call_off()
        assert (await move).result is MoveResult.IGNORED
        assert hook.orders == []
        assert node.residency.state is KernelState.RESIDENT
        await until(lambda: node.arena.use.used_bytes == node.arena.use.warm_bytes)
        assert (await node.residency.swap_out("test")).is_done

    play(scenario)


def test_a_moved_that_answers_nothing_ends_the_connection(play: Any) -> None:
    async def scenario(node: ANodeHere) -> None:
        hook = await node.a_hook(4)
        hook.send(Moved(MoveOutcome.DONE, Residency.SWAPPED, sequence=77))
        await until(lambda: hook.refusal is not None)

    play(scenario)


def test_who_says_unasked_that_it_is_out_is_brought_back(play: Any) -> None:
    async def scenario(node: ANodeHere) -> None:
        hook = await node.a_hook(4)
        hook.residency = Residency.SWAPPED
        hook.segments = {}
        hook.write_pages()
        hook.say_moved(MoveOutcome.DONE, 0)
        await until(lambda: hook.orders == [MessageType.SWAP_IN])
        await until(lambda: node.residency.state is KernelState.RESIDENT)

    play(scenario)


def test_claims_of_the_page_are_bounded_by_what_was_lent(play: Any) -> None:
    async def scenario(node: ANodeHere) -> None:
        hook = await node.a_hook(4)
        for word in (HookPage.SWAPPABLE, HookPage.SWAPPED):
            hook.set_word(HookPage.DEVICES + word, (1 << 64) - 1)
        device = node.residency.facts().devices[0]
        assert (device.lent_bytes, device.swappable_bytes, device.swapped_bytes) == (4 * MIB, 4 * MIB, 0)
        assert device.on_device_bytes == 4 * MIB

    play(scenario)


class TestRestart:
    """The agent ends at a step of a swap; the next one continues from there."""

    def test_a_swapped_kernel_stays_swapped_and_wakes(self, play: Any) -> None:
        async def scenario(node: ANodeHere) -> None:
            hooks = [await node.a_hook(4, seed=number) for number in range(2)]
            want = [hook.memory for hook in hooks]
            assert (await node.residency.swap_out("test")).is_done
            await node.restart()
            assert node.residency.state is KernelState.SWAPPED
            for hook in hooks:
                await hook.connect()
                assert hook.lease is Lease.ENDED
            await until(lambda: node.arena.use.adopted_bytes == 8 * MIB)
            assert node.residency.facts().devices[0].on_device_bytes == 0
            assert (await node.residency.swap_in()).is_done
            assert [hook.memory for hook in hooks] == want
            assert node.arena.use.used_bytes == 0
            assert (await node.residency.swap_out("test")).is_done

        play(scenario)

    @pytest.mark.parametrize("way", ["out", "in"])
    @pytest.mark.parametrize("hears", [True, False], ids=["answered", "unanswered"])
    def test_a_half_done_move_is_a_swapped_kernel(self, play: Any, way: str, hears: bool) -> None:
        async def scenario(node: ANodeHere) -> None:
            one, late = await node.a_hook(4, seed=1), await node.a_hook(4, seed=2)
            want = [one.memory, late.memory]
            if way == "in":
                assert (await node.residency.swap_out("test")).is_done
            late.goes_on.clear()
            move = asyncio.create_task(node.residency.swap_out("test") if way == "out" else node.residency.swap_in())
            await until(lambda: one.orders and one.orders[-1].name == f"SWAP_{way.upper()}")
            if hears:
                await until(lambda: node.residency.facts().swapped_bytes == 4 * MIB)
            await node.restart()
            assert not (await move).is_done
            late.goes_on.set()
            for hook in node.hooks:
                await hook.connect()
            assert node.residency.state is KernelState.SWAPPED
            facts = node.residency.facts()
            assert (facts.swapped_bytes, facts.devices[0].on_device_bytes) == (4 * MIB, 4 * MIB)
            assert (await node.residency.swap_in()).is_done
            assert [hook.memory for hook in node.hooks] == want
            node.ledger.check()
            assert node.kernel.accounts[0].lent == 8 * MIB

        play(scenario)

    def test_who_came_back_out_to_an_agent_that_knew_of_nothing_is_brought_in(self, play: Any) -> None:
        async def scenario(node: ANodeHere) -> None:
            hook = await node.a_hook(4)
            want = hook.memory
            entry = read_entry(node.folder)
            assert (await node.residency.swap_out("test")).is_done
            hook.lose_agent()
            node.kernel.close(keep=True)
            node.arena.close()
            node.start(entry)
            await hook.connect()
            await until(lambda: hook.memory == want)
            await until(lambda: node.residency.state is KernelState.RESIDENT)

        play(scenario)


def test_no_phase_of_a_move_takes_longer_than_the_move_whatever_a_hook_says(play: Any) -> None:
    async def scenario(node: ANodeHere) -> None:
        hook = await node.a_hook(4, seed=1)
        say, long = hook.send, (1 << 64) - 1
        hook.send = lambda message: say(  # type: ignore[method-assign]
            replace(message, drain_nanoseconds=long, copy_nanoseconds=long, map_nanoseconds=long)
            if isinstance(message, Moved)
            else message
        )
        move = await node.residency.swap_out("test")
        assert move.is_done
        assert max(move.drain_seconds, move.copy_seconds, move.map_seconds) <= move.seconds < 60

    play(scenario)

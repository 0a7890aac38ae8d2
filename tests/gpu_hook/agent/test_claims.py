"""Claims in HELLO: bounded by the kernel's grant and the process's loan.

No false claim takes others' room.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jupyter_aliquot.gpu_hook.agent.base.processes import start_time_ticks
from jupyter_aliquot.gpu_hook.agent.sessions.acceptor import MESSAGES_A_SECOND, MESSAGES_AT_ONCE, journal_tokens
from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import (
    Credit,
    HelloDevice,
    HookPage,
    MessageType,
    Refuse,
    Residency,
    Role,
    Welcome,
)

if TYPE_CHECKING:
    from tests.gpu_hook.agent.reservations_node import (
        CARD,
        MIB,
        RAW_UUID,
        UUID,
        AProcess,
        AReservationsNode,
        close_quietly,
    )
    from tests.gpu_hook.agent.residency_node import until
else:
    from reservations_node import CARD, MIB, RAW_UUID, UUID, AProcess, AReservationsNode, close_quietly
    from residency_node import until

T = TypeVar("T")
HALF = CARD // 2


def play(scenario: Callable[[AReservationsNode], Coroutine[Any, Any, None]], folder: Path) -> None:
    async def run() -> None:
        node = AReservationsNode(folder)
        try:
            await asyncio.wait_for(scenario(node), 60)
        finally:
            await node.end(is_killed=True)

    asyncio.run(run())


@pytest.mark.parametrize("limit", [None, CARD], ids=["rigid", "burstable"])
def test_a_lie_in_a_first_hello_takes_no_room_from_a_neighbour(a_folder: Path, limit: int | None) -> None:
    async def scenario(node: AReservationsNode) -> None:
        connection = node.a_connection()
        node.reserve(connection, "victim", 50)
        node.reserve(connection, "evil", 1, limit)
        victim, evil = AProcess(node.folder("victim")), AProcess(node.folder("evil"))
        await victim.hello()
        assert await victim.borrow(100 * MIB) == 100 * MIB
        answer = await evil.hello(CARD)
        assert isinstance(answer, Refuse)
        assert f"claims {CARD} bytes" in answer.text
        assert await victim.borrow(HALF - 100 * MIB) == HALF - 100 * MIB
        victim.close()

    play(scenario, a_folder)


@pytest.mark.parametrize("tells_processes", [True, False])
def test_a_page_that_says_less_than_its_process_has_takes_no_room_from_a_neighbour(
    a_folder: Path, tells_processes: bool
) -> None:
    async def scenario(node: AReservationsNode) -> None:
        connection = node.a_connection()
        node.reserve(connection, "victim", 50)
        node.reserve(connection, "evil", 50)
        victim, evil = AProcess(node.folder("victim")), AProcess(node.folder("evil"))
        for process in (victim, evil):
            await process.hello()
        assert await evil.borrow(HALF) == HALF
        evil.write_page(HookPage.CHARGED, 0)
        evil.write_page(HookPage.SWAPPABLE, HALF)
        node.look(tells_processes=tells_processes)
        assert await victim.borrow(HALF) == HALF
        for process in (victim, evil):
            process.close()

    play(scenario, a_folder)


def test_what_a_page_hides_is_no_context_however_often_it_is_seen(a_folder: Path) -> None:
    """The audit takes hidden bytes for contexts; the status reports all bytes that are there."""

    async def scenario(node: AReservationsNode) -> None:
        connection = node.a_connection()
        node.reserve(connection, "victim", 50)
        kernel = node.reserve(connection, "evil", 50)
        victim, evil = AProcess(node.folder("victim")), AProcess(node.folder("evil"))
        for process in (victim, evil):
            await process.hello()
        assert await evil.borrow(HALF) == HALF
        evil.write_page(HookPage.CHARGED, 0)
        for _ in range(3):
            node.ledger.contexts.note_seen({("evil", UUID): HALF})
        node.look()
        assert node.ledger.accounts("evil")[0].context_bytes == HALF
        reading = kernel.read()
        assert (reading.charged, reading.on_devices) == ({UUID: 0}, {UUID: HALF})
        assert node.reservations.on_devices()[UUID] == HALF
        assert await victim.borrow(HALF) == HALF
        for process in (victim, evil):
            process.close()

    play(scenario, a_folder)


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_process_comes_back_with_burstable_memory_that_others_are_guaranteed(a_folder: Path, is_killed: bool) -> None:
    async def scenario(node: AReservationsNode) -> None:
        connection = node.a_connection()
        node.reserve(connection, "big", 90)
        kernel = node.reserve(connection, "small", 10, CARD)
        process = AProcess(node.folder("small"))
        await process.hello()
        assert await process.borrow(300 * MIB) == 300 * MIB
        assert await process.borrow(100 * MIB) == 100 * MIB
        await node.end(is_killed=is_killed)
        process.close()
        node.start()
        assert isinstance(await process.hello(400 * MIB + 1), Refuse)
        assert isinstance(await process.hello(400 * MIB), Welcome)
        assert node.ledger.accounts(kernel.kernel_id)[0].lent == 400 * MIB
        process.close()

    play(scenario, a_folder)


def test_what_a_process_holds_beyond_a_smaller_limit_comes_back_with_it(a_folder: Path) -> None:
    async def scenario(node: AReservationsNode) -> None:
        node.reserve(node.a_connection(), "k", 50)
        process = AProcess(node.folder("k"))
        await process.hello()
        assert await process.borrow(HALF) == HALF
        node.reservations.resize("k", 25, None, None)
        await node.end(is_killed=True)
        process.close()
        node.start()
        assert isinstance(await process.hello(HALF), Welcome)
        assert await process.borrow(1) == 0
        process.close()

    play(scenario, a_folder)


def test_a_process_that_lost_its_connection_comes_back_with_what_it_was_lent(a_folder: Path) -> None:
    async def scenario(node: AReservationsNode) -> None:
        connection = node.a_connection()
        node.reserve(connection, "big", 90)
        kernel = node.reserve(connection, "small", 10, CARD)
        process = AProcess(node.folder("small"))
        await process.hello()
        assert await process.borrow(400 * MIB) == 400 * MIB
        process.close()
        await until(lambda: not kernel.is_in_use)
        assert isinstance(await process.hello(400 * MIB), Welcome)
        process.close()

    play(scenario, a_folder)


def test_refusals_of_ended_processes_outlive_an_agent_for_a_process_that_comes_back(a_folder: Path) -> None:
    async def scenario(node: AReservationsNode) -> None:
        kernel = node.reserve(node.a_connection(), "k", 50)
        main, watcher = AProcess(node.folder("k")), AProcess(node.folder("k"))
        await main.hello()
        kernel.usage._tallies[0] = replace(kernel.usage._tallies[0], refusals=7, needed_bytes=900 * MIB)
        kernel.write_journal()
        await node.end(is_killed=True)
        main.close()
        node.start()
        for process, role in ((watcher, Role.OBSERVER), (main, Role.PROCESS)):
            assert isinstance(await process.hello(role=role), Welcome)
            tally = node.kernel("k").usage._tallies[0]
            assert (tally.refusals, tally.needed_bytes) == (7, 900 * MIB)
        for process in (main, watcher):
            process.close()

    play(scenario, a_folder)


def test_what_failed_is_over_once_the_kernel_was_started_again(a_folder: Path) -> None:
    async def scenario(node: AReservationsNode) -> None:
        kernel = node.reserve(node.a_connection(), "k", 50)

        def needed_after(pid: int) -> int:
            node.reservations.bind("k", pid, start_time_ticks(pid) or 0)
            return kernel.usage._tallies[0].needed_bytes

        needed_after(os.getpid())
        kernel.usage._tallies[0] = replace(kernel.usage._tallies[0], needed_bytes=900 * MIB)
        assert needed_after(os.getpid()) == 900 * MIB, "the same process, which a gateway found again"
        assert needed_after(os.getppid()) == 0

    play(scenario, a_folder)


def test_growth_that_is_written_down_costs_its_kernel_and_a_neighbour_is_answered(a_folder: Path) -> None:
    async def scenario(node: AReservationsNode) -> None:
        connection = node.a_connection()
        kernel, written = node.reserve(connection, "evil", 10, CARD), 0
        node.reserve(connection, "victim", 50)
        processes, neighbour = [AProcess(node.folder("evil")) for _ in range(30)], AProcess(node.folder("victim"))
        for process in (*processes, neighbour):
            await process.hello()
        assert await processes[0].borrow(CARD // 10 + MIB) == CARD // 10 + MIB, "beyond what it is guaranteed"

        claims: Any = kernel._claims
        write = claims._write_journal

        def count() -> None:
            nonlocal written
            written += 1
            write()

        claims._write_journal = count
        began, sent = time.monotonic(), 0
        for process in processes:
            with contextlib.suppress(BlockingIOError):
                for _ in range(20):
                    process.send(Credit(MessageType.CREDIT_REQUEST, 0, 512, 1, 1))
                    sent += 1
        while written < 50:  # the agent handles messages that came together in any order
            assert await neighbour.borrow(4096) == 4096
        read = MESSAGES_AT_ONCE + MESSAGES_A_SECOND * (time.monotonic() - began)
        assert sent > 200
        assert written <= read / journal_tokens(30) + 1
        for process in (*processes, neighbour):
            process.close()

    play(scenario, a_folder)


class TwoKernels(RuleBasedStateMachine):
    """Two kernels, one of them hostile.

    ``evil`` sends anything over any number of connections; ``victim`` may always have its
    guarantee.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
        self.evil: list[AProcess] = []
        self.node = self.do(self.begin())
        self.victim = AProcess(self.node.folder("victim"))

    def do(self, work: Awaitable[T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    async def begin(self) -> AReservationsNode:
        return AReservationsNode(self.folder, 0.02)

    def teardown(self) -> None:
        for process in (*self.evil, self.victim):
            close_quietly(process)
        self.do(self.node.end(is_killed=True))
        self.loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @initialize(share=st.one_of(st.just(50), st.integers(1, 50)), limit=st.sampled_from([None, CARD]))
    def reserve(self, share: int, limit: int | None) -> None:
        """Reserve without a request of evil for burstable memory.

        The agent lends such memory from unused guarantees of others.
        """
        self.may_borrow, self.size = limit is None, (share, limit)
        self.do(self.reserve_both())
        self.do(self.victim.hello())

    async def reserve_both(self) -> None:
        connection = self.node.a_connection()
        self.node.reserve(connection, "victim", 50)
        self.node.reserve(connection, "evil", *self.size)

    @rule(
        claim=st.integers(0, 2 * CARD),
        credit=st.integers(0, CARD),
        role=st.sampled_from(Role),
        residency=st.sampled_from(Residency),
        with_host=st.booleans(),
    )
    def say_hello(self, claim: int, credit: int, role: Role, residency: Residency, with_host: bool) -> None:
        table = (HelloDevice(RAW_UUID, claim, credit),) if claim or credit else ()
        table += (HelloDevice(protocol.HOST_UUID, claim, 0),) if with_host else ()
        process = AProcess(self.node.folder("evil"))
        if isinstance(self.do(process.say(protocol.Hello(role, 1, 2, "evil", table, residency=residency))), Welcome):
            self.evil.append(process)

    @rule(
        seed=st.integers(0, 1 << 32), device=st.sampled_from([0, 1, protocol.HOST_MEMORY]), amount=st.integers(0, CARD)
    )
    def say_anything(self, seed: int, device: int, amount: int) -> None:
        if not self.evil:
            return
        chance = random.Random(seed)
        kinds = [MessageType.CREDIT_RETURN, MessageType.CREDIT_RECALL, MessageType.CREDIT_GRANT]
        kinds += [MessageType.CREDIT_REQUEST] if self.may_borrow else []
        message = protocol.pack(Credit(chance.choice(kinds), device, amount, chance.randrange(4)))
        moved = protocol.Moved(
            chance.choice(list(protocol.MoveOutcome)),
            chance.choice(list(Residency)),
            (protocol.MovedDevice(amount, amount),),
            protocol.PinReason(0),
            amount,
            1,
            2,
            3,
            "",
            chance.randrange(2),
        )
        said = chance.choice([message, protocol.pack(moved), protocol.pack(protocol.Wake(amount & 7))])
        self.do(self.send(chance.choice(self.evil), said))

    async def send(self, process: AProcess, said: bytes) -> None:
        try:
            process.send(said)
        except OSError:
            self.evil.remove(process)
            process.close()
        await asyncio.sleep(0.001)

    @rule(
        word=st.sampled_from([HookPage.CHARGED, HookPage.SWAPPABLE, HookPage.PEAK]),
        said=st.one_of(st.integers(0, CARD), st.integers(0, (1 << 64) - 1)),
    )
    def write_anything(self, word: int, said: int) -> None:
        for process in self.evil:
            process.write_page(word, said)

    @precondition(lambda self: self.evil and self.may_borrow)
    @rule(hundredths=st.sampled_from([100, 90, 50]))
    def borrow_of_what_is_left(self, hundredths: int) -> None:
        """A look, and the page's figures, matter where much is lent."""
        amount = self.node.ledger.accounts("evil")[0].room * hundredths // 100
        self.do(self.send(self.evil[0], protocol.pack(Credit(MessageType.CREDIT_REQUEST, 0, amount, 1, 1))))

    @rule()
    def look_at_the_device(self) -> None:
        self.node.look()

    @rule()
    def close_one(self) -> None:
        if self.evil:
            self.evil.pop().close()

    @rule(is_killed=st.booleans())
    def restart_the_agent(self, is_killed: bool) -> None:
        self.do(self.node.end(is_killed=is_killed))
        for process in (*self.evil, self.victim):
            close_quietly(process)
        self.evil.clear()
        self.do(self.begin_again())
        assert isinstance(self.do(self.victim.hello(self.victim.lent)), Welcome)

    async def begin_again(self) -> None:
        self.node.start()
        await self.reserve_both()

    @invariant()
    def victim_may_have_all_that_it_is_guaranteed(self) -> None:
        self.do(self.borrow_all())

    async def borrow_all(self) -> None:
        missing = HALF - self.victim.lent
        assert await self.victim.borrow(missing) == missing
        self.victim.give_back(missing)

    @invariant()
    def evil_has_no_more_than_its_limit(self) -> None:
        account, host = self.node.ledger.accounts("evil")[0], self.node.ledger.host_account("evil")
        assert account.lent <= account.quota_bytes
        assert host.lent <= host.quota_bytes
        assert self.may_borrow or account.lent <= HALF
        self.node.ledger.check()


TestTwoKernels = TwoKernels.TestCase
TestTwoKernels.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, phases=[Phase.explicit, Phase.generate]
)

"""The agent's writes of a kernel's record: their number, and those before a process's answer."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from reservations_node import CARD, MIB, AProcess, AReservationsNode

from jupyter_aliquot.gpu_hook.agent.ledger import journal
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Entry, read_entry
from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import Role, Welcome


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    """Record the entries from the first write on."""
    written: list[Entry] = []
    write = journal.write_entry

    def count(folder: Path, entry: Entry) -> None:
        written.append(entry)
        write(folder, entry)

    monkeypatch.setattr(journal, "write_entry", count)
    return written


def play(scenario: Callable[[AReservationsNode], Awaitable[None]], folder: Path) -> None:
    async def on_a_node() -> None:
        node = AReservationsNode(folder)
        await scenario(node)
        await node.end(is_killed=False)

    asyncio.run(on_a_node())


def connect(folder: Path) -> socket.socket:
    process = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process.connect(str(folder / protocol.SOCKET_NAME))
    return process


def say_hello(process: socket.socket) -> None:
    process.send(protocol.pack(protocol.Hello(Role.PROCESS, os.getpid(), 0, "test", ())))


async def until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not claim():
        assert time.monotonic() < deadline, "the claim did not come true in time"
        await asyncio.sleep(0)


def test_processes_that_come_after_the_first_or_go_together_are_written_once(
    a_folder: Path, writes: list[Entry]
) -> None:
    async def scenario(node: AReservationsNode) -> None:
        kernel = node.reserve(node.a_connection(), "k", 50)
        before = len(writes)
        processes = [connect(node.folder("k")) for _ in range(10)]
        await until(lambda: len(kernel._acceptor._unregistered) == 10)
        for process in processes:
            say_hello(process)
        await until(lambda: len(kernel._sessions) == 10)
        await asyncio.sleep(0)
        assert len(writes) - before == 2
        assert len(writes[-1].sessions) == 10
        for process in processes:
            process.close()
        await until(lambda: not kernel.is_in_use)
        await asyncio.sleep(0)
        assert len(writes) - before == 3
        assert not writes[-1].sessions

    play(scenario, a_folder)


def test_an_observer_is_not_written_down(a_folder: Path, writes: list[Entry]) -> None:
    async def scenario(node: AReservationsNode) -> None:
        kernel = node.reserve(node.a_connection(), "k", 50)
        before, observer = len(writes), AProcess(node.folder("k"))
        assert isinstance(await observer.hello(role=Role.OBSERVER), Welcome)
        await asyncio.sleep(0)
        observer.close()
        await until(lambda: not kernel.is_in_use)
        await asyncio.sleep(0)
        assert len(writes) == before

    play(scenario, a_folder)


def test_what_a_process_is_lent_or_claims_beyond_the_guarantee_is_on_disk_before_its_answer(a_folder: Path) -> None:
    """The test reads the record between the answer's arrival and the agent's next turn."""

    async def scenario(node: AReservationsNode) -> None:
        amount = CARD // 10 + 64 * MIB
        kernel = node.reserve(node.a_connection(), "k", 10, CARD)
        process = AProcess(node.folder("k"))
        seen: list[int] = []
        receive = process.receive

        async def receive_and_look() -> protocol.Message | None:
            answer = await receive()
            seen.append(sum(one.amounts[0] for one in read_entry(node.folder("k")).lent or ()))
            return answer

        process.receive = receive_and_look  # type: ignore[method-assign]
        await process.hello()
        assert await process.borrow(amount) == amount
        assert seen[-1] == amount
        process.close()
        await until(lambda: not kernel.is_in_use)
        assert isinstance(await process.hello(amount), Welcome)
        assert seen[-1] == amount
        process.close()

    play(scenario, a_folder)


def test_an_agent_that_ends_writes_down_who_came_in_its_last_turn(a_folder: Path) -> None:
    async def scenario() -> None:
        node = AReservationsNode(a_folder)
        kernel = node.reserve(node.a_connection(), "k", 50)
        process = connect(node.folder("k"))
        say_hello(process)
        joined: list[int] = []
        join = kernel.join

        def join_and_end(session: object, hello: object) -> None:
            join(session, hello)  # type: ignore[arg-type]
            kernel.close(keep=True)
            joined.extend(one.pid for one in read_entry(node.folder("k")).sessions)

        kernel.join = join_and_end  # type: ignore[method-assign]
        await until(lambda: bool(joined))
        assert joined == [os.getpid()]
        process.close()
        await node.end(is_killed=True)

    asyncio.run(scenario())

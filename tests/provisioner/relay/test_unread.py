"""A kernel that does not read: its backlog is bounded, and it goes on later.

The relay answers messages beyond the bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from typing import Any

import zmq
from relay_house import Gateway, House, a_client, ipykernel, parent, soon, until, until_true
from started import stopped

from jupyter_aliquot.provisioner.relay.client import control as client

MOST = 2 << 20
PADDING = "#" * (128 << 10)
FLOOD = 64  # four times the bound
# Beside the relay's backlog: two messages in ZMQ, and the buffer of a socket of the kernel's
# system.
ON_THEIR_WAY = 2 * len(PADDING) + (1 << 19)
ONE = len(PADDING) + 4096
LONGEST_WORDS = 4096


async def ask_status(record: client.RelayRecord) -> dict[str, Any]:
    return dict((await soon(client._ask(record.link_socket, {"op": "status"}, "the relay"))).header)


async def unread(record: client.RelayRecord) -> dict[str, int]:
    found: dict[str, int] = (await ask_status(record))["unread"]
    return found


async def flood(record: client.RelayRecord, gateway: Gateway, code: str = "seen.append({n})") -> list[str]:
    """Send many times the bound; return when the relay has taken all of it."""
    asked = [gateway.execute(code.format(n=number) + PADDING) for number in range(FLOOD)]
    while gateway.link.untaken:
        assert (await unread(record))["bytes"] <= MOST + (1 << 20)
    return asked


def refused(gateway: Gateway, asked: list[str]) -> list[str]:
    """Return the requests that were answered with a refusal, as often as a page needs."""

    def is_refused(msg_id: str) -> bool:
        its = [
            m for m in gateway.messages if parent(m) == msg_id and m["content"].get("ename") == "KernelNotResponding"
        ]
        return {m["msg_type"] for m in its} == {"error", "execute_reply"}

    return [msg_id for msg_id in asked if is_refused(msg_id)]


class Deaf:
    """A kernel that reads one channel, if any: bound where kernels bind, on ZMQ's own sockets."""

    def __init__(self, record: client.RelayRecord) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self.sockets: dict[str, Any] = {}
        where = json.loads(record.kernel_connection_file.read_text())
        for channel in ("shell", "control", "stdin", "hb", "iopub"):
            made = self.sockets[channel] = self._context.socket(zmq.PUB if channel == "iopub" else zmq.ROUTER)
            made.rcvhwm, made.linger = 1, 0
            made.bind(f"ipc://{where['ip']}-{where[f'{channel}_port']}")

    def read(self, channel: str) -> str:
        """Return the type of the next message there, empty without one."""
        with contextlib.suppress(zmq.Again):
            frames = self.sockets[channel].recv_multipart(zmq.NOBLOCK)
            return str(json.loads(frames[frames.index(b"<IDS|MSG>") + 2])["msg_type"])
        return ""

    def end(self) -> None:
        self._context.destroy(linger=0)


async def connected(record: client.RelayRecord, gateway: Gateway) -> None:
    async def has_started() -> bool:
        return bool((await ask_status(record))["kernel"]["state"] == "started")

    await until_true(has_started)


def test_a_flood_for_a_stopped_kernel_is_bounded_answered_and_the_rest_runs_in_order(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel(unread_bytes=MOST)
        other = await Gateway(await a_house.kernel(unread_bytes=MOST)).connect()
        gateway = await Gateway(record).connect()
        await gateway.done(gateway.execute("seen = []"))
        assert record.kernel is not None
        with stopped(record.kernel.pid):
            asked = await flood(record, gateway)
            waits = await unread(record)
            assert waits["bytes"] <= MOST
            await until(lambda: len(refused(gateway, asked)) == waits["refused"])
            accepted = [msg_id for msg_id in asked if msg_id not in refused(gateway, asked)]
            assert 0 < len(accepted) * len(PADDING) <= MOST + ON_THEIR_WAY
            words = next(m for m in gateway.messages if m["msg_type"] == "execute_reply" and parent(m) in asked)
            for part in ("0.1 MiB more were refused", "to read", "at most 2.0 MiB may wait", "again"):
                assert part in words["content"]["evalue"]
            assert len(str(words)) < LONGEST_WORDS
            probe = other.execute("print('on time')")
            await other.done(probe)
            assert other.outputs(probe) == "on time\n"
        await gateway.done(accepted[-1])
        probe = gateway.execute("print(seen)")
        await gateway.done(probe)
        want = [number for number, msg_id in enumerate(asked) if msg_id in accepted]
        assert json.loads(gateway.outputs(probe)) == want
        assert (await unread(record)) | {"refused": 0} == {"messages": 0, "bytes": 0, "refused": 0}

    asyncio.run(scene())


def test_what_waits_for_a_kernel_to_come_is_bounded_and_runs_in_order(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.relay(unread_bytes=MOST)
        gateway = await Gateway(record).connect()
        gateway.execute("seen = []")
        asked = await flood(record, gateway)
        waits = await unread(record)
        assert waits["bytes"] <= MOST
        await until(lambda: len(refused(gateway, asked)) == waits["refused"])
        accepted = [number for number, msg_id in enumerate(asked) if msg_id not in refused(gateway, asked)]
        assert len(accepted) == FLOOD - waits["refused"] >= MOST // ONE - 1
        await client.spawn(record, ipykernel(record))
        await gateway.done(asked[accepted[-1]])
        probe = gateway.execute("print(seen)")
        await gateway.done(probe)
        assert json.loads(gateway.outputs(probe)) == accepted

    asyncio.run(scene())


def test_other_channels_and_what_ends_a_kernel_get_through_while_its_shell_is_full(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.relay(unread_bytes=MOST)
        kernel = Deaf(record)
        try:
            gateway = await Gateway(record).connect()
            await connected(record, gateway)
            await flood(record, gateway)
            gateway.request("input_reply", {"value": "x"}, "stdin")
            gateway.request("interrupt_request", {}, "control")
            gateway.request("shutdown_request", {"restart": False}, "control")
            for channel, want in {"stdin": "input_reply", "control": "interrupt_request"}.items():
                assert await until(lambda channel=channel: kernel.read(channel)) == want
            assert await until(lambda: kernel.read("control")) == "shutdown_request"
            assert (await unread(record))["bytes"] > MOST // 2, "the shell is as full as before"
        finally:
            kernel.end()

    asyncio.run(scene())


def test_interrupts_wait_beyond_the_bound_and_a_flood_of_them_is_bounded(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.relay(unread_bytes=MOST)
        kernel = Deaf(record)
        try:
            gateway = await Gateway(record).connect()
            await connected(record, gateway)
            for channel, kind in (("shell", "comm_msg"), ("control", "debug_request")):
                for _ in range(FLOOD):
                    gateway.request(kind, {"comm_id": "x", "data": PADDING}, channel)
            await until(lambda: not gateway.link.untaken)
            before = await unread(record)
            assert before["bytes"] <= MOST + ONE, "a channel where nothing waits takes one message whatever its size"
            gateway.request("interrupt_request", {}, "control")
            await until(lambda: not gateway.link.untaken)
            assert (await unread(record))["refused"] == before["refused"]
            for _ in range(2000):
                gateway.request("interrupt_request", {}, "control")
            await until(lambda: not gateway.link.untaken)
            after = await unread(record)
            assert after["bytes"] <= before["bytes"] + (1 << 20)
            assert after["refused"] > before["refused"]
        finally:
            kernel.end()

    asyncio.run(scene())


def test_collaborators_leave_half_of_the_room_to_the_owner(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.relay(unread_bytes=MOST)
        collaborator, owner = (
            await Gateway(record, "guest").connect(attach=False),
            await Gateway(record, "owner").connect(),
        )
        collaborator.link.attach("guest", is_collaborator=True)
        asked = await flood(record, collaborator)
        assert MOST // 4 < (await unread(record))["bytes"] <= MOST // 2
        await until(lambda: refused(collaborator, asked))
        before = (await unread(record))["refused"]
        owner.execute("1" + PADDING)
        await until(lambda: not owner.link.untaken)
        assert (await unread(record))["refused"] == before

    asyncio.run(scene())


def test_a_client_of_the_front_is_refused_in_the_same_words(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel(unread_bytes=MOST)
        assert record.kernel is not None
        async with a_client(record) as kernel:
            with stopped(record.kernel.pid):
                asked = [kernel.execute("1" + PADDING) for _ in range(FLOOD)]
                reply = await soon(kernel.get_shell_msg())
            assert reply["content"]["ename"] == "KernelNotResponding"
            assert reply["parent_header"]["msg_id"] in asked
            assert (await unread(record))["refused"] > 0

    asyncio.run(scene())


def test_with_a_kernel_ends_what_it_had_not_read_and_the_next_one_has_all_the_room(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel(unread_bytes=MOST)
        gateway = await Gateway(record).connect()
        await gateway.done(gateway.execute("1"))
        assert record.kernel is not None
        os.kill(record.kernel.pid, signal.SIGSTOP)
        for _ in range(2):
            await flood(record, gateway)
        os.kill(record.kernel.pid, signal.SIGKILL)
        await gateway.until(lambda event: getattr(event, "state", "") == "ended")
        assert (await unread(record))["bytes"] == 0
        await client.spawn(record, ipykernel(record))
        cell = gateway.execute("print('anew')")
        await gateway.done(cell)
        assert gateway.outputs(cell) == "anew\n"
        assert (await unread(record))["bytes"] == 0

    asyncio.run(scene())


def test_without_a_bound_nothing_is_refused(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.kernel(unread_bytes=0)
        gateway = await Gateway(record).connect()
        await gateway.done(gateway.execute("seen = []"))
        assert record.kernel is not None
        with stopped(record.kernel.pid):
            asked = [gateway.execute(f"seen.append({number})" + PADDING) for number in range(FLOOD)]
            await until(lambda: not gateway.link.untaken)
            assert (await unread(record))["refused"] == 0
        await gateway.done(asked[-1])

    asyncio.run(scene())


def test_an_id_of_whatever_length_counts_once(a_house: House) -> None:
    async def scene() -> None:
        record = await a_house.relay(unread_bytes=MOST)
        gateway = await Gateway(record).connect()
        for _ in range(3):
            message = gateway.session.msg("execute_request", {"code": "1"})
            message["header"]["msg_id"] = "x" * 100_000
            gateway.link.send("shell", gateway.name, gateway.session.serialize(message))
        await until(lambda: not gateway.link.untaken)
        assert (await unread(record))["messages"] == 1

    asyncio.run(scene())

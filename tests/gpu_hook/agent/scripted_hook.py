"""A hook in Python that swaps real bytes.

Its device memory is a bytes object, and its copy is in the agent's segments. It acts as a hook does
unless its script says otherwise. It runs on an event loop, the agent's own or that of a process.
"""

from __future__ import annotations

import array
import asyncio
import mmap
import os
import socket
from collections.abc import Iterable
from pathlib import Path

from shared_words import load_half, store, store_half

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import (
    AgentPage,
    Credit,
    HookPage,
    Lease,
    Message,
    MessageType,
    Moved,
    MovedDevice,
    MoveOutcome,
    PinReason,
    Refuse,
    Residency,
    Role,
    Segment,
    Swap,
    Wake,
    Welcome,
)

MIB = 1 << 20
UUID = protocol.device_uuid_bytes("GPU-00000000-0000-0000-0000-0000000000a0")


class ScriptedHook:
    """A scripted hook.

    ``script`` has outcomes for coming orders; when it is empty, the hook carries an order out.
    """

    def __init__(self, folder: Path, memory: bytes = b"") -> None:
        self.memory = memory  # empty while it is out
        self.bytes = len(memory)
        self.reported_swappable: int | None = None  # reported instead of the true figure
        self.residency = Residency.RESIDENT
        self.script: list[MoveOutcome] = []
        self.goes_on = asyncio.Event()  # cleared: it is stopped, and neither reads nor answers
        self.goes_on.set()
        self.orders: list[MessageType] = []
        self.segments: dict[int, tuple[int, int]] = {}  # number -> descriptor, bytes
        self.kept = 0
        self.found_in_segments = b""  # the segments' contents before it wrote
        self.refusal: Refuse | None = None
        self._folder = folder
        self._credit: asyncio.Future[int] | None = None
        self._sequence = 0

    async def connect(self, lent: int | None = None) -> None:
        """Say HELLO, and borrow the memory's size (or ``lent``).

        After an agent's restart, HELLO has the table.
        """
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(str(self._folder / protocol.SOCKET_NAME))
        self.socket.setblocking(False)
        had = self._sequence > 0
        table = (protocol.HelloDevice(UUID, self.bytes, 0),) if had and self.bytes else ()
        hello = protocol.Hello(Role.PROCESS, os.getpid(), 0, "scripted", table, residency=self.residency)
        self.send(hello)
        welcome, descriptors = await self._receive()
        if not isinstance(welcome, Welcome):
            raise ConnectionRefusedError(str(welcome))
        self.agent_page = mmap.mmap(descriptors[0], protocol.PAGE_BYTES, prot=mmap.PROT_READ)
        self.hook_page = mmap.mmap(descriptors[1], protocol.PAGE_BYTES)
        for descriptor in descriptors:
            os.close(descriptor)
        self.write_pages()
        asyncio.get_running_loop().add_reader(self.socket.fileno(), self._readable)
        if not had and (self.bytes or lent):
            assert await self.borrow(lent or self.bytes) == (lent or self.bytes)
        if had and self.residency is Residency.SWAPPED:
            self.say_moved(MoveOutcome.DONE, 0)
        self._sequence += 1

    async def borrow(self, amount: int) -> int:
        self._credit = asyncio.get_running_loop().create_future()
        self.send(Credit(MessageType.CREDIT_REQUEST, 0, amount, 1))
        return await self._credit

    def send(self, message: Message) -> None:
        self.socket.send(protocol.pack(message))

    def wake(self) -> None:
        self.send(Wake(1))

    def wait(self) -> None:
        """Let a call wait for the lease."""
        store_half(self.hook_page, HookPage.WAITING_CALLS, 1)
        self.wake()

    def give_up(self) -> None:
        """End that wait as an interrupt does."""
        store_half(self.hook_page, HookPage.WAITING_CALLS, 0)
        self.send(Wake(0))

    @property
    def interrupts(self) -> int:
        return load_half(self.agent_page, AgentPage.INTERRUPTS)

    @property
    def lease(self) -> Lease:
        return Lease(load_half(self.agent_page, AgentPage.LEASE))

    def call_unknown(self, name: bytes, length: int | None = None) -> None:
        """Call a driver function that the hook's table lacks."""
        start = HookPage.UNKNOWN_FUNCTION
        self.hook_page[start : start + len(name)] = name
        store_half(self.hook_page, HookPage.UNKNOWN_FUNCTION_LENGTH, len(name) if length is None else length)

    def pin(self, reasons: PinReason) -> None:
        """Tell why memory stays on its device."""
        store_half(self.hook_page, HookPage.PIN_REASONS, reasons)

    def set_word(self, offset: int, value: int) -> None:
        store(self.hook_page, offset, value)

    def write_pages(self) -> None:
        is_out = self.residency is Residency.SWAPPED
        device = HookPage.DEVICES
        self.set_word(device + HookPage.CHARGED, self.bytes)
        self.set_word(
            device + HookPage.SWAPPABLE, self.bytes if self.reported_swappable is None else self.reported_swappable
        )
        self.set_word(device + HookPage.SWAPPED, self.bytes if is_out else 0)
        store_half(self.hook_page, HookPage.RESIDENCY, self.residency)

    def say_moved(self, outcome: MoveOutcome, sequence: int, wanted: int = 0) -> None:
        is_out = self.residency is Residency.SWAPPED
        device = MovedDevice(self.bytes if is_out else 0, 0)
        self.send(Moved(outcome, self.residency, (device,), PinReason(0), wanted, 1, 2, 3, "", sequence))

    def die(self) -> None:
        """Close the connection, as the end of a process looks to the agent."""
        if self.socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self.socket.fileno())
            self.socket.close()
        for descriptor, _ in self.segments.values():
            os.close(descriptor)
        self.segments.clear()

    def lose_agent(self) -> None:
        """Lose the agent; the hook keeps its memory."""
        if self.socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self.socket.fileno())
            self.socket.close()

    def _readable(self) -> None:
        if not self.goes_on.is_set():
            asyncio.get_running_loop().remove_reader(self.socket.fileno())
            self._stopped = asyncio.create_task(self._wait_to_go_on())
            return
        try:
            message, descriptors = self._take()
        except (BlockingIOError, InterruptedError):
            return
        except (EOFError, ConnectionError):
            return self.lose_agent()
        self._handle(message, descriptors)

    async def _wait_to_go_on(self) -> None:
        await self.goes_on.wait()
        if self.socket.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self.socket.fileno(), self._readable)

    def _take(self) -> tuple[Message, list[int]]:
        data, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(64))
        if not data:
            raise EOFError
        descriptors: list[int] = []
        for _, _, raw in ancillary:
            descriptors += array.array("i", raw)
        return protocol.unpack(data), descriptors

    async def _receive(self) -> tuple[Message, list[int]]:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self.socket.fileno(), readable.set)
        await asyncio.wait_for(readable.wait(), 20)
        loop.remove_reader(self.socket.fileno())
        return self._take()

    def _handle(self, message: Message, descriptors: list[int]) -> None:
        if isinstance(message, Segment):
            if (old := self.segments.pop(message.number, None)) is not None:
                os.close(old[0])
            self.segments[message.number] = (descriptors[0], message.bytes)
        elif isinstance(message, Swap):
            self.orders.append(message.type)
            self._obey(message)
        elif isinstance(message, Refuse):
            self.refusal = message
        elif isinstance(message, protocol.ActivityPageNotice):
            for descriptor in descriptors:
                os.close(descriptor)
        elif isinstance(message, Credit) and message.type is MessageType.CREDIT_GRANT and self._credit:
            self._credit.set_result(message.bytes)
        elif isinstance(message, Credit) and message.type is MessageType.CREDIT_RECALL:
            self.send(Credit(MessageType.CREDIT_RETURN, message.device, 0, message.sequence))

    def _obey(self, order: Swap) -> None:
        outcome = self.script.pop(0) if self.script else MoveOutcome.DONE
        wanted = 0
        if outcome is MoveOutcome.DONE and order.type is MessageType.SWAP_OUT:
            space = sum(size for number, (_, size) in self.segments.items() if number < order.segment_count)
            if space < self.bytes:
                outcome, wanted = MoveOutcome.NO_SPACE, self.bytes
            else:
                self._copy_out(order.segment_count)
        elif outcome is MoveOutcome.DONE:
            self._copy_in()
        self.write_pages()
        self.say_moved(outcome, order.sequence, wanted)

    def _views(self, count: int) -> Iterable[mmap.mmap]:
        for number in range(count):
            descriptor, size = self.segments[number]
            with mmap.mmap(descriptor, size) as view:
                yield view

    def _copy_out(self, count: int) -> None:
        rest, found = self.memory, b""
        for view in self._views(count):
            found += view[: len(rest)]
            view[: min(len(rest), len(view))] = rest[: len(view)]
            rest = rest[len(view) :]
        self.found_in_segments = found
        self.memory, self.kept, self.residency = b"", count, Residency.SWAPPED

    def _copy_in(self) -> None:
        self.memory = b"".join(bytes(view) for view in self._views(self.kept))[: self.bytes]
        for descriptor, _ in self.segments.values():
            os.close(descriptor)
        self.segments.clear()
        self.residency = Residency.RESIDENT

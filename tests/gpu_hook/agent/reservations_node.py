"""The reservations of a node agent on a test's own loop.

Journal, ledger, sockets and leases are real; the devices are invented. The agent can end as SIGTERM
ends it, or as SIGKILL: then it writes nothing more. The test chooses the messages.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import mmap
import os
import socket
import struct
import sys
import time
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.actuators.actuation import Actuation, ChosenActuators
from jupyter_aliquot.gpu_hook.agent.compute.loop import ComputeKeeper
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading
from jupyter_aliquot.gpu_hook.agent.host_copies.arena import Arena, HostBudget
from jupyter_aliquot.gpu_hook.agent.kernels.kernel import Kernel
from jupyter_aliquot.gpu_hook.agent.kernels.reservations import Reservations
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Reservation
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts, Ledger
from jupyter_aliquot.gpu_hook.agent.scheduling.keeper import LeaseKeeper
from jupyter_aliquot.gpu_hook.agent.scheduling.records import read_moment
from jupyter_aliquot.gpu_hook.agent.settings import AgentSettings
from jupyter_aliquot.gpu_hook.agent.swap.checkpoint import CheckpointTools
from jupyter_aliquot.gpu_hook.agent.swap.residency import SwapTools
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import Credit, Message, MessageType, Role
from jupyter_aliquot.gpu_hook.waiting import end_task

MIB = 1 << 20
CARD = 1024 * MIB
UUID = "GPU-00000000-0000-0000-0000-0000000000a0"
RAW_UUID = protocol.device_uuid_bytes(UUID)
DEADLINE_SECONDS = 30


class AProcess:
    """A connection of a kernel's process, as far as the agent can tell. Its pid is the test's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.lent = 0
        self.is_connected = False

    async def hello(self, claim: int = 0, role: Role = Role.PROCESS) -> Message | None:
        """Connect, say HELLO, and return the answer; None where the agent closed without one."""
        table = (protocol.HelloDevice(RAW_UUID, claim, 0),) if claim else ()
        answer = await self.say(protocol.Hello(role, os.getpid(), 0, "test", table))
        if self.is_connected:
            self.lent = claim
        return answer

    async def say(self, hello: protocol.Hello) -> Message | None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setblocking(False)
        self.socket.connect(str(self._folder / protocol.SOCKET_NAME))
        self.send(hello)
        answer = await self.receive()
        self.is_connected = isinstance(answer, protocol.Welcome)
        if not self.is_connected:
            self.socket.close()
        return answer

    async def borrow(self, amount: int) -> int:
        """Ask for credit that need not wait, and return what was granted."""
        self.send(Credit(MessageType.CREDIT_REQUEST, 0, amount, 1, 1))
        while True:
            answer = await self.receive()
            assert answer is not None
            if isinstance(answer, Credit) and answer.type is MessageType.CREDIT_RECALL:
                self.send(Credit(MessageType.CREDIT_RETURN, answer.device, 0, answer.sequence))
            elif isinstance(answer, Credit) and answer.type is MessageType.CREDIT_GRANT:
                self.lent += answer.bytes
                return answer.bytes

    def give_back(self, amount: int) -> None:
        self.send(Credit(MessageType.CREDIT_RETURN, 0, amount, 0))
        self.lent -= amount

    def send(self, message: Message | bytes) -> None:
        self.socket.send(message if isinstance(message, bytes) else protocol.pack(message))

    def write_page(self, offset: int, value: int) -> None:
        """Write a word of the first device to the page that a hook writes."""
        struct.pack_into("<Q", self.page, protocol.HookPage.DEVICES + offset, value)

    @property
    def enforcer(self) -> protocol.Enforcer:
        """Return what holds its limit on the first device, as the agent says."""
        start = protocol.AgentPage.DEVICES + protocol.AgentPage.ENFORCER
        return protocol.Enforcer(int.from_bytes(self.agent_page[start : start + 4], sys.byteorder))

    async def receive(self) -> Message | None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                data, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(64))
                break
            except BlockingIOError:
                assert time.monotonic() < deadline, "the agent did not answer"
                await asyncio.sleep(0)
            except ConnectionResetError:
                return None
        descriptors = [descriptor for _, _, raw in ancillary for descriptor in array.array("i", raw)]
        message = protocol.unpack(data) if data else None
        if isinstance(message, protocol.Welcome):
            self.agent_page = mmap.mmap(descriptors[0], protocol.PAGE_BYTES, prot=mmap.PROT_READ)
            self.page = mmap.mmap(descriptors[1], protocol.PAGE_BYTES)
        for descriptor in descriptors:
            os.close(descriptor)
        return message

    def close(self) -> None:
        self.socket.close()
        self.is_connected = False


class AReservationsNode:
    """The agent's reservations over one device of 1 GiB. Making it starts it."""

    def __init__(
        self,
        folder: Path,
        grace_seconds: float = 10.0,
        orphan_seconds: float = 2.0,
        reconnect_seconds: float | None = None,
        checkpoints: CheckpointTools | None = None,
    ) -> None:
        self.has_kubelet = False  # at the next start
        self._checkpoints = checkpoints
        runtime = RuntimeDir(folder)
        runtime.kernels.mkdir(exist_ok=True)
        self.settings = AgentSettings(
            runtime,
            restart_grace_seconds=grace_seconds,
            orphan_seconds=orphan_seconds,
            reconnect_seconds=orphan_seconds if reconnect_seconds is None else reconnect_seconds,
            recall_seconds=0.01,
        )
        self._connections = 0
        self.start()

    def start(self) -> None:
        self.ledger = Ledger()
        facts = DeviceFacts(UUID, 0, "Fake", CARD)
        self.ledger.set_devices([facts])
        self._arena = Arena(HostBudget(CARD), 4 * MIB)
        policy, nobody = self.settings.leases.policy, ChosenActuators((), ())
        self.leases = LeaseKeeper(policy, read_moment, self.ledger.lent, lambda: CARD, lambda _: None)
        self._compute = ComputeKeeper(self.settings.compute, time.monotonic_ns, self.leases, Actuation(nobody))
        self._facts = facts
        self.leases.room.look([DeviceReading(facts)], {})
        self.reservations = Reservations(
            self.ledger,
            self.settings,
            lambda: None,
            lambda: None,
            SwapTools(self._arena, self.settings.swap, self._checkpoints),
            self.leases,
            self._compute,
        )
        self.reservations.restore(self.has_kubelet)
        self._turns = asyncio.get_running_loop().create_task(self.leases.run())

    def look(self, *, tells_processes: bool = True, lists_processes: bool = True) -> None:
        """Look at the device three times.

        Each process, under the test's pid, uses all that its kernel was lent. Without *lists_processes* the driver
        lists none.
        """
        used = self.ledger.lent(UUID)
        processes = {os.getpid(): used if tells_processes else None} if lists_processes else {}
        reading = DeviceReading(self._facts, used_bytes=used, processes=processes)
        for _ in range(3):
            self.reservations.book_looks([reading])
            self.leases.room.look([reading], self.reservations.on_devices())

    async def end(self, *, is_killed: bool) -> None:
        """End as by a signal.

        ``is_killed``: the journals stay as they are.
        """
        journals = {file: file.read_bytes() for file in self.settings.runtime.kernels.glob("*/grant.json")}
        await end_task(self._turns)
        self._compute.close()
        await self.leases.close()
        self.reservations.close()
        self._arena.close()
        for file, text in journals.items() if is_killed else ():
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(text)

    def a_connection(self) -> int:
        """Open a control connection, and return its number."""
        self._connections += 1
        return self._connections

    def reserve(self, connection: int, kernel_id: str, hundredths: int, limit: int | None = None) -> Kernel:
        asked = Reservation(kernel_id, "ada", hundredths, limit, "production", "", {}, (), 1.0)
        return self.reservations.reserve(asked, None, connection)

    def folder(self, kernel_id: str) -> Path:
        return self.settings.runtime.kernel(kernel_id)

    def kernel(self, kernel_id: str) -> Kernel | None:
        return next((one for one in self.reservations.kernels if one.kernel_id == kernel_id), None)

    async def gone(self, kernel_id: str) -> None:
        """Return when the reservation has ended."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.kernel(kernel_id) is not None:
            assert time.monotonic() < deadline, f"{kernel_id} is still reserved"
            await asyncio.sleep(0.001)

    async def let_time_pass(self) -> None:
        """Return when a reservation without a holder has ended.

        All earlier grace periods are over by then.
        """
        connection = self.a_connection()
        self.reserve(connection, "passing", 1)
        self.reservations.drop_connection(connection)
        await self.gone("passing")


def close_quietly(process: AProcess) -> None:
    with contextlib.suppress(OSError, AttributeError):
        process.close()

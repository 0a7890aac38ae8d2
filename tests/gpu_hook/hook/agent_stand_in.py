"""A node agent for tests of the hook: one kernel, scripted.

It follows the protocol, and remembers the messages.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shared_words import load, load_half, store, store_half

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage, Credit, Hello, HookPage, MessageType, ResidencyMode, Role

MIB = 1 << 20
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@dataclass
class Device:
    uuid: bytes
    quota: int


@dataclass
class Connection:
    """One process of the kernel."""

    socket: socket.socket
    hello: Hello | None = None
    lent: dict[int, int] = field(default_factory=dict)
    agent_page: mmap.mmap | None = None
    hook_page: mmap.mmap | None = None
    heard: list[protocol.Message] = field(default_factory=list)

    @property
    def has_its_pages(self) -> bool:
        """Return whether the hook has mapped its page, which it marks then."""
        return self.hook_page is not None and load_half(self.hook_page, HookPage.MAGIC) == protocol.PAGE_MAGIC

    def word(self, device: int, offset: int) -> int:
        return self.page_word(HookPage.DEVICES + device * HookPage.DEVICE_BYTES + offset)

    def page_word(self, offset: int) -> int:
        assert self.hook_page is not None
        return load(self.hook_page, offset)


class StandIn:
    """Lends within the quota of each device.

    With ``is_silent`` it receives and does not answer.
    """

    def __init__(self, kernel_dir: Path, devices: list[Device]) -> None:
        self.kernel_dir = kernel_dir
        self.devices = devices
        self.heard: list[protocol.Message] = []
        self.connections: list[Connection] = []
        self.host_quota = 0  # of page-locked host memory; 0: it is not lent
        self.is_silent = False
        self.welcomes = True  # False: takes connections as a stopped process's socket does, and says nothing
        self.make_room: Callable[[int], int] = lambda least: 0  # for a context; returns the bytes that are there
        self.refusal: protocol.Refuse | None = None
        self.residency_mode = ResidencyMode.OFF
        self.least_swappable = MIB
        self.chunk = 64 * MIB
        self.lease = protocol.Lease.HELD  # for new processes
        self.ring = 0  # page-locked bytes of each process that copies; 0: the hook's own choice
        self.gate = protocol.Gate.OPEN  # for new processes
        self.pace = protocol.Pace.OFF  # on every device, for new processes
        self._process_sequence = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        path = self.kernel_dir / protocol.SOCKET_NAME
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._stop_reader, self._stop_writer = os.pipe()
        self._selector.register(self._stop_reader, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Die: every connection closes, the ledger is forgotten."""
        if self._thread is None:
            return
        os.write(self._stop_writer, b"x")
        self._thread.join()
        self._thread = None
        for connection in self.connections:
            connection.socket.close()
        self.connections = []
        self._listener.close()
        self._selector.close()
        os.close(self._stop_reader)
        os.close(self._stop_writer)

    def wait_for(self, claim: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait for a claim, checked without any lock: it may make the hook send messages."""
        deadline = time.monotonic() + seconds
        while not claim():
            left = deadline - time.monotonic()
            assert left > 0, f"not within {seconds} s; heard {self.heard}"
            with self._changed:  # the pages change without a message, so look again now and then
                self._changed.wait(min(left, 0.02))

    def wait_for_news(self, seconds: float = 0.02) -> None:
        """Wait until some hook sends a message, or the time is over."""
        with self._changed:
            self._changed.wait(seconds)

    def process(self, pid: int | None = None) -> Connection:
        """Return the registered process; wait until it has its pages."""
        found: list[Connection] = []

        def is_there() -> bool:
            found[:] = [
                one
                for one in self.connections
                if one.hello and one.hello.role is Role.PROCESS and pid in (None, one.hello.pid) and one.has_its_pages
            ]
            return bool(found)

        self.wait_for(is_there)
        return found[-1]

    def quota_of(self, device: int) -> int:
        return self.host_quota if device == protocol.HOST_MEMORY else self.devices[device].quota

    def lent(self, device: int = 0) -> int:
        return sum(one.lent.get(device, 0) for one in self.connections)

    def recall(self, connection: Connection, amount: int, device: int = 0, sequence: int = 77) -> None:
        recall = Credit(MessageType.CREDIT_RECALL, device, amount, sequence, deadline_milliseconds=1000)
        connection.socket.send(protocol.pack(recall))

    def keep_waiting(self, times: int, pause_seconds: float) -> None:
        """Answer the unanswered request: so often with a wait, and then with its amount."""
        self.wait_for(lambda: bool(self.of(MessageType.CREDIT_REQUEST)))
        request = self.of(MessageType.CREDIT_REQUEST)[-1]
        kinds = [MessageType.CREDIT_WAIT] * times + [MessageType.CREDIT_GRANT]
        for kind in kinds:
            answer = Credit(kind, request.device, request.bytes, request.sequence)
            self.connections[-1].socket.send(protocol.pack(answer))
            if kind is MessageType.CREDIT_WAIT:
                threading.Event().wait(pause_seconds)
        self.connections[-1].lent[request.device] = self.connections[-1].lent.get(request.device, 0) + request.bytes

    def of(self, kind: MessageType) -> list[Credit]:
        return [one for one in self.heard if isinstance(one, Credit) and one.type is kind]

    def set_quota(self, device: int, quota: int) -> None:
        self.devices[device].quota = quota
        for one in self.connections:
            self.write(one, device, AgentPage.QUOTA, quota)

    def write(self, connection: Connection, device: int, offset: int, value: int) -> None:
        if connection.agent_page is not None:
            at = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES + offset
            store(connection.agent_page, at, value)

    def write_half(self, device: int, offset: int, value: int) -> None:
        """Write a word of 32 bits, for all processes."""
        for one in self.connections:
            if one.agent_page is not None:
                at = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES + offset
                store_half(one.agent_page, at, value)

    def set_processes(self, *rows: tuple[int, int, int, int], sequence: int = 2) -> None:
        """Rows are pid on the node, own pid, device, charged bytes.

        An odd sequence is a change that never ends.
        """
        for one in self.connections:
            if one.agent_page is None:
                continue
            for index, (pid, own_pid, device, charged) in enumerate(rows):
                at = AgentPage.PROCESSES + index * AgentPage.PROCESS.size
                AgentPage.PROCESS.pack_into(one.agent_page, at, pid, own_pid, device, 0, charged)
            store_half(one.agent_page, AgentPage.PROCESS_COUNT, len(rows))
            store_half(one.agent_page, AgentPage.PROCESS_SEQUENCE, sequence)

    def replace_processes(self, *rows: tuple[int, int, int, int]) -> None:
        """Replace the table as an agent does: the sequence is odd in the meantime."""
        self._process_sequence += 2
        for one in self.connections:
            if one.agent_page is not None:
                store_half(one.agent_page, AgentPage.PROCESS_SEQUENCE, self._process_sequence - 1)
        self.set_processes(*rows, sequence=self._process_sequence)

    def set_gate(self, value: int) -> None:
        for one in self.connections:
            if one.agent_page is not None:
                store_half(one.agent_page, AgentPage.GATE, value)

    def set_workload_class(self, value: int) -> None:
        for one in self.connections:
            if one.agent_page is not None:
                store_half(one.agent_page, AgentPage.WORKLOAD_CLASS, value)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fd == self._stop_reader:
                    return
                with self._changed:
                    if key.fileobj is self._listener:
                        self._accept()
                    else:
                        self._read(key.data)
                    self._changed.notify_all()

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        connection = Connection(accepted)
        self.connections.append(connection)
        self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _read(self, connection: Connection) -> None:
        try:
            datagram = connection.socket.recv(protocol.LARGEST_MESSAGE + 1)
        except OSError:
            datagram = b""
        if not datagram:
            self._selector.unregister(connection.socket)
            connection.socket.close()
            self.connections.remove(connection)
            return
        message = protocol.unpack(datagram)
        self.heard.append(message)
        connection.heard.append(message)
        if isinstance(message, Hello) and not self.welcomes:
            return
        if isinstance(message, Hello):
            self._welcome(connection, message)
        elif isinstance(message, Credit) and message.type is MessageType.CREDIT_REQUEST and not self.is_silent:
            if message.deadline_milliseconds == protocol.Request.CONTEXT:
                return self._make_room(connection, message)
            fits = self.lent(message.device) + message.bytes <= self.quota_of(message.device)
            granted = message.bytes if fits else 0
            connection.lent[message.device] = connection.lent.get(message.device, 0) + granted
            grant = Credit(MessageType.CREDIT_GRANT, message.device, granted, message.sequence)
            with contextlib.suppress(BrokenPipeError):  # it sent a request and was killed
                connection.socket.send(protocol.pack(grant))
        elif isinstance(message, Credit) and message.type is MessageType.CREDIT_RETURN:
            connection.lent[message.device] = connection.lent.get(message.device, 0) - message.bytes
            assert connection.lent[message.device] >= 0, "more was returned than was lent"

    def _make_room(self, connection: Connection, message: Credit) -> None:
        granted = self.make_room(message.bytes)
        grant = Credit(MessageType.CREDIT_GRANT, message.device, granted, message.sequence, protocol.Request.CONTEXT)
        connection.socket.send(protocol.pack(grant))

    def _welcome(self, connection: Connection, hello: Hello) -> None:
        if self.refusal is not None:
            connection.socket.send(protocol.pack(self.refusal))
            return
        connection.hello = hello
        for device in hello.devices:
            uuids = {one.uuid: index for index, one in enumerate(self.devices)} | {
                protocol.HOST_UUID: protocol.HOST_MEMORY
            }
            index = uuids[device.uuid]
            connection.lent[index] = device.charged_bytes + device.credit_bytes
        agent, connection.agent_page = _make_page("agent")
        hook, connection.hook_page = _make_page("hook")
        struct.pack_into("=II", connection.agent_page, 0, protocol.PAGE_MAGIC, protocol.VERSION)
        store_half(connection.agent_page, AgentPage.DEVICE_COUNT, len(self.devices))
        store(connection.agent_page, AgentPage.HOST_QUOTA, self.host_quota)
        store_half(connection.agent_page, AgentPage.LEASE, self.lease)
        words = (self.residency_mode, self.least_swappable, self.chunk, self.ring)
        struct.pack_into("=IQQQ", connection.agent_page, AgentPage.RESIDENCY_MODE, *words)
        for index, one in enumerate(self.devices):
            at = AgentPage.DEVICES + index * AgentPage.DEVICE_BYTES
            struct.pack_into("=16sQ", connection.agent_page, at, one.uuid, one.quota)
            store_half(connection.agent_page, at + AgentPage.PACE, self.pace)
        store_half(connection.agent_page, AgentPage.GATE, self.gate)
        welcome = protocol.pack(protocol.Welcome(len(self.devices)))
        with contextlib.suppress(BrokenPipeError):  # a checker reads no answer
            socket.send_fds(connection.socket, [welcome], [agent, hook])
        os.close(agent)
        os.close(hook)


def _make_page(name: str) -> tuple[int, mmap.mmap]:
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, protocol.PAGE_BYTES)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor, mmap.mmap(descriptor, protocol.PAGE_BYTES)

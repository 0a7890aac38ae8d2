"""A node agent of its own for each test, over devices that do not exist.

Hooks in Python talk to it.
"""

from __future__ import annotations

import array
import contextlib
import json
import mmap
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import warm_start

from jupyter_aliquot.gpu_hook.agent.base.processes import start_time_ticks
from jupyter_aliquot.gpu_hook.client.client import AgentClientError, AgentUnreachable, query
from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import Credit, HookPage, Message, MessageType, Role

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for modules that several files of this folder share
MIB = 1 << 20
Found = TypeVar("Found")


def until(claim: Callable[[], Found], seconds: float = 90) -> Found:
    """Wait for a claim to hold, and return its value.

    An agent that does not answer may do so later.
    """
    deadline, silence = time.monotonic() + seconds, ""
    while True:
        try:
            if found := claim():
                return found
            silence = ""
        except AgentUnreachable as error:
            silence = f": {error}"
        assert time.monotonic() < deadline, f"the claim did not come true in time{silence}"
        time.sleep(0.005)


class FakeHook:
    """One process of a kernel, as far as the agent can tell.

    It does not follow the protocol by itself.
    """

    def __init__(self, kernel_dir: str | Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(60)
        self.socket.connect(f"{kernel_dir}/{protocol.SOCKET_NAME}")
        self.descriptors: list[int] = []
        # the notices that it received, with the descriptors
        self.activity_pages: list[tuple[protocol.ActivityPageNotice, int | None]] = []
        self.sequence = 0

    def send(self, message: Message | bytes) -> None:
        self.socket.send(message if isinstance(message, bytes) else protocol.pack(message))

    def receive(self) -> Message | None:
        """Return the next message that is not about an activity page; None when the agent closed."""
        while isinstance(message := self.receive_any(), protocol.ActivityPageNotice):
            pass
        return message

    def receive_any(self) -> Message | None:
        try:
            data, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(64))
        except ConnectionResetError:
            return None
        passed = [descriptor for _, _, raw in ancillary for descriptor in array.array("i", raw)]
        self.descriptors += passed
        if not data:
            return None
        message = protocol.unpack(data)
        if isinstance(message, protocol.ActivityPageNotice):
            self.activity_pages.append((message, passed[0] if passed else None))
        return message

    def hello(
        self,
        devices: tuple[protocol.HelloDevice, ...] = (),
        role: Role = Role.PROCESS,
        pid: int = 0,
    ) -> Message | None:
        ticks = start_time_ticks(os.getpid()) or 0
        with contextlib.suppress(BrokenPipeError):  # it was refused; the reason can still be read
            self.send(protocol.Hello(role, pid or os.getpid(), ticks, "fake", devices))
        answer = self.receive()
        if isinstance(answer, protocol.Welcome):
            self.agent_page = mmap.mmap(self.descriptors[0], protocol.PAGE_BYTES, prot=mmap.PROT_READ)
            self.hook_page = mmap.mmap(self.descriptors[1], protocol.PAGE_BYTES)
        return answer

    def ask(self, amount: int, device: int = 0) -> int:
        self.sequence += 1
        self.send(Credit(MessageType.CREDIT_REQUEST, device, amount, self.sequence))
        return self.sequence

    def borrow(self, amount: int, device: int = 0) -> int:
        """Request credit, and wait for the answer."""
        sequence = self.ask(amount, device)
        answer = self.receive()
        while isinstance(answer, Credit) and answer.type is MessageType.CREDIT_WAIT:
            answer = self.receive()
        assert isinstance(answer, Credit)
        assert (answer.type, answer.sequence) == (MessageType.CREDIT_GRANT, sequence)
        return answer.bytes

    def give_back(self, amount: int, device: int = 0, sequence: int = 0) -> None:
        self.send(Credit(MessageType.CREDIT_RETURN, device, amount, sequence))

    def write(self, word: int, value: int, device: int = 0) -> None:
        start = HookPage.DEVICES + device * HookPage.DEVICE_BYTES + word
        self.hook_page[start : start + 8] = value.to_bytes(8, sys.byteorder)

    def read(self, word: int, device: int = 0) -> int:
        start = protocol.AgentPage.DEVICES + device * protocol.AgentPage.DEVICE_BYTES + word
        return int.from_bytes(self.agent_page[start : start + 8], sys.byteorder)

    def close(self) -> None:
        self.socket.close()
        for descriptor in self.descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.descriptors.clear()


class ANode:
    """A runtime folder, and its agent."""

    until = staticmethod(until)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | warm_start.WarmProcess | None = None
        self.hooks: list[FakeHook] = []
        self.helpers: list[subprocess.Popen[Any]] = []
        self.set_devices(count=1)

    def set_devices(self, **data: Any) -> None:
        new = self.folder / "devices.new"
        new.write_text(json.dumps(data))
        new.rename(self.folder / "devices")

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(HERE / "run_fake_agent.py"), "--runtime-dir", str(self.folder), *arguments]

    def start(self, *arguments: str) -> None:
        log = self.folder / "agent.log"
        command = self.command("--log-file", str(log), *arguments)
        is_python = command[0] == sys.executable  # and no program that starts it
        self.process = warm_start.start(warm_start.AGENT, command[1:]) if is_python else subprocess.Popen(command)
        until(self.answers)

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "agent.log").read_text()
        try:
            query("hello", runtime_dir=self.folder, version=1, name="test")
            return bool(query("status", runtime_dir=self.folder, kernels=False, seconds=60))
        except AgentClientError:
            return False

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.process = None
        return code

    def status(self) -> dict[str, Any]:
        return query("status", runtime_dir=self.folder, seconds=60)

    def kernel(self, kernel_id: str = "k") -> dict[str, Any] | None:
        return next((k for k in self.status()["kernels"] if k["kernel_id"] == kernel_id), None)

    def device(self, kernel_id: str = "k") -> dict[str, Any]:
        kernel = self.kernel(kernel_id)
        assert kernel is not None
        device: dict[str, Any] = kernel["devices"][0]
        return device

    def a_hook(self, kernel_id: str = "k") -> FakeHook:
        hook = FakeHook(self.folder / "kernels" / kernel_id)
        self.hooks.append(hook)
        return hook

    def a_hook_process(self, *arguments: str, kernel_id: str = "k") -> subprocess.Popen[str]:
        """Start a process of the kernel, which runs run_fake_hook.py with these arguments.

        It prints its results.
        """
        command = [sys.executable, str(HERE / "run_fake_hook.py"), str(self.folder / "kernels" / kernel_id), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        self.helpers.append(process)
        return process

    def log(self) -> str:
        return (self.folder / "agent.log").read_text()

    def close(self) -> None:
        for hook in self.hooks:
            hook.close()
        for helper in self.helpers:
            helper.kill()
            helper.communicate(timeout=60)
        if self.process is not None:
            self.end(signal.SIGKILL)
        shutil.rmtree(self.folder)


@pytest.fixture
def a_folder() -> Iterator[Path]:
    """Make a runtime folder with a short path, since it holds sockets."""
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def an_idle_node(a_folder: Path) -> Iterator[ANode]:
    """Make a node whose agent is not running yet."""
    node = ANode(a_folder)
    yield node
    node.close()


@pytest.fixture
def a_node(an_idle_node: ANode) -> ANode:
    an_idle_node.start()
    return an_idle_node


class AHolder:
    """A control connection that stays open, and so holds its reservations."""

    def __init__(self, folder: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(60)
        self.socket.connect(str(folder / "agent.sock"))
        self.lines = self.socket.makefile("rb")
        self.events: list[dict[str, Any]] = []

    def send(self, line: bytes) -> None:
        self.socket.sendall(line)

    def line(self) -> dict[str, Any] | None:
        line = self.lines.readline()
        return json.loads(line) if line else None

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        self.send(json.dumps({"id": 1, "op": op, **fields}).encode() + b"\n")
        while "event" in (answer := self.line() or {}):
            self.events.append(answer)
        return answer

    def wait_for_event(self) -> dict[str, Any] | None:
        """Return the next event, which may have come before an answer."""
        return self.events.pop(0) if self.events else self.line()

    def reserve(self, kernel_id: str = "k", hundredths: int = 50, **fields: Any) -> dict[str, Any]:
        return self.ask("reserve", kernel_id=kernel_id, owner="ada", hundredths=hundredths, **fields)

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


@pytest.fixture
def a_holder(a_node: ANode) -> Iterator[AHolder]:
    holder = AHolder(a_node.folder)
    yield holder
    holder.close()


@pytest.fixture
def open_holder(an_idle_node: ANode) -> Iterator[Callable[[], AHolder]]:
    holders: list[AHolder] = []

    def open_one() -> AHolder:
        holders.append(AHolder(an_idle_node.folder))
        return holders[-1]

    yield open_one
    for holder in holders:
        holder.close()

"""A relay host of the test's own, with kernels, clients of their fronts, and links to them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.session import Session

from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.launch_spec import KERNEL_ID_VARIABLE
from jupyter_aliquot.provisioner.relay.client import control as client
from jupyter_aliquot.provisioner.relay.client.control import (
    KernelLaunch,
    LinkMessage,
    RelayLink,
    RelayRecord,
    RelayRequest,
)
from jupyter_aliquot.provisioner.relay.wire.proc import is_process
from jupyter_aliquot.provisioner.relay.wire.rmtree import remove_folder

T = TypeVar("T")
SECONDS = 60.0


class House:
    """A runtime folder with its relay host, and all that a test started in it."""

    def __init__(self, folder: Path) -> None:
        self.runtime = RuntimeDir(folder)
        self.settings = client.RelaySettings(exit_when_idle_seconds=None)

    async def start(self) -> None:
        await client.ensure_relay_host(self.runtime, self.settings)

    @property
    def host_pid(self) -> int:
        return int(self.runtime.relay_lock.read_text())

    def kill_host(self) -> None:
        kill_and_wait(self.host_pid)

    async def relay(self, **fields: Any) -> RelayRecord:
        """Start a relay that keeps output for a gateway, unless the fields say otherwise."""
        given = {"kernel_id": str(uuid.uuid4()), "key": uuid.uuid4().hex, "gateway": "here", **fields}
        await self.start()
        return await client.start_relay(self.runtime, RelayRequest(**given))

    async def kernel(self, **fields: Any) -> RelayRecord:
        """Start a relay with an ipykernel below it."""
        record = await self.relay(**fields)
        await client.spawn(record, ipykernel(record))
        return client.read_relay_record(record.folder)

    def end(self) -> None:
        """End everything in any state; keep the folder if it is not ours."""
        with contextlib.suppress(OSError, ValueError):
            kill_and_wait(self.host_pid)
        for record in client.read_relay_records(self.runtime):
            if record.is_alive:
                kill_and_wait(record.pid)
            if record.kernel is not None and record.has_living_kernel:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(record.kernel.pid, signal.SIGKILL)
        remove_folder(self.runtime.relays)


class Stranger:
    """A kernel that no relay spawned, like one in a container."""

    def __init__(self, record: RelayRecord) -> None:
        launch = ipykernel(record)
        with open(record.folder / "stranger.log", "ab") as log:
            self._process = subprocess.Popen(launch.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def end(self) -> int:
        """Kill the kernel if it lives; return its exit status."""
        self._process.kill()
        return self._process.wait(SECONDS)

    def wait(self) -> int:
        return self._process.wait(SECONDS)


def ipykernel(record: RelayRecord, *, env: dict[str, str] | None = None, **fields: Any) -> KernelLaunch:
    argv = (sys.executable, "-m", "ipykernel_launcher", "-f", str(record.kernel_connection_file))
    return KernelLaunch(argv, {**os.environ, KERNEL_ID_VARIABLE: record.kernel_id, **(env or {})}, **fields)


def kill_and_wait(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        select_readable(descriptor)
        os.close(descriptor)


def select_readable(descriptor: int) -> None:
    poll = select.poll()  # select() takes no descriptor above 1023
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(SECONDS * 1000), "it did not end"


def lives(record: RelayRecord) -> bool:
    return is_process(record.pid, record.start_time_ticks)


async def until(condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(0.02)
    return found


async def until_true(ask: Callable[[], Awaitable[bool]]) -> None:
    """Wait until an asynchronous question has the answer true."""
    deadline = time.monotonic() + SECONDS
    while not await ask():
        assert time.monotonic() < deadline, f"not within {SECONDS} s"
        await asyncio.sleep(0.02)


async def soon(awaitable: Awaitable[T]) -> T:
    return await asyncio.wait_for(awaitable, SECONDS)


class Gateway:
    """One link, its session, and the events that came by it."""

    def __init__(self, record: RelayRecord, session: str = "a-session") -> None:
        self.record = record
        self.name = session
        self.session = Session(key=str(record.front["key"]).encode())
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self.messages: list[dict[str, Any]] = []
        self.raw: list[LinkMessage] = []
        self.acknowledges = True
        self.reads = True  # False: messages are kept as they came
        self.lost_because: str | None = None
        self.link: RelayLink

    async def connect(self, *, attach: bool = True) -> Gateway:
        self.link = await RelayLink.connect(self.record, self)
        if attach:
            self.link.attach(self.name)
        return self

    def take(self, event: Any) -> None:
        if isinstance(event, LinkMessage) and not self.reads:
            self.raw.append(event)
        elif isinstance(event, LinkMessage):
            frames = [bytes(frame) for frame in event.frames]
            message = self.session.deserialize(frames[1:], content=True)
            message |= {"channel": event.channel, "seq": event.seq, "to": event.session}
            self.messages.append(message)
            if self.acknowledges:
                self.link.ack(event.seq)
            event = message
        self.events.put_nowait(event)

    def lost(self, reason: str) -> None:
        self.lost_because = reason
        self.events.put_nowait(reason)

    def request(self, msg_type: str, content: dict[str, Any], channel: str = "shell", **fields: Any) -> str:
        message = self.session.msg(msg_type, content, **fields)
        self.link.send(channel, self.name, self.session.serialize(message))
        return str(message["header"]["msg_id"])

    def execute(self, code: str, **fields: Any) -> str:
        content = {"code": code, "silent": False, "store_history": False, "allow_stdin": True, "user_expressions": {}}
        return self.request("execute_request", {**content, **fields})

    async def until(self, matches: Callable[[Any], bool]) -> Any:
        """Return the first event from now on that matches."""

        async def look() -> Any:
            while not matches(event := await self.events.get()):
                pass
            return event

        return await soon(look())

    async def idle(self, msg_id: str) -> None:
        """Wait for all output of a request.

        Its reply comes by another channel, and may come later: see ``done``.
        """
        await self.until(lambda event: is_idle(event, msg_id))

    async def done(self, msg_id: str) -> None:
        """Wait for a request's reply and its idle status, in the session that sent it.

        Either may come last.
        """

        def is_done() -> bool:
            its = [message for message in self.messages if parent(message) == msg_id]
            return any(is_idle(m, msg_id) for m in its) and any(m["msg_type"].endswith("_reply") for m in its)

        await until(is_done)

    def outputs(self, msg_id: str) -> str:
        """Return the text that a cell printed."""
        return "".join(m["content"]["text"] for m in self.messages if m["msg_type"] == "stream" and parent(m) == msg_id)


def parent(message: Any) -> str:
    return str(message["parent_header"].get("msg_id", "")) if isinstance(message, dict) else ""


def is_idle(event: Any, msg_id: str) -> bool:
    return parent(event) == msg_id and event["msg_type"] == "status" and event["content"]["execution_state"] == "idle"


@contextlib.asynccontextmanager
async def a_client(record: RelayRecord) -> AsyncIterator[AsyncKernelClient]:
    """Return a ready Jupyter client of the front.

    Its own wait_for_ready takes a kernel that starts slowly for dead.
    """
    found = AsyncKernelClient()
    found.load_connection_info(dict(record.front))
    found.start_channels(hb=False)
    try:
        found.kernel_info()
        await soon(found.get_shell_msg())
        # The client subscribes by a connection of its own, maybe after its first cell has begun to
        # print; then it gets a welcome.
        await until_true(found.iopub_channel.msg_ready)
        yield found
    finally:
        found.stop_channels()

"""The client of the node agent: an asyncio client, and a synchronous query for the command line.

All Python code reaches the agent by this module. The client has one connection; it neither
reconnects nor retries, since the caller decides that. When the connection is lost, every waiter
fails at once. Exceptions:

    AgentClientError
     ├── AgentUnreachable    no agent answers at the socket, or the connection was lost
     ├── AgentRefused        the agent refused the request; ``code`` is one of docs/reference/agent-protocol.md
     └── AgentUnreadable     the agent's answer is unreadable for this version
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from jupyter_aliquot.gpu_hook.base.unix_sockets import open_connection
from jupyter_aliquot.gpu_hook.paths import (
    PathError,
    RuntimeDir,
    check_runtime_dir,
    find_door,
    find_runtime_dir,
    is_anothers,
)
from jupyter_aliquot.gpu_hook.waiting import end_task, forget_reading, outlasting_task

from .agent_process import AgentFacts, AgentStartError, find_agent, start_agent
from .reports import (
    AgentHello,
    DeviceGrant,
    DeviceStatus,
    KernelActivity,
    KernelDeviceStatus,
    KernelGrant,
    KernelStatus,
    LostKernel,
    NodeStatus,
    UnreadableReportError,
    read_grant,
    read_hello,
    read_lease_event,
    read_status,
)
from .residency_reports import LeaseEvent
from .status_reader import StatusReader

__all__ = [
    "PROTOCOL_VERSION",
    "AgentClient",
    "AgentClientError",
    "AgentFacts",
    "AgentHello",
    "AgentRefused",
    "AgentStartError",
    "AgentUnreachable",
    "AgentUnreadable",
    "DeviceGrant",
    "DeviceStatus",
    "KernelActivity",
    "KernelDeviceStatus",
    "KernelGrant",
    "KernelStatus",
    "LeaseEvent",
    "LostKernel",
    "NodeStatus",
    "find_agent",
    "query",
    "read_status",
    "start_agent",
]

PROTOCOL_VERSION = 1
_LONGEST_ANSWER = 64 << 20
_LONG_LINE = 256 << 10  # longer ones are parsed in a thread, since that takes milliseconds
_MOST_EVENTS = 16  # events that a watcher has not read
_NO_REASON, _LONGEST_REASON = "no reason given", 10_000
_Report = TypeVar("_Report")


class AgentClientError(Exception):
    """Base of the exceptions that this module raises."""


class AgentUnreachable(AgentClientError):
    """No agent answers at the socket, or the connection was lost."""


class AgentRefused(AgentClientError):
    """The agent refused the request."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class AgentUnreadable(AgentClientError):
    """The agent's answer is unreadable for this version."""


class AgentClient:
    """One control connection.

    It holds the reservations that it requested: closing it lets them go.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: Path) -> None:
        self._reader = reader
        self._writer = writer
        self._path = path
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._subscribers: set[asyncio.Queue[bool]] = set()
        self._watchers: dict[str, set[asyncio.Queue[LeaseEvent | None]]] = {}
        self._status = StatusReader()
        self._status_without_kernels = StatusReader()
        self._last_id = 0
        self._is_closed = False
        self.close_reason = ""  # why this side closed it
        self._lost: AgentUnreachable | None = None
        self._listener: asyncio.Task[None] | None = outlasting_task(self._listen(), "aliquot-agent-client")

    @classmethod
    async def connect(cls, runtime_dir: str | os.PathLike[str] | None = None, *, seconds: float = 5) -> AgentClient:
        """Connect to the agent of ``runtime_dir`` (default: this user's).

        Raises AgentUnreachable.
        """
        path = agent_socket_path(runtime_dir, as_guest=True)
        try:
            reader, writer = await open_connection(path, limit=_LONGEST_ANSWER, seconds=seconds)
        except (OSError, asyncio.TimeoutError) as error:
            raise _unreachable(path, error) from error
        return cls(reader, writer, path)

    @property
    def is_connected(self) -> bool:
        return self._lost is None

    async def hello(self, name: str) -> AgentHello:
        """Introduce this client, and check that both speak the same version."""
        return _readable(read_hello, await self.ask("hello", version=PROTOCOL_VERSION, name=name))

    async def status(self, *, kernels: bool = True) -> NodeStatus:
        """Return the status.

        With ``kernels`` False, present agents leave out the kernels, and the bytes of each device in
        use; earlier ones send them all the same.
        """
        if not kernels:
            answer = await self.ask("status", kernels=False, use=False)
            return _readable(self._status_without_kernels.read, answer)
        return _readable(self._status.read, await self.ask("status", since=self._status.seen))

    async def reserve(
        self,
        kernel_id: str,
        *,
        owner: str,
        hundredths: int,
        memory_limit: int | None = None,
        workload_class: str = "production",
        label: str = "",
        placement: Mapping[str, int] | None = None,
        attributes: Mapping[str, str] | None = None,
        residency: str | None = None,
        owner_limit: int | None = None,
        uid: int | None = None,
    ) -> KernelGrant:
        """Reserve, or become another holder of the same reservation. Raises AgentRefused.

        ``residency`` is how the kernel's memory may leave its devices (``vmm``, ``managed``,
        ``off``; None: the node's default). ``owner_limit`` is the hundredths that the owner may
        hold in total; an agent whose grant has no ``owner_hundredths`` ignored it. ``uid`` is the
        account of the kernel's processes; None: any.
        """
        size = {"hundredths": hundredths, "memory_limit": memory_limit, "workload_class": workload_class}
        fields: dict[str, Any] = {"kernel_id": kernel_id, "owner": owner, **size, "label": label}
        fields["attributes"] = dict(attributes or {})
        if placement is not None:
            fields["placement"] = [{"uuid": uuid, "hundredths": part} for uuid, part in placement.items()]
        optional = {"residency": residency, "owner_limit": owner_limit, "uid": uid}
        fields |= {name: value for name, value in optional.items() if value is not None}
        answer = await self.ask("reserve", **fields)
        return _readable(read_grant, answer.get("grant"))

    async def bind(self, kernel_id: str, pid: int, start_time_ticks: int) -> None:
        """Tell the kernel's process, which from now on holds the reservation as well."""
        await self.ask("bind", kernel_id=kernel_id, pid=pid, start_time_ticks=start_time_ticks)

    async def release(self, kernel_id: str) -> bool:
        """End a reservation; return whether it was there."""
        return bool((await self.ask("release", kernel_id=kernel_id)).get("released"))

    async def resize(
        self, kernel_id: str, *, hundredths: int, memory_limit: int | None = None, workload_class: str | None = None
    ) -> KernelGrant:
        """Give a running kernel another size or class, on the same devices; its generation grows.

        Raises AgentRefused; ``no_room``: it has to grow and cannot now. It keeps memory beyond a
        smaller limit until its next swap-out.
        """
        fields = {"hundredths": hundredths, "memory_limit": memory_limit, "workload_class": workload_class}
        answer = await self.ask("resize", kernel_id=kernel_id, **fields)
        return _readable(read_grant, answer.get("grant"))

    async def swap_out(self, kernel_id: str) -> None:
        """Take an idle kernel's memory to the host soon.

        Raises AgentRefused: ``conflict`` if it is busy, or can never be swapped out.
        """
        await self.ask("swap_out", kernel_id=kernel_id)

    async def wake(self, kernel_id: str) -> None:
        """Bring a kernel's memory back as soon as there is room, as if a cell had come.

        Raises AgentRefused.
        """
        await self.ask("wake", kernel_id=kernel_id)

    async def hint(self, kernel_id: str) -> None:
        """Tell the agent that a cell may come soon. Raises AgentRefused.

        The kernel comes back if only idle kernels have to leave.
        """
        await self.ask("hint", kernel_id=kernel_id)

    async def watch(self, kernel_id: str) -> AsyncIterator[LeaseEvent]:
        """Yield what a kernel waits for: now, at each change, and each second while it waits.

        New events replace old ones. Raises AgentRefused and AgentUnreachable, and ends when this
        client is closed.
        """
        events: asyncio.Queue[LeaseEvent | None] = asyncio.Queue(maxsize=_MOST_EVENTS)
        watchers = self._watchers.setdefault(kernel_id, set())
        watchers.add(events)
        try:
            yield _readable(read_lease_event, await self.ask("watch", kernel_id=kernel_id))
            while (event := await events.get()) is not None:
                yield event
            if self._lost is not None and not self._is_closed:
                raise self._lost
        finally:
            watchers.discard(events)

    async def shutdown(self) -> None:
        """End the agent; refused where it runs as a service."""
        await self.ask("shutdown")

    def subscribe(self) -> AsyncIterator[None]:
        """Yield whenever the reservable capacity may have changed.

        Changes while the reader is busy become one. Raises AgentUnreachable when the connection is
        lost, and ends when this client is closed.
        """
        return self._heed("subscribe")

    def watch_node(self) -> AsyncIterator[None]:
        """Yield whenever the kernels in the status changed. Raises AgentRefused.

        Otherwise it is like ``subscribe``; do not use both.
        """
        return self._heed("watch")

    async def _heed(self, op: str) -> AsyncIterator[None]:
        events: asyncio.Queue[bool] = asyncio.Queue(maxsize=1)
        self._subscribers.add(events)
        try:
            await self.ask(op)
            while await events.get():
                yield
            if self._lost is not None:
                raise self._lost
        except AgentUnreachable:
            if not self._is_closed:
                raise
        finally:
            self._subscribers.discard(events)

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send one request and return its answer's fields.

        Raises AgentUnreachable and AgentRefused.
        """
        if self._lost is not None:
            raise self._lost
        self._last_id += 1
        number = self._last_id
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            self._writer.write(_line({"id": number, "op": op, **fields}))
            with contextlib.suppress(ConnectionError):  # the listener reports it to every waiter
                await self._writer.drain()
            return _checked(await answer)
        finally:
            self._answers.pop(number, None)

    async def close(self, reason: str = "") -> None:
        """Close the connection and let go of what it holds. Idempotent; the first reason stays."""
        self._is_closed = True
        self.close_reason = self.close_reason or reason
        self._writer.close()
        # the end of the listener calls this method again
        listener, self._listener = self._listener, None
        if listener is not None:
            await end_task(listener)
        self._fail(AgentUnreachable(f"the connection to the agent at {self._path} was closed by us"))
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        forget_reading(self._writer.transport)

    async def __aenter__(self) -> AgentClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _listen(self) -> None:
        reason = "it closed the connection"
        try:
            while line := await self._reader.readline():
                self._take(await _parsed(line))
                await asyncio.sleep(0)  # lines that are there already keep no other task waiting
        except Exception as error:  # whatever it sent: waiters must not wait for ever
            reason = str(error) or type(error).__name__
        self._fail(AgentUnreachable(f"lost the agent at {self._path}: {reason}; see aliquot doctor"))

    def _take(self, message: Any) -> None:
        if not isinstance(message, dict):
            raise ValueError(f"it sent {type(message).__name__} instead of an object")
        if message.get("event") == "lease":
            # a watcher gets the next event within a second
            with contextlib.suppress(AgentUnreadable):
                event = _readable(read_lease_event, message)
                for watcher in self._watchers.get(event.kernel_id, ()):
                    _put_newest(watcher, event)
            return
        if "event" in message:
            for events in self._subscribers:
                if events.empty():
                    events.put_nowait(True)
            return
        number = message.get("id", 0)
        if not isinstance(number, int):
            raise ValueError(f"it answered a request {number!r:.40}, which is no number")
        answer = self._answers.get(number)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _fail(self, error: AgentUnreachable) -> None:
        if self._lost is not None:
            return
        self._lost = error
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)
        for events in self._subscribers:
            if not events.empty():
                events.get_nowait()
            events.put_nowait(False)
        for watcher in itertools.chain.from_iterable(self._watchers.values()):
            _put_newest(watcher, None)
        self._writer.close()


def query(
    op: str, *, runtime_dir: str | os.PathLike[str] | None = None, seconds: float = 5, **fields: Any
) -> dict[str, Any]:
    """Send one request without asyncio, and return the answer's fields.

    Raises the exceptions of this module.
    """
    path = agent_socket_path(runtime_dir)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            connection.connect(os.fspath(path))
            connection.sendall(_line({"id": 1, "op": op, **fields}))
            with connection.makefile("rb") as answers:
                line = answers.readline(_LONGEST_ANSWER)
    except OSError as error:
        raise _unreachable(path, error) from error
    if not line.endswith(b"\n"):
        raise AgentUnreachable(f"the agent at {path} closed the connection without an answer")
    try:
        return _checked(json.loads(line))
    except ValueError as error:
        raise AgentUnreadable(f"the agent at {path} answered what is no JSON: {line[:80]!r}") from error


def agent_socket_path(runtime_dir: str | os.PathLike[str] | None = None, *, as_guest: bool = False) -> Path:
    """Return the socket of this folder's agent.

    Raises AgentUnreachable if no agent could listen there. ``as_guest``: the folder may be one that root
    made for a gateway's account, whose agent hears other accounts about their own kernels.
    """
    runtime = find_runtime_dir() if runtime_dir is None else RuntimeDir(Path(runtime_dir).absolute())
    if as_guest and is_anothers(runtime):
        return runtime.agent_socket
    try:
        check_runtime_dir(runtime)
    except PathError as error:
        raise AgentUnreachable(str(error)) from error
    return runtime.agent_socket


def _put_newest(queue: asyncio.Queue[LeaseEvent | None], event: LeaseEvent | None) -> None:
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(event)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


async def _parsed(line: bytes) -> Any:
    return json.loads(line) if len(line) < _LONG_LINE else await asyncio.to_thread(json.loads, line)


def _checked(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise AgentUnreadable(f"the agent answered {type(message).__name__} instead of an object")
    if message.get("ok") is True:
        return message
    code, told = (_text(message.get(name, other)) for name, other in (("code", "internal"), ("message", _NO_REASON)))
    raise AgentRefused(code, told)


def _text(told: object) -> str:
    """Return what the agent told as text that can be encoded, and is not long."""
    return str(told)[:_LONGEST_REASON].encode(errors="replace").decode()


def _readable(read: Callable[[Mapping[str, Any]], _Report], report: Any) -> _Report:
    try:
        return read(report if isinstance(report, dict) else {})
    except UnreadableReportError as error:
        raise AgentUnreadable(str(error)) from error


def _unreachable(path: Path, error: Exception) -> AgentUnreachable:
    if isinstance(error, FileNotFoundError):
        found = "there is no socket"
    elif isinstance(error, ConnectionRefusedError):
        found = "the socket is stale, its agent ended"
    else:
        found = (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
    door = find_door()
    if door is None:
        remedy = "start one with: aliquot agent"
    else:  # its agent tells the gateway's account alone
        remedy = (
            f"this account's kernels with a GPU size run at the machine's gateway ({door.path}), which JupyterLab's "
            "sidebar shows"
        )
    return AgentUnreachable(f"no node agent answers at {path}: {found}; {remedy}")

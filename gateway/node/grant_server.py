"""The gateway's local socket, by which kernels of other programs on this node join its queue.

provisioner/grants/gateway_client.py is the other side, and defines the messages. One gateway on a
node owns the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import pwd
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jupyter_aliquot.gateway.scheduling.admission import Admission
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.gpu_hook.base.files import open_lock, try_lock, write_holder
from jupyter_aliquot.gpu_hook.paths import KERNEL_ID, RuntimeDir, prepare_runtime_dir
from jupyter_aliquot.gpu_hook.waiting import end_task, within
from jupyter_aliquot.provisioner.errors import AliquotError, RequestError
from jupyter_aliquot.provisioner.grants.codec import grant_record, read_request
from jupyter_aliquot.provisioner.grants.gateway_client import LONGEST_LINE, VERSION, error_record
from jupyter_aliquot.provisioner.resources import Grant, KernelProcess
from jupyter_aliquot.provisioner.runtime.process import ProcessRuntime

_QUESTION_SECONDS = 10.0
_UCRED = struct.Struct("3i")


class LocalSocket:
    """A server at ``gateway.sock``, as long as it holds ``gateway.lock``."""

    def __init__(
        self, runtime: RuntimeDir, admission: Admission, log: logging.Logger, teams_of: Callable[[str], frozenset[str]]
    ) -> None:
        self._runtime = runtime
        self._admission = admission
        self._log = log
        self._teams_of = teams_of
        self._processes = ProcessRuntime()
        self._lock: int | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def is_owner(self) -> bool:
        """Return whether this gateway owns the node's queue."""
        return self._server is not None

    async def start(self) -> bool:
        """Serve.

        Return False if another gateway of this node already does. Raises PathError and OSError.
        """
        prepare_runtime_dir(self._runtime)
        self._lock = _take_lock(self._runtime)
        if self._lock is None:
            self._log.warning(
                "local_socket=taken another gateway serves %s; kernels started by this server queue here, "
                "those of nbclient and consoles there. The node agent decides between both",
                self._runtime.gateway_socket,
            )
            return False
        try:
            # This gateway has the lock, so that a socket here is stale.
            self._runtime.gateway_socket.unlink(missing_ok=True)
            path = self._runtime.gateway_socket
            self._server = await asyncio.start_unix_server(self._accept, path, limit=LONGEST_LINE)
            self._runtime.gateway_socket.chmod(0o600)
        except BaseException:
            await self.stop()  # another gateway may own the queue
            raise
        return True

    async def stop(self) -> None:
        """Close. The provisioners renew their reservations with the node agent. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            self._runtime.gateway_socket.unlink(missing_ok=True)
        for connection in list(self._connections):
            await end_task(connection)
        if server is not None:
            await server.wait_closed()
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Called by the server for each connection."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(_Peer(reader, writer))
        except asyncio.CancelledError:
            # The server stops. asyncio would report a cancelled connection as a defect.
            pass
        except Exception:
            self._log.exception("local_socket=failed")
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, peer: _Peer) -> None:
        try:
            requester, grant = await self._grant(peer)
        except AliquotError as error:
            await peer.send(error_record(error))
            return
        except ConnectionError:
            return
        process: KernelProcess | None = None
        try:
            await peer.send({"ok": True, "grant": grant_record(grant)})
            process = await self._hold(peer, requester)
        except ConnectionError as error:
            self._log.info("kernel=%s holder=left reason=%s", requester.kernel_id, error)
        except _HolderLeft as left:
            process = left.process
        if process is not None:
            await self._processes.wait(process)
        await self._admission.release(requester.kernel_id)

    async def _grant(self, peer: _Peer) -> tuple[KernelRef, Grant]:
        """Queue the peer's request until it is granted.

        A peer that closes withdraws. Raises AliquotError.
        """
        question = await peer.question()
        requester, request, wait_seconds = _read_question(question, peer.owner())
        requester = replace(requester, teams=self._teams_of(requester.owner))
        future = self._admission.submit(requester, request, wait_seconds)
        changed = asyncio.Event()
        stop_observing = self._admission.observe(changed.set)
        gone = asyncio.ensure_future(peer.receive())
        try:
            told = ""
            while not future.done():
                if gone.done():
                    raise ConnectionResetError("its requester left")
                entry = self._admission.waiting(requester.kernel_id)
                if entry is not None and entry.reason != told:
                    told = entry.reason
                    await peer.send({"event": "waiting", "reason": told})
                change = asyncio.ensure_future(changed.wait())
                waits: set[asyncio.Future[Any]] = {future, gone, change}
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
                changed.clear()
            return requester, future.result()
        except BaseException:
            if future.done() and not future.cancelled() and future.exception() is None:
                await self._admission.release(requester.kernel_id)
            future.cancel()
            raise
        finally:
            stop_observing()
            await end_task(gone)

    async def _hold(self, peer: _Peer, requester: KernelRef) -> KernelProcess | None:
        """Wait until the peer releases.

        Raises _HolderLeft when it closes; the kernel's process may live on then.
        """
        process: KernelProcess | None = None
        while (message := await peer.receive()) is not None:
            if message.get("op") == "release":
                await self._admission.release(requester.kernel_id)
                await peer.send({"ok": True, "released": True})
                return None
            try:
                process = peer.process(requester.kernel_id, message)
                answer: dict[str, Any] = {"ok": True}
            except RequestError as error:
                answer = error_record(error)
            await peer.send(answer)
        raise _HolderLeft(process)


class _HolderLeft(Exception):
    """The holder's connection closed. It had bound ``process``."""

    def __init__(self, process: KernelProcess | None) -> None:
        super().__init__("the holder closed its connection")
        self.process = process


class _Peer:
    """One connection: lines of JSON, and the user at the other end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        connection: socket.socket = writer.get_extra_info("socket")
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        self._uid: int = _UCRED.unpack(credentials)[1]

    def owner(self) -> str:
        """The peer's user, by the operating system's account. Raises RequestError."""
        if self._uid not in (0, os.geteuid()):
            raise RequestError(
                f"User {self._uid} cannot use the gateway of user {os.geteuid()}. Start one of your own."
            )
        try:
            return pwd.getpwuid(self._uid).pw_name
        except KeyError:
            return str(self._uid)

    async def question(self) -> Mapping[str, Any]:
        """Return the first line. Raises RequestError and ConnectionError."""
        try:
            message = await within(self.receive(), _QUESTION_SECONDS)
        except asyncio.TimeoutError:
            raise RequestError(f"No request came within {_QUESTION_SECONDS:g} s.") from None
        if message is None:
            raise ConnectionResetError("its requester left")
        return message

    async def receive(self) -> dict[str, Any] | None:
        """Return the next line.

        None at the end of the connection, or for a line that cannot be read.
        """
        try:
            line = await self._reader.readline()
            message = json.loads(line) if line else None
        except (OSError, ValueError, RecursionError):
            return None
        return message if isinstance(message, dict) else None

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a line. Raises ConnectionError when the peer is gone."""
        self._writer.write(json.dumps(message).encode() + b"\n")
        await self._writer.drain()

    def process(self, kernel_id: str, message: Mapping[str, Any]) -> KernelProcess:
        """Return the process that the peer names as its kernel: one of the peer's user.

        Raises RequestError.
        """
        try:
            pid, ticks = int(message["pid"]), int(message["start_time_ticks"])
            owner = os.stat(f"/proc/{pid}").st_uid
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise RequestError(f"The process of the request {message.get('op')!r} cannot be found: {error}") from error
        if self._uid not in (0, owner):
            raise RequestError(f"Process {pid} cannot be bound: it belongs to user {owner}.")
        return KernelProcess(kernel_id, pid, ticks, pid)


def _read_question(question: Mapping[str, Any], owner: str) -> tuple[KernelRef, Any, float]:
    """Read a request. Raises RequestError."""
    if question.get("op") != "ask" or question.get("version") != VERSION:
        raise RequestError(
            f"The request is {question.get('op')!r} of version {question.get('version')!r}, but this gateway answers "
            f"'ask' of version {VERSION}. Install the same version of Aliquot on both sides."
        )
    kernel_id = str(question.get("kernel_id"))
    if not KERNEL_ID.fullmatch(kernel_id):
        raise RequestError(f"Kernel id {kernel_id!r} is not valid. Use 1 to 36 letters, digits, '_', '.', '-'")
    try:
        wait_seconds = float(question.get("wait_seconds", 0))
        if not 0 <= wait_seconds < math.inf:
            raise ValueError
    except (TypeError, ValueError) as error:
        raise RequestError(
            f"A wait of {question.get('wait_seconds')!r} seconds is not valid. Use 0 or more."
        ) from error
    label, kernelspec = str(question.get("label", "")), str(question.get("kernelspec", ""))
    return KernelRef(kernel_id, owner, label, kernelspec), read_request(question), wait_seconds


def _take_lock(runtime: RuntimeDir) -> int | None:
    """Return the lock's descriptor; None if another process holds it.

    The lock ends with this process.
    """
    descriptor = open_lock(runtime.gateway_lock)
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, descriptor)
        if not try_lock(descriptor):
            return None
        write_holder(descriptor)
        undo.pop_all()
    return descriptor

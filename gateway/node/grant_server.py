"""The gateway's local socket, by which kernels of other programs on this node join its queue.

provisioner/grants/gateway_client.py is the other side, and defines the messages. One gateway on a
node owns the socket. `callers` tells who may ask; a folder that root made for a gateway and its
users' accounts lets each of them connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jupyter_aliquot.gateway.scheduling.admission import Admission, QueueEntry
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.gateway.scheduling.wait_reason import not_planned
from jupyter_aliquot.gpu_hook.base.files import open_lock, try_lock, write_holder
from jupyter_aliquot.gpu_hook.base.pacing import TokenBucket
from jupyter_aliquot.gpu_hook.base.process_account import account_of
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus
from jupyter_aliquot.gpu_hook.paths import KERNEL_ID, RuntimeDir, is_shared, prepare_runtime_dir
from jupyter_aliquot.gpu_hook.waiting import end_task, within
from jupyter_aliquot.provisioner.errors import AgentUnavailableError, AliquotError, GrantError, LimitError, RequestError
from jupyter_aliquot.provisioner.grants.agent_calls import answered, greet
from jupyter_aliquot.provisioner.grants.codec import grant_record, read_request
from jupyter_aliquot.provisioner.grants.gateway_client import LONGEST_QUESTION, VERSION, error_record
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, KernelProcess
from jupyter_aliquot.provisioner.runtime.process import ProcessRuntime

from .callers import Caller, Callers
from .client_grants import ClientGrant, ClientGrants, client_of, holding_of, requester_of
from .view import NodeView

_QUESTION_SECONDS = 10.0
_UNREAD_SECONDS = 10.0
_LINES_PER_SECOND, _LINES_AT_ONCE = 5.0, 50.0
_LONGEST_NAME = 200
_LINGER_SECONDS, _MOST_LINGERING, _MOST_OF_AN_ACCOUNT = 2.0, 512, 64
_MOST_UNACCEPTED = 1024  # a class of users that starts at once
_UCRED = struct.Struct("3i")


class LocalSocket:
    """A server at ``gateway.sock``, as long as it holds ``gateway.lock``."""

    def __init__(
        self,
        runtime: RuntimeDir,
        admission: Admission,
        log: logging.Logger,
        teams_of: Callable[[str], frozenset[str]],
        callers: Callers | None = None,
        is_taken: Callable[[str], bool] = lambda kernel_id: False,
        largest: GpuShare | None = None,
    ) -> None:
        """*is_taken* tells whether the gateway has a kernel of this id, with or without a GPU.

        *largest* is the largest size of another account's kernel; None: no limit.
        """
        self._largest = largest
        self._runtime = runtime
        self._admission = admission
        self._log = log
        self._teams_of = teams_of
        self._callers = callers or Callers()
        self._is_taken = is_taken
        self._grants = ClientGrants()
        self._ending: set[asyncio.Task[None]] = set()
        self._lingering: Counter[str] = Counter()  # by holder
        self._is_recovered = False
        self._began = time.time()
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
            is_open = self._callers.serve_others and is_shared(self._runtime)
            self._server = await asyncio.start_unix_server(
                self._accept, path, limit=LONGEST_QUESTION, backlog=_MOST_UNACCEPTED
            )
            self._runtime.gateway_socket.chmod(0o666 if is_open else 0o600)
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
        for task in (*self._connections, *self._ending):
            await end_task(task)
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
        peer = _Peer(reader, writer)
        try:
            with self._callers.admit(peer.uid, time.monotonic()):
                await self._serve(peer)
        except AliquotError as error:
            await self._refuse(peer, error)
        except asyncio.CancelledError:
            # The server stops, or another connection took the grant up. asyncio would report a
            # cancelled connection as a defect.
            pass
        except Exception:
            self._log.exception("local_socket=failed")
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await within(writer.wait_closed(), _UNREAD_SECONDS)
            writer.transport.abort()

    async def _refuse(self, peer: _Peer, error: AliquotError) -> None:
        """Say why, and let the peer send what it is about to send: it reads the answer only then."""
        with contextlib.suppress(ConnectionError, asyncio.TimeoutError):
            await peer.send(error_record(error))
            lingering, holder = self._lingering, self._callers.holder_of(peer.uid)
            if lingering[holder] < _MOST_OF_AN_ACCOUNT and lingering.total() < _MOST_LINGERING:
                lingering[holder] += 1
                try:
                    await within(peer.finish(), _LINGER_SECONDS)
                finally:
                    lingering[holder] -= 1

    async def _serve(self, peer: _Peer) -> None:
        """Give the peer a grant, and keep that until its kernel ends. Raises AliquotError."""
        try:
            caller = await self._callers.identify(peer.uid)
            question = await peer.question()
            if question.get("op") == "hold":
                held, grant = await self._take_up(question, caller)
            else:
                requester, grant = await self._grant(peer, question, caller)
                held = self._grants.add(requester, caller)
        except ConnectionError:
            return
        requester = held.requester
        try:
            await peer.send({"ok": True, "grant": grant_record(grant)})
            await self._hold(peer, held)
        except ConnectionError as error:
            self._log.info("kernel=%s holder=left reason=%s", requester.kernel_id, error)
        if held.process is not None:
            await self._processes.wait(held.process)
        await self._release(held)

    async def _release(self, held: ClientGrant) -> None:
        """Release a grant once: its kernel's id may have another one soon."""
        if self._grants.forget(held):
            await self._admission.release(held.requester.kernel_id)

    async def _take_up(self, question: Mapping[str, Any], caller: Caller) -> tuple[ClientGrant, Grant]:
        """Let the peer hold a grant of its account again. Raises AliquotError."""
        held = await self._grants.take_up(_read_kernel_id(question, "hold"), caller)
        for holding in self._admission.snapshot().holdings:
            if holding.grant.kernel_id == held.requester.kernel_id and holding.is_confirmed:
                return held, holding.grant
        held.keeper, held.unclaimed_since = None, time.monotonic()
        raise AgentUnavailableError("The node agent has not confirmed this kernel's GPU yet. Asked again in a moment")

    async def _grant(self, peer: _Peer, question: Mapping[str, Any], caller: Caller) -> tuple[KernelRef, Grant]:
        """Queue the peer's request until it is granted.

        A peer that closes withdraws. Raises AliquotError.
        """
        requester, request, wait_seconds = _read_question(question, caller.user)
        if requester.kernel_id in self._grants or self._is_taken(requester.kernel_id):
            raise GrantError(f"Kernel {requester.kernel_id} exists already. Use another kernel id.")
        self._check_size(request.gpus, caller)
        requester = replace(requester, teams=self._teams_of(requester.owner), account=caller.account)
        future = self._admission.submit(requester, request, wait_seconds)
        changed = asyncio.Event()
        stop_observing = self._admission.observe(changed.set)
        gone = asyncio.ensure_future(peer.receive())
        try:
            told: dict[str, Any] = {}
            while not future.done():
                if gone.done():
                    raise ConnectionResetError("its requester left")
                entry = self._admission.waiting(requester.kernel_id)
                is_planned = entry is not None and entry.why != not_planned(request)
                if entry is not None and is_planned and (place := _place(entry)) != told:
                    told = place
                    await peer.send(place)
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

    def _check_size(self, gpus: GpuShare, caller: Caller) -> None:
        """Refuse a size that no kernelspec of this gateway has. Raises LimitError."""
        if caller.is_other and self._largest is not None and gpus > self._largest:
            raise LimitError(
                f"Requested {gpus} GPU, but this gateway grants a kernel at most {self._largest} "
                "(c.Aliquot.largest_gpus). Ask for less"
            )

    async def _hold(self, peer: _Peer, held: ClientGrant) -> None:
        """Answer the peer until it releases, or closes the connection; a process may live on then."""
        kernel_id = held.requester.kernel_id
        while (message := await peer.receive()) is not None:
            if message.get("op") == "release":
                await self._release(held)
                await peer.send({"ok": True, "released": True})
                held.process = None
                return
            try:
                held.process = peer.process(kernel_id, message)
                answer: dict[str, Any] = {"ok": True}
            except RequestError as error:
                answer = error_record(error)
            await peer.send(answer)

    # ---- grants of the last gateway

    async def recover(self) -> None:
        """Find the grants that the last gateway gave to clients. Called before admission starts."""
        if not self._callers.serve_others:
            return
        try:
            client = await greet(self._runtime.path, "gateway clients")
            try:
                self._adopt(await answered(client.status()))
            finally:
                await client.close()
        except AliquotError as error:
            self._log.info("local_socket=recovers_later reason=%s", error)

    def watch(self, view: NodeView) -> None:
        """Called with each look at the node: adopt what was not to be had before, release what has ended."""
        if view.status is None:
            return
        if self._callers.serve_others:
            self._adopt(view.status)
        for held in self._grants.abandoned(view.status, time.monotonic()):
            self._log.info("kernel=%s holder=gone; its GPU is free", held.requester.kernel_id)
            self._grants.forget(held)
            task = asyncio.ensure_future(self._admission.release(held.requester.kernel_id))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _adopt(self, status: NodeStatus) -> None:
        if self._is_recovered:
            return
        self._is_recovered = True
        known = {holding.grant.kernel_id for holding in self._admission.snapshot().holdings}
        for kernel in status.kernels:
            uid = client_of(kernel)
            if uid is None or kernel.created > self._began or kernel.kernel_id in known:
                continue
            requester = requester_of(kernel, uid, self._known_teams(kernel.owner))
            if kernel.ending:
                self._admission.adopt_ending(holding_of(kernel, requester, status.node, self._runtime))
                continue
            self._grants.adopt(requester, uid, time.monotonic())
            self._admission.adopt(holding_of(kernel, requester, status.node, self._runtime))
            self._log.info("kernel=%s adopted owner=%s account=%d", kernel.kernel_id, kernel.owner, uid)

    def _known_teams(self, owner: str) -> frozenset[str]:
        try:
            return self._teams_of(owner)
        except AliquotError:
            return frozenset()


class _Peer:
    """One connection: lines of JSON, and the user at the other end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        connection: socket.socket = writer.get_extra_info("socket")
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        self.uid: int = _UCRED.unpack(credentials)[1]
        self._pace = TokenBucket(_LINES_PER_SECOND, _LINES_AT_ONCE, time.monotonic())

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

        None at the end of the connection, or for a line that cannot be read. A peer that sends many
        is read slowly.
        """
        if pause := self._pace.take(time.monotonic()):
            await asyncio.sleep(pause)
        try:
            line = await self._reader.readline()
            message = json.loads(line) if line else None
        except (OSError, ValueError, RecursionError):
            return None
        return message if isinstance(message, dict) else None

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a line. Raises ConnectionError when the peer is gone, or does not read."""
        self._writer.write(json.dumps(message).encode() + b"\n")
        transport = self._writer.transport
        if not (transport.is_closing() or transport.get_write_buffer_size()):
            return  # the system has all of it
        try:
            await within(self._writer.drain(), _UNREAD_SECONDS)
        except asyncio.TimeoutError:
            self._writer.transport.abort()
            raise ConnectionResetError(f"it read nothing for {_UNREAD_SECONDS:g} s") from None

    async def finish(self) -> None:
        """Close our side, and read until the peer closes its own. Raises ConnectionError."""
        self._writer.write_eof()
        with contextlib.suppress(OSError, ValueError):
            await self._reader.read(LONGEST_QUESTION)

    def process(self, kernel_id: str, message: Mapping[str, Any]) -> KernelProcess:
        """Return the process that the peer names as its kernel: one of the peer's user.

        Raises RequestError.
        """
        try:
            pid, ticks = int(message["pid"]), int(message["start_time_ticks"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise RequestError(
                f"The process of the request {message.get('op')!r:.40} cannot be found: {error!r:.80}"
            ) from error
        owner = account_of(pid)
        if owner is None:
            raise RequestError(f"The process {pid} of the request {message.get('op')!r:.40} cannot be found")
        if self.uid not in (0, owner):
            raise RequestError(f"Process {pid} cannot be bound: it belongs to user {owner}.")
        return KernelProcess(kernel_id, pid, ticks, pid)


def _read_question(question: Mapping[str, Any], owner: str) -> tuple[KernelRef, Any, float]:
    """Read a request. Raises RequestError."""
    kernel_id = _read_kernel_id(question, "ask")
    try:
        wait_seconds = float(question.get("wait_seconds", 0))
        if not 0 <= wait_seconds < math.inf:
            raise ValueError
    except (TypeError, ValueError, OverflowError) as error:
        raise RequestError(
            f"A wait of {question.get('wait_seconds')!r:.40} seconds is not valid. Use 0 or more."
        ) from error
    label, kernelspec = (str(question.get(name, ""))[:_LONGEST_NAME] for name in ("label", "kernelspec"))
    return KernelRef(kernel_id, owner, label, kernelspec), read_request(question), wait_seconds


def _read_kernel_id(question: Mapping[str, Any], op: str) -> str:
    """Return the kernel that a first line is about. Raises RequestError."""
    if question.get("op") != op or question.get("version") != VERSION:
        raise RequestError(
            f"The request is {question.get('op')!r:.40} of version {question.get('version')!r:.40}, but this gateway "
            f"answers 'ask' and 'hold' of version {VERSION}. Install the same version of Aliquot on both sides."
        )
    kernel_id = str(question.get("kernel_id"))
    if not KERNEL_ID.fullmatch(kernel_id):
        raise RequestError(f"Kernel id {kernel_id[:60]!r} is not valid. Use 1 to 36 letters, digits, '_', '.', '-'")
    return kernel_id


def _place(entry: QueueEntry) -> dict[str, Any]:
    """Return the message about a request that waits."""
    return {"event": "waiting", "reason": entry.reason, "position": entry.position, "length": entry.length}


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

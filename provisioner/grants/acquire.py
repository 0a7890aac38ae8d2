"""Get a grant for a kernel without one: from this node's gateway, else from its node agent.

The module asks, waits as long as the requester allows, and explains a refusal. `reservation` holds
the grant.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gpu_hook.client.client import AgentClient, AgentClientError, NodeStatus
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, find_door, find_runtime_dir
from jupyter_aliquot.gpu_hook.placement.placement import format_bytes, format_gpus
from jupyter_aliquot.gpu_hook.waiting import end_task, within
from jupyter_aliquot.provisioner.errors import (
    AgentUnavailableError,
    LimitError,
    NoRoomError,
    QueueTimeoutError,
    WithdrawnError,
)
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request, WorkloadClass

from .agent_calls import answered, connect
from .codec import agent_grant
from .gateway_client import GatewayConnection, NoGatewayError
from .reservation import AgentHolder, GatewayHolder, GrantHold, Names

# An agent reports that room may have returned; if we miss the report, we ask again after this long.
_ASK_AGAIN_SECONDS = 2.0
_LIMIT_OPTION = "(AliquotProvisioner.local_limit)"


@dataclass(frozen=True)
class Question:
    """A request for a grant: what is requested, for which kernel, and how long the requester waits.

    ``limit`` is all that one user may hold; ``may_have_normal_priority`` whether the kernel may
    have normal priority. Both count only if no gateway decides.
    """

    kernel_id: str
    request: Request
    names: Names
    wait_seconds: float
    limit: GpuShare | None = None
    may_have_normal_priority: bool = True

    @property
    def asked(self) -> str:
        asked = format_gpus(self.request.gpus.hundredths)
        limit = self.request.memory_limit
        return asked if limit is None else f"{asked} with {format_bytes(limit)}"


async def ask(question: Question, log: logging.Logger) -> GrantHold:
    """Return a grant, held by an open connection until it is released. Raises AliquotError."""
    runtime, door = find_runtime_dir(), find_door()
    started = asyncio.get_running_loop().time()
    # A gateway of this account, then the one that has the machine's GPUs for all accounts.
    for folder in dict.fromkeys(one for one in (runtime, door) if one is not None):
        try:
            return await _ask_gateway(question, folder, log)
        except NoGatewayError as error:
            log.debug("kernel=%s gateway=none reason=%s", question.kernel_id, error)
    if door is not None and door.gateway_socket.exists():
        raise AgentUnavailableError(_not_answered(question, door))
    waited = asyncio.get_running_loop().time() - started
    return await _ask_agent(question, runtime, max(0.0, question.wait_seconds - waited), log)


class GrantClient:
    """One kernel's request for a grant, which can be withdrawn while it waits."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._asking: asyncio.Future[GrantHold] | None = None
        self._is_withdrawn = False

    @property
    def is_asking(self) -> bool:
        return self._asking is not None and not self._asking.done()

    def withdraw(self) -> bool:
        """Withdraw the request; tell whether there was one. `ask` then raises WithdrawnError."""
        if self._asking is None or self._asking.done():
            return False
        self._is_withdrawn = True
        return bool(self._asking.cancel())

    async def ask(self, question: Question) -> GrantHold:
        """Ask for a grant, and wait for it. Raises AliquotError."""
        self._asking = asyncio.ensure_future(ask(question, self._log))
        try:
            return await self._asking
        except asyncio.CancelledError:
            await _drop(self._asking)
            if self._is_withdrawn:
                raise WithdrawnError(
                    f"Requested {question.asked}, and the request was withdrawn while it was queued"
                ) from None
            raise
        finally:
            self._asking, self._is_withdrawn = None, False


def user_name() -> str:
    """Return the owner of kernels without a gateway: the operating system's user."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


async def _ask_gateway(question: Question, runtime: RuntimeDir, log: logging.Logger) -> GrantHold:
    connection = await GatewayConnection.connect(runtime.gateway_socket)
    try:
        grant = await connection.ask(
            question.kernel_id,
            question.request,
            question.names.label,
            question.names.kernelspec,
            question.wait_seconds,
            lambda told: log.warning("Kernel %s waits for its GPU. %s", question.kernel_id, told),
        )
    except BaseException:
        await connection.close()
        raise
    return _hold(question, grant, GatewayHolder(connection, runtime.path), runtime.path, log)


def _not_answered(question: Question, door: RuntimeDir) -> str:
    return (
        f"Requested {question.asked}, but the gateway of this machine does not answer at {door.gateway_socket}. It may "
        "be restarting: try again in a minute. If it stays away, tell an administrator"
    )


async def _ask_agent(question: Question, runtime: RuntimeDir, wait_seconds: float, log: logging.Logger) -> GrantHold:
    try:
        client = await connect(runtime.path)
    except AgentUnavailableError as error:
        raise AgentUnavailableError(
            f"Requested {question.asked}, but no gateway and no node agent run here: {error}. "
            "'aliquot lab' or 'aliquot agent' starts one; 'aliquot doctor' shows what is there"
        ) from error
    try:
        _check_class(question)
        grant = await _reserve(question, client, wait_seconds)
    except BaseException:
        # A requester that gives up leaves nothing behind: closing ends what the agent may just have
        # reserved.
        await client.close()
        raise
    return _hold(question, grant, AgentHolder(client), runtime.path, log)


def _hold(
    question: Question, grant: Grant, holder: AgentHolder | GatewayHolder, path: Path, log: logging.Logger
) -> GrantHold:
    log.info("kernel=%s granted=%s owner=%s", question.kernel_id, question.request.gpus, grant.owner)
    return GrantHold(grant, question.names, holder, path, log)


def _check_class(question: Question) -> None:
    if question.request.workload_class is WorkloadClass.PRODUCTION and not question.may_have_normal_priority:
        raise LimitError(
            f"Requested {question.asked} with normal priority, but no gateway runs here, and without "
            "one kernels have low priority (AliquotProvisioner.local_normal_priority). Choose a "
            "kernelspec whose name ends in -low"
        )


async def _check_limit(limit: GpuShare, client: AgentClient) -> None:
    """Check the limit after the reservation, for an agent of an earlier version that does not.

    Then two starts at once see each other.
    """
    status = await answered(client.status())
    held = sum(kernel.hundredths for kernel in status.kernels if kernel.owner == user_name())
    if held > limit.hundredths:
        raise LimitError(
            f"{user_name()} would hold {format_gpus(held)} and may hold {limit} in all. "
            f"Choose a smaller size, or end a kernel {_LIMIT_OPTION}"
        )


async def _reserve(question: Question, client: AgentClient, wait_seconds: float) -> Grant:
    """Ask, and ask again whenever room may have returned, until the requester's time is over."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    changes = _Changes(client)
    try:
        while True:
            try:
                return await _reserve_now(question, client)
            except NoRoomError:
                left = started + wait_seconds - loop.time()
                if left <= 0:
                    raise await _waited_too_long(question, client, loop.time() - started) from None
                await changes.wait(min(left, _ASK_AGAIN_SECONDS))
    finally:
        await changes.close()


async def _reserve_now(question: Question, client: AgentClient) -> Grant:
    request, limit = question.request, question.limit
    reserved = client.reserve(
        question.kernel_id,
        owner=user_name(),
        hundredths=request.gpus.hundredths,
        memory_limit=None if request.memory_limit is None else int(request.memory_limit),
        workload_class=request.workload_class.value,
        label=question.names.label,
        attributes=question.names.attributes(),
        residency=request.residency or None,
        owner_limit=None if limit is None else limit.hundredths,
    )
    try:
        answer = await answered(reserved)
    except LimitError as error:
        raise LimitError(f"{error} {_LIMIT_OPTION}") from None
    if limit is not None and answer.owner_hundredths is None:
        await _check_limit(limit, client)
    return agent_grant(answer, request.residency)


async def _waited_too_long(question: Question, client: AgentClient, waited: float) -> QueueTimeoutError:
    status = await answered(client.status())
    return QueueTimeoutError(
        f"Requested {question.asked}, but {_found(status)}. It waited {waited:.0f} s in the queue "
        "of the node agent. Ask for less, end a kernel that is not needed, or try again"
    )


def _found(status: NodeStatus) -> str:
    """Return in words what is free, and which kernels hold the rest."""
    free = ", ".join(
        f"{max(0, 100 - device.reserved_hundredths) / 100:g} is free on gpu{device.index}"
        + f" with {format_bytes(max(0, device.memory_bytes - device.reserved_bytes))}"
        for device in status.devices
        if not device.lost
    )
    held = ", ".join(
        f"{kernel.owner} {kernel.hundredths / 100:g}" + (f" ({kernel.label})" if kernel.label else "")
        for kernel in status.kernels
    )
    return f"{free or 'this node has no device'}; {f'held by {held}' if held else 'no kernel holds a part'}"


async def _drop(asking: asyncio.Future[GrantHold]) -> None:
    """Release a grant that came in the very moment in which the requester gave up."""
    if asking.done() and not asking.cancelled() and asking.exception() is None:
        await asking.result().release()


class _Changes:
    """The agent's ``changed`` events, for one waiter at a time. Its task ends with `close`."""

    def __init__(self, client: AgentClient) -> None:
        self._changed = asyncio.Event()
        self._listener = asyncio.create_task(self._listen(client))

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await within(self._changed.wait(), seconds)
        self._changed.clear()

    async def close(self) -> None:
        await end_task(self._listener)

    async def _listen(self, client: AgentClient) -> None:
        # A lost connection counts as a change: the next request then fails with the reason.
        try:
            async for _ in client.subscribe():
                self._changed.set()
        except AgentClientError:
            self._changed.set()

"""Hold a grant for a kernel's life.

A connection to the gateway or agent that gave the grant holds it; if it is lost, the agent renews
the grant.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jupyter_aliquot.gpu_hook.base.pacing import Backoff
from jupyter_aliquot.gpu_hook.client.client import AgentClient, AgentClientError
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, is_anothers
from jupyter_aliquot.gpu_hook.waiting import end_task
from jupyter_aliquot.provisioner.errors import AgentUnavailableError, AliquotError, GrantError, GrantLostError
from jupyter_aliquot.provisioner.resources import Grant, KernelProcess, Request

from .agent_calls import answered, connect
from .codec import agent_grant, read_request
from .gateway_client import GatewayConnection, NoGatewayError

CLIENT_ATTRIBUTE = "client"
POD_ATTRIBUTE = "pod"
_FIRST_RETRY_SECONDS = 0.2
_LAST_RETRY_SECONDS = 5.0
_RELEASE_SECONDS = 5.0
_EXIT_SECONDS = 1.0


@dataclass(frozen=True)
class Names:
    """A kernel's names for users.

    ``label`` is its notebook, or else its kernelspec; ``kernelspec`` is the kernelspec's name.
    """

    label: str
    kernelspec: str
    uid: int | None = None  # the account of its processes; None: any
    client: int | None = None  # the account that asked at the gateway's socket; None: a kernel of the gateway's own
    pod: str = ""  # namespace/name of its pod, whose end ends the reservation

    def attributes(self) -> dict[str, str]:
        """Return what the agent keeps for the next gateway, and for readers of its status."""
        told = {} if self.client is None else {CLIENT_ATTRIBUTE: str(self.client)}
        told |= {POD_ATTRIBUTE: self.pod} if self.pod else {}
        return {"kernelspec": self.kernelspec, **told}


class Connection(Protocol):
    """An open connection that keeps a reservation alive."""

    async def lost(self) -> None:
        """Return when the connection is lost."""

    async def bind(self, grant: Grant, process: KernelProcess) -> None:
        """Report the kernel's process. Raises AliquotError."""

    async def close(self, ending: Grant | None = None) -> None:
        """Close the connection, after ending that grant at the other side.

        Raises AliquotError when the other side could not be reached.
        """


class AgentHolder:
    """A reservation held by a connection to the node agent."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client

    async def lost(self) -> None:
        with contextlib.suppress(AgentClientError):
            async for _ in self._client.subscribe():
                pass

    async def bind(self, grant: Grant, process: KernelProcess) -> None:
        await answered(self._client.bind(grant.kernel_id, process.pid, process.start_time_ticks))

    async def close(self, ending: Grant | None = None) -> None:
        try:
            if ending is not None:
                await answered(self._client.release(ending.kernel_id), _RELEASE_SECONDS)
        finally:
            await self._client.close()


class GatewayHolder:
    """A reservation that the gateway holds for us as long as our connection to it is open."""

    def __init__(self, connection: GatewayConnection, runtime_dir: Path) -> None:
        self._connection = connection
        self._runtime_dir = runtime_dir

    async def lost(self) -> None:
        await self._connection.lost()

    async def bind(self, grant: Grant, process: KernelProcess) -> None:
        # Tell the gateway first: it then ends the grant when the process ends, even if we do not live.
        with contextlib.suppress(NoGatewayError):
            await self._connection.bound(process.pid, process.start_time_ticks)
        await bind_process(grant, process, self._runtime_dir)

    async def close(self, ending: Grant | None = None) -> None:
        try:
            if ending is not None:
                await answered(self._connection.release(), _RELEASE_SECONDS)
        except NoGatewayError as error:
            raise AgentUnavailableError(str(error)) from error
        finally:
            await self._connection.close()


async def bind_process(grant: Grant, process: KernelProcess, runtime_dir: Path) -> None:
    """Report a kernel's process to the agent over a connection of its own. Raises AliquotError."""
    async with await connect(runtime_dir) as client:
        await answered(client.bind(grant.kernel_id, process.pid, process.start_time_ticks))


class GrantHold:
    """One grant, held until release. ``connection`` None: adopted, to be renewed with the agent."""

    def __init__(
        self, grant: Grant, names: Names, connection: Connection | None, runtime_dir: Path, log: logging.Logger
    ) -> None:
        self.grant = grant
        self._names = names
        self._connection = connection
        self._runtime_dir = runtime_dir
        self._log = log
        self._process: KernelProcess | None = None
        self._is_released = False
        self._loop = asyncio.get_running_loop()
        self._keeper = asyncio.create_task(self._keep(), name=f"aliquot-hold-{grant.kernel_id}")
        _HOLDS.add(self)

    async def bind(self, process: KernelProcess) -> None:
        """Report the process.

        If the agent is away, the keeper tells it later. Raises AliquotError.
        """
        self._process = process
        try:
            if self._connection is not None and self._is_here():
                await self._connection.bind(self.grant, process)
            else:
                await bind_process(self.grant, process, self._runtime_dir)
        except AgentUnavailableError as error:
            self._log.warning("kernel=%s bind=later reason=%s", self.grant.kernel_id, error)

    async def release(self) -> None:
        """End the grant; idempotent.

        If no side hears the request, our closed connection ends it.
        """
        if self._is_released:
            return
        self._is_released = True
        connection = self._connection if self._is_here() else None
        if self._is_here():
            await end_task(self._keeper)
        try:
            await self._end(connection)
        except AliquotError as error:
            self._log.info("kernel=%s release=unheard reason=%s", self.grant.kernel_id, error)

    async def _end(self, connection: Connection | None) -> None:
        if connection is not None:
            with contextlib.suppress(AgentUnavailableError):  # the connection is lost, and we have not noticed yet
                await connection.close(ending=self.grant)
                return
        await self._release_at_agent()

    async def _release_at_agent(self) -> None:
        """Release the grant without its connection.

        The connection is lost, or belongs to an event loop which has ended.
        """
        if is_anothers(RuntimeDir(self._runtime_dir)):
            await (await self._hold_again()).close(ending=self.grant)
            return
        async with await connect(self._runtime_dir) as client:
            await answered(client.release(self.grant.kernel_id), _RELEASE_SECONDS)

    def finish(self) -> None:
        """End the keeper of a stopped event loop that did not cancel its tasks.

        Servers' loops stop so.
        """
        if self._keeper.done() or self._loop.is_running() or self._loop.is_closed():
            return
        with contextlib.suppress(asyncio.TimeoutError, RuntimeError):
            self._loop.run_until_complete(asyncio.wait_for(end_task(self._keeper), _EXIT_SECONDS))

    def _is_here(self) -> bool:
        """Tell whether we run in the connection's event loop.

        A blocking client may use several in turn.
        """
        return asyncio.get_running_loop() is self._loop

    async def _keep(self) -> None:
        try:
            await self._keep_renewing()
        finally:
            # Our event loop ends before the kernel, as in asyncio.run: now only the bound process
            # holds the grant.
            if self._connection is not None and not self._is_released:
                connection, self._connection = self._connection, None
                await connection.close()

    async def _keep_renewing(self) -> None:
        """Renew the reservation with the agent whenever the connection that held it is lost."""
        waits = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
        while True:
            if self._connection is not None:
                await self._connection.lost()
                lost, self._connection = self._connection, None
                await lost.close()
                waits.reset()
                self._log.warning("kernel=%s hold=lost; renewing with the node agent", self.grant.kernel_id)
            try:
                self._connection = await self._renew()
            except AgentUnavailableError:
                await asyncio.sleep(waits.next_seconds())
            except AliquotError as error:
                self._log.warning("kernel=%s hold=refused reason=%s", self.grant.kernel_id, error)
                await asyncio.sleep(waits.next_seconds())

    async def _renew(self) -> Connection:
        """Become a holder again: asking for the same reservation is idempotent.

        Raises AliquotError.
        """
        if is_anothers(RuntimeDir(self._runtime_dir)):
            return await self._hold_again()
        client = await connect(self._runtime_dir)
        try:
            self.grant = await reserve_again(client, self.grant, self._names)
            holder = AgentHolder(client)
            if self._process is not None:
                await holder.bind(self.grant, self._process)
        except BaseException:
            await client.close()
            raise
        self._log.info("kernel=%s hold=renewed generation=%d", self.grant.kernel_id, self.grant.generation)
        return holder

    async def _hold_again(self) -> Connection:
        """Become a holder again at a gateway of another account: its ledger has to know. Raises AliquotError."""
        try:
            connection = await GatewayConnection.connect(RuntimeDir(self._runtime_dir).gateway_socket)
        except NoGatewayError as error:
            raise AgentUnavailableError(str(error)) from error
        try:
            self.grant = await connection.hold(self.grant.kernel_id)
            holder = GatewayHolder(connection, self._runtime_dir)
            if self._process is not None:
                await holder.bind(self.grant, self._process)
        except BaseException as error:
            await connection.close()
            if isinstance(error, NoGatewayError):
                raise AgentUnavailableError(str(error)) from error
            raise
        self._log.info("kernel=%s hold=renewed by=gateway", self.grant.kernel_id)
        return holder


_HOLDS: weakref.WeakSet[GrantHold] = weakref.WeakSet()


@atexit.register
def _finish_all() -> None:
    for hold in tuple(_HOLDS):
        hold.finish()


async def reserve_again(client: AgentClient, grant: Grant, names: Names) -> Grant:
    """Reserve again what the grant says, on the same devices. Raises AliquotError.

    A gateway that resized the kernel may have ended before telling us. Then the agent's record of
    its size counts.
    """
    try:
        return await _reserve(client, grant, grant.request, names)
    except GrantLostError:
        raise
    except GrantError:
        request = await _held_request(client, grant)
        if request is None or request == grant.request:
            raise
    return await _reserve(client, grant, request, names)


async def _reserve(client: AgentClient, grant: Grant, request: Request, names: Names) -> Grant:
    is_same = request == grant.request
    answer = await answered(
        client.reserve(
            grant.kernel_id,
            owner=grant.owner,
            hundredths=request.gpus.hundredths,
            memory_limit=None if request.memory_limit is None else int(request.memory_limit),
            workload_class=request.workload_class.value,
            label=names.label,
            placement={quota.uuid: quota.share.hundredths for quota in grant.quotas} if is_same else None,
            attributes=names.attributes(),
            residency=grant.request.residency or None,
            uid=names.uid,
        )
    )
    return agent_grant(answer, grant.request.residency)


async def _held_request(client: AgentClient, grant: Grant) -> Request | None:
    """Return the agent's size of this kernel; None without one, or if it has another owner."""
    status = await answered(client.status())
    for kernel in status.kernels:
        if (kernel.kernel_id, kernel.owner, kernel.ending) == (grant.kernel_id, grant.owner, False):
            size = {"hundredths": kernel.hundredths, "memory_limit": kernel.memory_limit}
            return read_request({**size, "workload_class": kernel.workload_class})
    return None

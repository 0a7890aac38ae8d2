"""The asyncio face of the client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Any

from jupyter_aliquot.gateway.reports.event import KernelEvent
from jupyter_aliquot.gateway.reports.history import History
from jupyter_aliquot.gateway.reports.holders import Holders
from jupyter_aliquot.gateway.reports.invitation import Invitation, Invitations
from jupyter_aliquot.gateway.reports.kernel import Kernel, Share
from jupyter_aliquot.gateway.reports.moves import MovePlan
from jupyter_aliquot.gateway.reports.outputs import RunningCells
from jupyter_aliquot.gateway.reports.quota import Queue, Quota
from jupyter_aliquot.gateway.reports.status import (
    DryRun,
    Folder,
    NodeSchedule,
    RemoteNode,
    SessionOptions,
    Sizes,
    Status,
)
from jupyter_aliquot.gateway.reports.usage import UsageReport

from . import jupyter, operations
from .events import follow
from .exchange import Exchange
from .jupyter import CellResult, JupyterKernel, run_code
from .operations import UNCHANGED, Access, HistoryRange, InvitedKind, Memory, Priority, ShareKind, UsageGroup
from .retries import Retries
from .server import Server
from .transport import HttpTransport


class AsyncClient:
    """A client for programs with an event loop. It holds no connection, and needs no closing.

    Every method raises a `ClientError`: see `errors`.
    """

    def __init__(self, server: Server | str, token: str = "", retries: Retries | None = None) -> None:
        """Make a client; nothing is sent yet.

        Args:
            server: The server, or its address.
            token: The token, where *server* is an address.
            retries: The rules of repeated requests.
        """
        self.server = server if isinstance(server, Server) else Server(server, token)
        self._transport = HttpTransport(self.server)
        self._exchange = Exchange(self._transport, Retries() if retries is None else retries)

    async def status(self) -> Status:
        """Return the node, its devices, and the kernels that the requester may see."""
        return await self._exchange.send(operations.status())

    async def sizes(self) -> Sizes:
        """Return the sizes that are listed, and the grammar of all others."""
        return await self._exchange.send(operations.sizes())

    async def session_options(
        self, kernelspec: str, cpus: str | None = None, ram: str | None = None, folders: str | None = None
    ) -> SessionOptions:
        """Return what may be chosen beside the size of a new kernel, and the name that asks for a choice.

        Args:
            kernelspec: In a size, such as ``pytorch.gpu-0.25``.
            cpus: CPUs of the host, such as ``4``.
            ram: Memory of the host, such as ``16GiB``.
            folders: Names of shared folders with commas between, or ``none``.
        """
        return await self._exchange.send(operations.session_options(kernelspec, cpus, ram, folders))

    async def dry_run(
        self,
        gpus: float | None = None,
        memory: Memory = UNCHANGED,
        priority: Priority | None = None,
        kernel: str | None = None,
        replaces: str | None = None,
        models: str | None = None,
    ) -> DryRun:
        """Return what a request for this size would get now. It reserves nothing.

        Args:
            gpus: The share; it may be left out with *kernel*.
            memory: The limit, such as ``6GiB``; None for the share's part.
            priority: ``normal`` or ``low``.
            kernel: A running kernel, whose new size this would be.
            replaces: A kernel that would end for the new one.
            models: The GPU models that a new kernel takes, the preferred one first, such as ``H200,A100``.
        """
        return await self._exchange.send(operations.dry_run(gpus, memory, priority, kernel, replaces, models))

    async def dry_runs(
        self, size: Iterable[str], kernel: str | None = None, replaces: str | None = None, models: str | None = None
    ) -> list[DryRun]:
        """Return what each of these sizes would get now, in the order of the question.

        Args:
            size: Sizes as kernelspecs' names end, such as ``gpu-0.25``; at most 64.
            kernel: A running kernel, whose new size each would be.
            replaces: A kernel that would end for the new one.
            models: The GPU models that a new kernel takes, the preferred one first, such as ``H200,A100``.
        """
        return await self._exchange.send(operations.dry_runs(size, kernel, replaces, models))

    async def kernels(self) -> list[Kernel]:
        """Return the kernels that the requester may see, and all remembered ones that ended."""
        return await self._exchange.send(operations.kernels())

    async def kernel(self, kernel_id: str) -> Kernel:
        """Return one kernel."""
        return await self._exchange.send(operations.kernel(kernel_id))

    async def resize_kernel(
        self, kernel_id: str, gpus: float | None = None, memory: Memory = UNCHANGED, priority: Priority | None = None
    ) -> Kernel:
        """Give a running kernel another size or priority. What is left out stays.

        Args:
            kernel_id: The kernel.
            gpus: The share of each of its devices, in all.
            memory: The limit, such as ``8GiB``, or bytes; None for the share's part.
            priority: ``normal`` or ``low``.

        Returns:
            The kernel. Its `resize` is set while the change waits for room.
        """
        return await self._exchange.send(operations.resize_kernel(kernel_id, gpus, memory, priority))

    async def withdraw_resize(self, kernel_id: str) -> None:
        """Withdraw a change of size that waits for room."""
        await self._exchange.send(operations.withdraw_resize(kernel_id))

    async def swap_out_kernel(self, kernel_id: str) -> Kernel:
        """Move the kernel's memory to the host. It comes back with the next use."""
        return await self._exchange.send(operations.swap_out_kernel(kernel_id))

    async def restore_kernel(self, kernel_id: str) -> Kernel:
        """Move the kernel's memory back to its devices as soon as there is room."""
        return await self._exchange.send(operations.restore_kernel(kernel_id))

    async def prefetch_kernel(self, kernel_id: str) -> None:
        """Announce a use of the kernel: its memory comes back if only idle kernels must leave."""
        await self._exchange.send(operations.prefetch_kernel(kernel_id))

    async def postpone_culling(self, kernel_id: str) -> None:
        """Postpone the end of an idle kernel: its idle time begins anew."""
        await self._exchange.send(operations.postpone_culling(kernel_id))

    async def message_owner(self, kernel_id: str, text: str) -> None:
        """Send a message to the kernel's owner, in place of an earlier one. For administrators."""
        await self._exchange.send(operations.message_owner(kernel_id, text))

    async def kernel_shares(self, kernel_id: str) -> list[Share]:
        """Return the users and teams that a kernel is shared with."""
        return await self._exchange.send(operations.kernel_shares(kernel_id))

    async def share_kernel(self, kernel_id: str, kind: ShareKind, name: str, access: Access) -> list[Share]:
        """Share a kernel with a user or team, or change the permission. Returns all shares."""
        return await self._exchange.send(operations.share_kernel(kernel_id, kind, name, access))

    async def unshare_kernel(self, kernel_id: str, kind: ShareKind, name: str) -> list[Share]:
        """Take back what a user or team was given. Returns the shares that are left."""
        return await self._exchange.send(operations.unshare_kernel(kernel_id, kind, name))

    async def kernel_outputs(
        self, kernel_id: str, messages: bool = True, session: str | None = None, sent: Iterable[str] = ()
    ) -> RunningCells:
        """Return the cells that run in a kernel or ended a short while ago, with their output.

        Args:
            kernel_id: The kernel.
            messages: Whether the answer has the messages, too.
            session: The ``session_id`` of the client's websocket to the kernel.
            sent: The ids of earlier requests of the client; `not_received` tells which are lost.
        """
        return await self._exchange.send(operations.kernel_outputs(kernel_id, messages, session, sent))

    async def nodes(self) -> list[RemoteNode]:
        """Return the nodes on other machines."""
        return await self._exchange.send(operations.nodes())

    async def node(self, name: str) -> NodeSchedule:
        """Return whether kernels start on a node, and the kernels there. For administrators."""
        return await self._exchange.send(operations.node(name))

    async def cordon_node(self, name: str, reason: str | None = None) -> NodeSchedule:
        """Let nothing new start on a node. For administrators."""
        return await self._exchange.send(operations.cordon_node(name, reason))

    async def drain_node(self, name: str, reason: str | None = None) -> NodeSchedule:
        """Cordon a node, and have its kernels swapped out. For administrators."""
        return await self._exchange.send(operations.drain_node(name, reason))

    async def uncordon_node(self, name: str) -> NodeSchedule:
        """Let kernels start on a node again. For administrators."""
        return await self._exchange.send(operations.uncordon_node(name))

    async def moves(self, size: str | None = None, node: str | None = None) -> MovePlan:
        """Return a plan of moves of kernels between GPUs, and how the last one ran. For administrators.

        Args:
            size: The size that is to fit, such as ``gpu-1``.
            node: The node; None for any.
        """
        return await self._exchange.send(operations.moves(size, node))

    async def run_moves(self, digest: str, size: str | None = None, node: str | None = None) -> MovePlan:
        """Run the plan of moves that was answered with this digest. For administrators."""
        return await self._exchange.send(operations.run_moves(digest, size, node))

    async def history(
        self, range: HistoryRange = "hour", kernel: Iterable[str] = (), device: Iterable[str] = ()
    ) -> History:
        """Return the use of devices and kernels in steps.

        Args:
            range: ``hour``, ``day`` or ``week``.
            kernel: Ids of kernels; none for all.
            device: Uuids of devices; none for all.
        """
        return await self._exchange.send(operations.history(range, kernel, device))

    async def history_csv(
        self, range: HistoryRange = "hour", kernel: Iterable[str] = (), device: Iterable[str] = ()
    ) -> str:
        """Return the same as CSV, one line for each step."""
        return await self._exchange.send(operations.history_csv(range, kernel, device))

    async def usage(
        self,
        month: str | None = None,
        begin: str | None = None,
        end: str | None = None,
        by: Iterable[UsageGroup] = ("user",),
        user: Iterable[str] = (),
        team: Iterable[str] = (),
    ) -> UsageReport:
        """Return GPU-hours, and the budgets that they count for.

        Args:
            month: Such as ``2026-11``; without it and the days, the present month.
            begin: The first day, such as ``2026-11-01``, or a moment with an offset from UTC.
            end: The day after the last one, or such a moment.
            by: What rows are by.
            user: Users; none for all that the requester may see.
            team: Teams; none for all.
        """
        return await self._exchange.send(operations.usage(month, begin, end, by, user, team))

    async def usage_csv(
        self,
        month: str | None = None,
        begin: str | None = None,
        end: str | None = None,
        by: Iterable[UsageGroup] = ("user",),
        user: Iterable[str] = (),
        team: Iterable[str] = (),
    ) -> str:
        """Return the same as CSV, one line for each row."""
        return await self._exchange.send(operations.usage_csv(month, begin, end, by, user, team))

    async def folders(self) -> list[Folder]:
        """Return the folders that the requester's kernels in containers get."""
        return await self._exchange.send(operations.folders())

    async def share_folder(
        self,
        name: str,
        source: str,
        target: str,
        users: Iterable[str] = (),
        teams: Iterable[str] = (),
        read_only: bool = True,
    ) -> Folder:
        """Share a folder, or change one that was shared by REST. For administrators.

        Args:
            name: The folder's name.
            source: Its path on the host, in one of the configured roots.
            target: Its path in the container.
            users: Names of users; ``*`` is everybody.
            teams: Names of teams.
            read_only: Whether kernels may only read.
        """
        return await self._exchange.send(operations.share_folder(name, source, target, users, teams, read_only))

    async def unshare_folder(self, name: str) -> Folder:
        """Stop sharing a folder. For administrators. Returns the folder as it was."""
        return await self._exchange.send(operations.unshare_folder(name))

    async def invitations(self) -> Invitations:
        """Return the folders that the requester shares, and those shared with the requester by other users."""
        return await self._exchange.send(operations.invitations())

    async def invite_to_folder(
        self, path: str, kind: InvitedKind, invited: str, access: Access = "read", name: str = "", until: str = ""
    ) -> Invitation:
        """Invite a user or team to a folder of the requester, or change access and end of such an invitation.

        Args:
            path: The folder, as the requester's kernels in containers find it; ``~`` is the home.
            kind: ``user`` or ``team``.
            invited: The name of the user or team.
            access: ``read`` or ``write``.
            name: The folder's name for collaborators; empty for the last part of the path.
            until: The moment of its end, such as ``2026-12-01T12:00:00Z``; empty: it does not end by itself.
        """
        return await self._exchange.send(operations.invite_to_folder(path, kind, invited, access, name, until))

    async def end_invitation(self, id: str) -> Invitation:
        """End an invitation. Returns it as it was. Kernels that run keep the folder until their end."""
        return await self._exchange.send(operations.end_invitation(id))

    async def accept_invitation(self, id: str) -> Invitation:
        """Accept an invitation: kernels that the requester starts from now on get the folder."""
        return await self._exchange.send(operations.accept_invitation(id))

    async def decline_invitation(self, id: str) -> Invitation:
        """Decline an invitation, also one that was accepted."""
        return await self._exchange.send(operations.decline_invitation(id))

    async def quota(self) -> Quota:
        """Return the teams' quotas."""
        return await self._exchange.send(operations.quota())

    async def reload_quota(self) -> Quota:
        """Make the gateway read the quota file again. For administrators."""
        return await self._exchange.send(operations.reload_quota())

    async def queue(self) -> Queue:
        """Return the requests that wait, in the order in which they are served."""
        return await self._exchange.send(operations.queue())

    async def holders(self) -> Holders:
        """Return kernels and users with what they hold and use. For administrators."""
        return await self._exchange.send(operations.holders())

    async def metrics(self) -> str:
        """Return the metrics as Prometheus text. For administrators."""
        return await self._exchange.send(operations.metrics())

    async def openapi(self) -> dict[str, Any]:
        """Return the server's own OpenAPI document."""
        return await self._exchange.send(operations.openapi())

    async def start_kernel(self, kernelspec: str, path: str = "") -> JupyterKernel:
        """Start a kernel. It may wait in the queue: its `state` tells.

        Args:
            kernelspec: Its name, with a size: ``python3.gpu-0.25``.
            path: The folder or notebook that it is for, as Jupyter names it.
        """
        return await self._exchange.send(jupyter.start_kernel(kernelspec, path))

    async def end_kernel(self, kernel_id: str) -> None:
        """End a kernel, or withdraw it from the queue."""
        await self._exchange.send(jupyter.end_kernel(kernel_id))

    async def run_code(self, kernel_id: str, code: str, timeout_seconds: float | None = None) -> CellResult:
        """Run code in a kernel and return its output. It waits for a kernel that waits.

        Args:
            kernel_id: The kernel.
            code: The code of one cell; it cannot ask its user with ``input()``.
            timeout_seconds: The longest wait for the cell's end, the kernel's wait included; None for any time.

        Raises:
            NoAnswerError: The connection was lost, the time was over, or the kernel died or restarted. A cell of a
                kernel that lives may run on; `kernel_outputs` has its output.
            RefusedError: The server refused the connection.
        """
        return await run_code(self._transport.open, kernel_id, code, timeout_seconds)

    def events(
        self, patience_seconds: float | None = 300.0, with_present: bool = False
    ) -> AsyncGenerator[KernelEvent, None]:
        """Follow the changes of the kernels that the requester may see.

        The iterator opens the stream again where it is lost, and then tells what changed meanwhile
        as events of the kind ``state``.

        Args:
            patience_seconds: How long the server may be away; None for any time.
            with_present: Whether the first events tell the present state of each kernel, ended ones too: then no
                change between an earlier request and the stream is lost.

        Raises:
            NoAnswerError: The server was away for longer.
            RefusedError: The server does not let this token follow.
        """
        return follow(self._exchange, self._transport.open, patience_seconds, with_present)

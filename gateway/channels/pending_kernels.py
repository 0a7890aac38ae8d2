"""Kernels that have not started, and the pages' messages to them, which are handed on then.

A kernel is pending while it waits for its grant, while it starts, and while it is restarted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.relays.link import KernelLink
from jupyter_aliquot.gateway.relays.pool import RelayLinks
from jupyter_aliquot.gateway.sharing.access_filter import may_send
from jupyter_aliquot.gateway.sharing.collaborator_sessions import session_of
from jupyter_aliquot.gateway.sharing.rights import access_of, owner_for
from jupyter_aliquot.gpu_hook.waiting import end_task, outlasting_task
from jupyter_aliquot.provisioner.errors import WithdrawnError
from jupyter_aliquot.provisioner.relay.wire.messages import CONTENT, HEADER, SIGNATURE

from .pending_messages import RESTARTED_WORDS, STOPPED_WORDS, PendingMessage, PendingMessages, Subscriber

NOT_YOURS = "This was not run: before its kernel had started, your right to run code in the kernel ended."
_STOPPING = "the server stops. The kernel keeps its place in the queue; run the cell again when the server is back"


class Kernels(Protocol):
    """The kernel manager, as far as `PendingKernels` needs it."""

    links: RelayLinks | None

    def __contains__(self, kernel_id: str, /) -> bool: ...

    def get_kernel(self, kernel_id: str) -> Any: ...

    async def until_there(self, kernel_id: str) -> None:
        """Wait until a kernel has started, and its link is made. Raises the error of its start."""
        ...


class PendingKernels:
    """The messages of all pending kernels. Made by the kernel manager.

    A kernel has messages here from its first websocket on, until they are handed on.
    """

    def __init__(self, kernels: Kernels, log: logging.Logger) -> None:
        self._kernels = kernels
        self._log = log
        self._messages: dict[str, PendingMessages] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def is_pending(self, kernel_id: str) -> bool:
        """Return whether websockets wait here.

        They wait if the kernel has not started, or earlier messages are not handed on yet.
        """
        ready = self._kernels.get_kernel(kernel_id).ready
        return kernel_id in self._messages or not ready.done()

    def open(self, kernel_id: str, most_bytes: int) -> PendingMessages:
        """Return the messages of a kernel, made on the first call. *most_bytes* bounds them."""
        found = self._messages.get(kernel_id)
        if found is None:
            found = self._messages[kernel_id] = PendingMessages(most_bytes, self._log)
            name = f"aliquot-pending-{kernel_id}"
            self._tasks[kernel_id] = outlasting_task(self._see_through(kernel_id, found), name=name)
        return found

    def cells(self, kernel_id: str) -> list[PendingMessage]:
        """Return the cells that wait for a kernel.

        `reports` returns them in the form of `CellsReport.cells`.
        """
        found = self._messages.get(kernel_id)
        return [] if found is None else found.cells()

    async def not_received(
        self, kernel_id: str, user: User, session: str, ids: Sequence[str], seconds: float
    ) -> list[str] | None:
        """Return those of a page's requests that the kernel does not have and will not get.

        None: it cannot be known now, or, of a kernel without a relay, at all.
        """
        session = session_of(user, owner_for(user, self._kernels, kernel_id), session)
        messages, link = self._messages.get(kernel_id), self._link(kernel_id)
        kept = set[str]() if messages is None else messages.ids(session)
        seen: frozenset[str] | None = frozenset()
        if link is not None:
            seen = await link.seen(session, ids, seconds)
        elif kernel_id not in self._kernels or self._kernels.get_kernel(kernel_id).ready.done():
            seen = None  # without a relay; requests that waited for its start were handed on
        return None if seen is None else [msg_id for msg_id in ids if msg_id not in kept and msg_id not in seen]

    def interrupt(self, kernel_id: str) -> None:
        """Let the cells that wait for this kernel leave the queue."""
        if (found := self._messages.get(kernel_id)) is not None:
            found.stop(STOPPED_WORDS)

    def restart(self, kernel_id: str) -> None:
        """Let the waiting cells leave the queue, as for a kernel that starts anew."""
        if (found := self._messages.get(kernel_id)) is not None:
            found.stop(RESTARTED_WORDS)

    def end(self, kernel_id: str) -> None:
        """Wait for no websocket any more. Called when a kernel is removed; idempotent."""
        if (found := self._messages.get(kernel_id)) is not None:
            found.end()

    def look_again(self, kernel_id: str) -> None:
        """Drop the messages of users who lost access. Called after a change of the kernel's shares."""
        if (found := self._messages.get(kernel_id)) is not None:
            found.drop(lambda each: not self._may_reach(kernel_id, each), NOT_YOURS)

    def drop_collaborator(self, kernel_id: str, name: str) -> None:
        """Drop this collaborator's messages to this kernel.

        Called when the collaborator's token is no longer accepted.
        """
        if (found := self._messages.get(kernel_id)) is not None:
            found.drop(lambda each: each.is_collaborator and each.user.name == name, NOT_YOURS)

    async def stop(self) -> None:
        """Tell pages that none of their messages was run. Called at the server's end."""
        tasks, self._tasks = list(self._tasks.values()), {}
        messages, self._messages = list(self._messages.values()), {}
        for task in tasks:
            await end_task(task)
        for each in messages:
            await each.give_up(_STOPPING)

    async def _see_through(self, kernel_id: str, messages: PendingMessages) -> None:
        """See a kernel's messages handed on, or given up. Owned by _tasks.

        Ends when no websocket waits any more.
        """
        try:
            await self._kernels.until_there(kernel_id)
            await self._pass(kernel_id, messages)
            while messages.has_subscribers:  # some came meanwhile, or are not connected yet
                await messages.until_moved()
                await self._pass(kernel_id, messages)
        except Exception as error:
            self._forget(kernel_id, messages)
            self._log.info("kernel=%s pending_messages=given_up reason=%s", kernel_id, error)
            await messages.give_up(str(error))
        else:
            self._forget(kernel_id, messages)

    async def _pass(self, kernel_id: str, messages: PendingMessages) -> None:
        """Connect the websockets that wait now, and hand on what is kept."""
        await messages.connect()
        while self._link(kernel_id) is None and messages.lacks_subscribers:
            self._need(kernel_id)
            await messages.until_moved()  # without a relay the websockets alone lead to the kernel
            await messages.connect()
        self._need(kernel_id)
        messages.hand_on(partial(self._send, kernel_id))

    def _need(self, kernel_id: str) -> None:
        """Check that the kernel is still there. Raises WithdrawnError."""
        if kernel_id not in self._kernels:
            raise WithdrawnError("the kernel was ended")

    def _forget(self, kernel_id: str, messages: PendingMessages) -> None:
        if self._messages.get(kernel_id) is messages:
            del self._messages[kernel_id]
            del self._tasks[kernel_id]

    def _send(self, kernel_id: str, message: PendingMessage, subscriber: Subscriber | None) -> None:
        if not self._may_reach(kernel_id, message):
            raise WithdrawnError(NOT_YOURS)
        frames = list(message.frames)
        session = self._kernels.get_kernel(kernel_id).session
        frames[SIGNATURE] = session.sign(frames[HEADER : CONTENT + 1])
        link = self._link(kernel_id)
        if link is not None:
            link.send(message.channel, message.session, frames)
        elif subscriber is not None:
            subscriber.send_now(message.channel, frames)

    def _may_reach(self, kernel_id: str, message: PendingMessage) -> bool:
        """Return whether a sender's message may reach the kernel."""
        return may_send(access_of(message.user, self._kernels, kernel_id), message.request)

    def _link(self, kernel_id: str) -> KernelLink | None:
        links = self._kernels.links
        return None if links is None else links.get(kernel_id)

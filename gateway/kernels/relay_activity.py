"""The part of the kernel manager that knows kernels by their relays: links, busy and idle, no buffers of its own.

For kernels without a relay all is as Jupyter Server does it.
"""

# mypy: disable-error-code="no-untyped-call"
# Jupyter Server's kernel managers carry no types.
from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import zmq
import zmq.asyncio
from jupyter_core.utils import ensure_async
from jupyter_server._tz import isoformat
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from traitlets import default

from jupyter_aliquot.gateway.channels.pending_kernels import PendingKernels
from jupyter_aliquot.gateway.relays.activity import Activity, execution_state, moment
from jupyter_aliquot.gateway.relays.link import KernelLink
from jupyter_aliquot.gateway.relays.pool import RelayLinks
from jupyter_aliquot.provisioner.errors import AliquotError

_MOST_SOCKETS = 16_384


class RelayedKernelManager(AsyncMappingKernelManager):
    """``links`` is the extension's; None: it is not loaded, and relays are clients' affair alone."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.links: RelayLinks | None = None
        self.pending = PendingKernels(self, self.log)
        # Tells the node agent of an interrupt, so that what waits for GPU memory gives up; None: there is no agent.
        self.tell_interrupt: Callable[[str], Awaitable[None]] | None = None
        # When each kernel was last interrupted, and since when it was busy then.
        self._interrupted: dict[str, tuple[float, float | None]] = {}

    @default("context")
    def _roomy_context(self) -> zmq.asyncio.Context:
        """Called by traitlets. ZeroMQ allows 1023 sockets, and while kernels start or end each has one or two."""
        self._created_context = True
        context = zmq.asyncio.Context()
        context.set(zmq.MAX_SOCKETS, min(_MOST_SOCKETS, context.get(zmq.SOCKET_LIMIT)))
        return context

    async def until_there(self, kernel_id: str) -> None:
        """Wait until a kernel has started, and its link is made. Raises what its start failed with."""
        await asyncio.shield(cast("asyncio.Future[None]", self.get_kernel(kernel_id).ready))
        watching = self._pending_kernel_tasks.get(kernel_id)
        if watching is not None:
            await asyncio.wait({watching})

    # MultiKernelManager types it as returning None; Jupyter Server's is a coroutine, and its handler awaits either.
    async def interrupt_kernel(self, kernel_id: str) -> None:  # type: ignore[override]
        """Called by Jupyter's handler. The signal goes first: the thread that it finds waiting gives up by itself."""
        activity = self.activity_of(kernel_id)
        self._interrupted[kernel_id] = (time.time(), activity.busy_since if activity is not None else None)
        await ensure_async(super().interrupt_kernel(kernel_id))
        if self.tell_interrupt is not None:
            with contextlib.suppress(AliquotError):  # a kernel without a GPU, or an agent that is away
                await self.tell_interrupt(kernel_id)

    def start_watching_activity(self, kernel_id: str) -> None:
        """Called when a kernel has started, and by whoever adopts one. Opens its link."""
        kernel = self._kernels[kernel_id]
        relay = relay_folder(kernel)
        if self.links is None or relay is None:
            super().start_watching_activity(kernel_id)
            return
        link = self.links.open(kernel_id, relay, self._relay_told)
        kernel.reason = ""
        kernel.last_activity = moment(time.time())
        self._relay_told(kernel_id, link)

    def _relay_told(self, kernel_id: str, link: KernelLink) -> None:
        """Called by the link when the kernel's state or its activity changed."""
        kernel = self._kernels.get(kernel_id)
        if kernel is None:
            return
        if kernel.shutting_down and link.kernel is not None and link.kernel.state == "ended":
            return  # as it was asked to
        state = execution_state(link.kernel, link.activity, restarts=kernel.autorestart)
        # A kernel that could not be started has its reason, which stays until it is started again.
        if state is not None and not (state == "dead" and kernel.execution_state == "dead"):
            kernel.execution_state = state
        if link.activity is not None:
            kernel.last_activity = moment(link.activity.last_activity)
            self.last_kernel_activity = max(self.last_kernel_activity, kernel.last_activity)

    def kernel_model(self, kernel_id: str) -> dict[str, Any]:
        """Called by Jupyter's handlers for each kernel they show. A kernel that works is active now."""
        model: dict[str, Any] = super().kernel_model(kernel_id)
        activity = self.activity_of(kernel_id)
        if activity is not None and activity.is_busy:
            model["last_activity"] = isoformat(moment(activity.active_until(time.time())))
        return model

    def dropped_messages(self, kernel_id: str) -> Mapping[str, int] | None:
        """What its browsers were not sent, by reason; None for a kernel without a relay."""
        return None if self.links is None else self.links.dropped(kernel_id)

    def activity_of(self, kernel_id: str) -> Activity | None:
        """What the kernel does, as its relay tells; None for one without a relay."""
        return None if self.links is None else self.links.activity(kernel_id)

    def interrupted_at(self, kernel_id: str) -> float | None:
        """Return when what runs now was last interrupted; None where nothing runs, or nothing interrupted it."""
        sent, activity = self._interrupted.get(kernel_id), self.activity_of(kernel_id)
        if sent is None or activity is None or not activity.is_busy or activity.busy_since != sent[1]:
            return None
        return sent[0]

    def start_buffering(self, kernel_id: str, session_key: str, channels: Any) -> None:
        """Called when the last websocket closed. One over a link has no channels: the relay keeps what comes."""
        if channels:
            super().start_buffering(kernel_id, session_key, channels)

    def remove_kernel(self, kernel_id: str) -> Any:
        """Called by MultiKernelManager when a kernel has ended, or never started."""
        if self.links is not None:
            self.links.close(kernel_id)
        self._interrupted.pop(kernel_id, None)
        removed = super().remove_kernel(kernel_id)
        self.pending.end(kernel_id)
        return removed


def relay_folder(kernel: Any) -> Path | None:
    """The folder of the relay to whose sockets a kernel's clients are led; None for other sockets."""
    folder = Path(kernel.ip).parent
    return folder if kernel.transport == "ipc" and (folder / "relay.json").exists() else None

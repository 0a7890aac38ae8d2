"""The kernels' activity, as their relays report it: busy or idle, since when, and interrupted.

A kernel without a relay is not known here: Jupyter Server watches it through the kernel's own
sockets.
"""

# mypy: disable-error-code="no-untyped-call"
# Jupyter Server's clock functions carry no types.
from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from jupyter_server._tz import isoformat

from jupyter_aliquot.gateway.relays.activity import Activity, execution_state, moment
from jupyter_aliquot.gateway.relays.link import KernelLink
from jupyter_aliquot.gateway.relays.pool import RelayLinks
from jupyter_aliquot.provisioner.errors import AliquotError

from .changes import CountsChanges


class RelayActivity:
    """The state and the last activity of the kernels that have a link. Made by the kernel manager.

    *kernels* is the manager's own table. *on_activity* is called with the time of each activity,
    *on_idle* with the id of a kernel that became idle, and *tell_interrupt* tells the node agent of
    an interrupt. Without *links* no kernel is followed.
    """

    def __init__(
        self,
        kernels: Mapping[str, Any],
        links: RelayLinks | None,
        tell_interrupt: Callable[[str], Awaitable[None]] | None,
        on_activity: Callable[[datetime], None],
        on_idle: Callable[[str], None],
    ) -> None:
        self._kernels = kernels
        self._links = links
        self._tell_interrupt = tell_interrupt
        self._on_activity = on_activity
        self._on_idle = on_idle
        # Returns when a kernel last used its GPU, in seconds since the epoch. Set by the composition root.
        self.gpu_used: Callable[[str], float | None] = lambda kernel_id: None
        # When each kernel was last interrupted, and since when it was busy then.
        self._interrupted: dict[str, tuple[float, float | None]] = {}

    def follow(self, kernel_id: str) -> bool:
        """Open the link of a kernel that runs. Return False for a kernel without a relay."""
        kernel = self._kernels[kernel_id]
        relay = relay_folder(kernel)
        if self._links is None or relay is None:
            return False
        link = self._links.open(kernel_id, relay, self._update)
        kernel.reason = ""
        kernel.last_activity = moment(time.time())
        self._update(kernel_id, link)
        return True

    def forget(self, kernel_id: str) -> None:
        """Close the link of a kernel that has ended."""
        if self._links is not None:
            self._links.close(kernel_id)
        self._interrupted.pop(kernel_id, None)

    def _update(self, kernel_id: str, link: KernelLink) -> None:
        """Called by the link when the kernel's state or its activity changed."""
        kernel = self._kernels.get(kernel_id)
        if kernel is None:
            return
        if kernel.shutting_down and link.kernel is not None and link.kernel.state == "ended":
            return  # as it was asked to
        state = execution_state(link.kernel, link.activity, restarts=kernel.autorestart)
        # A kernel that could not be started has its reason, which stays until it is started again.
        if state is not None and not (state == "dead" and kernel.execution_state == "dead"):
            before, kernel.execution_state = kernel.execution_state, state
            if state == "idle" and before != "idle":
                self._on_idle(kernel_id)
        if link.activity is not None:
            kernel.last_activity = moment(link.activity.last_activity)
            self._on_activity(kernel.last_activity)

    def note_interrupt(self, kernel_id: str) -> None:
        """Remember which activity the interrupt that is sent now applies to."""
        activity = self.of(kernel_id)
        self._interrupted[kernel_id] = (time.time(), activity.busy_since if activity is not None else None)

    async def tell_interrupt(self, kernel_id: str) -> None:
        """Tell the node agent of an interrupt, after the signal was sent.

        A thread that the signal finds waiting gives up by itself.
        """
        if self._tell_interrupt is not None:
            with contextlib.suppress(AliquotError):  # a kernel without a GPU, or an agent that is away
                await self._tell_interrupt(kernel_id)

    def of(self, kernel_id: str) -> Activity | None:
        """Return what the kernel does; None for a kernel without a relay."""
        return None if self._links is None else self._links.activity(kernel_id)

    def active_until(self, kernel_id: str) -> str | None:
        """Return the last activity of a kernel as Jupyter's API writes times: a cell's, or its GPU's.

        None where Jupyter's own time of it is as late.
        """
        activity = self.of(kernel_id)
        if activity is not None and activity.is_busy:
            return str(isoformat(moment(activity.active_until(time.time()))))
        used = self.gpu_used(kernel_id)
        if used is None or moment(used) <= self._kernels[kernel_id].last_activity:
            return None
        return str(isoformat(moment(used)))

    def note_gpu_use(self, view: object) -> None:
        """Count the use of GPUs as activity of the server. Called with each new view of the node.

        The Hub's culler reads the server's last activity. A thread may use a GPU while no cell runs.
        """
        used = [at for kernel_id in self._kernels if (at := self.gpu_used(kernel_id)) is not None]
        if used:
            self._on_activity(moment(max(used)))

    def marked(self, kernel_ids: Iterable[str]) -> Iterator[tuple[str, Any, tuple[Any, ...] | None]]:
        """Yield those of the kernels that are there when it comes to them: id, Jupyter's manager and mark.

        While the mark is equal, no attribute of the manager was set, and `seen` returns the same. None for a
        kernel without a relay, and for a manager that does not count its changes.
        """
        links, interrupted = self._links, self._interrupted
        for kernel_id in kernel_ids:
            kernel = self._kernels.get(kernel_id)
            if kernel is None:
                continue
            link = None if links is None else links.get(kernel_id)
            if link is None or not isinstance(kernel, CountsChanges):
                yield kernel_id, kernel, None
            else:
                yield kernel_id, kernel, (kernel.changes, link.activity, link.dropped, interrupted.get(kernel_id))

    def seen(self, kernel_id: str) -> tuple[Activity | None, Mapping[str, int] | None, float | None]:
        """Return what the kernel does, its messages not sent by reason, and when its running cell was interrupted.

        None three times for a kernel without a relay; the last one also if none runs, or none was interrupted.
        """
        link = None if self._links is None else self._links.get(kernel_id)
        if link is None:
            return None, None, None
        return link.activity, link.dropped, self._interrupted_at(kernel_id, link.activity)

    def _interrupted_at(self, kernel_id: str, activity: Activity | None) -> float | None:
        sent = self._interrupted.get(kernel_id)
        if sent is None or activity is None or not activity.is_busy or activity.busy_since != sent[1]:
            return None
        return sent[0]


def relay_folder(kernel: Any) -> Path | None:
    """Return the folder of the relay to whose sockets a kernel's clients connect.

    None for other sockets.
    """
    folder = Path(kernel.ip).parent
    return folder if kernel.transport == "ipc" and (folder / "relay.json").exists() else None

"""The culler: it announces the end of unused kernels, and ends them then.

``policy.py`` decides which ones.

It ends no kernel whose use it cannot know because the relay or the node agent does not answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from jupyter_client.kernelspec import NoSuchKernel

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.lead import ALONE, Lead
from jupyter_aliquot.gateway.base.steps import in_steps
from jupyter_aliquot.gateway.base.tasks import Recurring
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.relays.pool import RelayLinks
from jupyter_aliquot.gateway.sizes.kernel_request import request_of
from jupyter_aliquot.gpu_hook.client.client import KernelStatus
from jupyter_aliquot.provisioner.resources import WorkloadClass
from jupyter_aliquot.provisioner.terminations import Asked, EndingCode, asked_by_rule

from .policy import Announcement, KernelFacts, Policy, decide

# States in which Jupyter has seen no work. A kernel without a relay has no other tracker.
_IDLE_STATES = frozenset({"idle", "starting"})
_METADATA = "cull_idle_timeout"


class Kernels(Protocol):
    """The kernel manager."""

    links: RelayLinks | None

    def __contains__(self, kernel_id: str, /) -> bool: ...

    def list_kernel_ids(self) -> list[str]: ...

    def get_kernel(self, kernel_id: str) -> Any: ...

    def owner_of(self, kernel_id: str) -> str | None: ...

    def kernel_state(self, kernel_id: str) -> tuple[str, str]: ...

    def connections(self, kernel_id: str) -> int: ...

    async def end_kernel(self, kernel_id: str, asked: Asked, now: bool = False) -> None: ...


class Servers(Protocol):
    """The servers of the Hub's users."""

    def gone_since(self, user: str) -> float | None:
        """Return since when the user has no server, in seconds since the epoch.

        None if one runs, or that is not known.
        """
        ...


class GpuUse:
    """The last GPU use of each kernel, from the GPU time and memory that the agent reports."""

    def __init__(self) -> None:
        self._is_known = False
        # Per kernel: its last report, the use that it amounts to, and since when that has not
        # changed.
        self._last: dict[str, tuple[KernelStatus, tuple[float, int, int], float]] = {}

    def observe(self, view: NodeView, now: float) -> None:
        """Called with each new view of the node."""
        self._is_known = view.status is not None
        kernels = view.status.kernels if view.status else ()
        if view.status is not None:
            seen = {kernel.kernel_id for kernel in kernels}
            self._last = {kernel_id: last for kernel_id, last in self._last.items() if kernel_id in seen}
        for kernel in kernels:
            before = self._last.get(kernel.kernel_id)
            if before is not None and before[0] is kernel:
                continue
            used = _used(kernel)
            since = before[2] if before is not None and before[1] == used else now
            self._last[kernel.kernel_id] = (kernel, used, since)

    def last(self, kernel_id: str) -> float | None:
        """Return the last use in seconds since the epoch; None while that is not known."""
        found = self._last.get(kernel_id)
        return found[2] if found is not None and self._is_known else None


def _used(kernel: KernelStatus) -> tuple[float, int, int]:
    devices = kernel.devices
    return (
        sum(device.busy_seconds for device in devices),
        sum(device.charged_bytes for device in devices),
        sum(device.refusals for device in devices),
    )


class Culler:
    """The culler. Made by the extension.

    A gateway that is a service of a Hub has *servers*.
    """

    def __init__(
        self,
        kernels: Kernels,
        policy: Policy,
        clock: Clock,
        log: logging.Logger,
        servers: Servers | None = None,
        lead: Lead = ALONE,
    ) -> None:
        self._lead = lead
        self._servers = servers
        self._kernels = kernels
        self._policy = policy
        self._clock = clock
        self._log = log
        self._gpu = GpuUse()
        self._announced: Mapping[str, Announcement] = {}
        self._first_seen: dict[str, float] = {}
        self._kept: dict[str, float] = {}
        self._checks = Recurring("culler", self.check, policy.check_seconds, clock, log)

    def watch(self, view: NodeView) -> None:
        """Called by NodeWatch with each new view."""
        self._gpu.observe(view, self._clock.wall())

    def gpu_used(self, kernel_id: str) -> float | None:
        """Return when the kernel last used its GPU, in seconds since the epoch; None while that is not known."""
        return self._gpu.last(kernel_id)

    def announced(self) -> Mapping[str, Announcement]:
        """Return the kernels that will be ended if nothing happens."""
        return self._announced

    def keep(self, kernel_id: str) -> str | None:
        """Begin a kernel's idle time anew, at its owner's request.

        Return why that does not help; None if it does.
        """
        told = self._announced.get(kernel_id)
        self._kept[kernel_id] = self._clock.wall()
        if told is None or told.can_keep:
            self._announced = {name: other for name, other in self._announced.items() if name != kernel_id}
            return None
        return f"Kernel {kernel_id} cannot be kept: {told.reason}. Save what you need."

    async def start(self) -> None:
        """Check the kernels from time to time, in the background."""
        self._checks.start()

    async def stop(self) -> None:
        """End no more kernels. Idempotent."""
        await self._checks.stop()

    async def check(self) -> None:
        """Check once: announce ends, and end the kernels that are due.

        The loop serves others between some kernels and the next. A replica that may not lead announces
        none: users may work with these kernels at another one.
        """
        if not self._lead.is_current():
            self._announced = {}
            return
        now = self._clock.wall()
        ids = set(self._kernels.list_kernel_ids())
        self._first_seen = {kernel_id: self._first_seen.get(kernel_id, now) for kernel_id in ids}
        self._kept = {kernel_id: at for kernel_id, at in self._kept.items() if kernel_id in ids}
        known = [self._since_kept(facts) for facts in await in_steps(self._each_facts(ids)) if facts is not None]
        before = self._announced
        decision = decide(known, before, self._clock.wall(), self._policy)
        self._announced = decision.announced
        for told in decision.announced.values():
            if before.get(told.kernel_id) != told:
                at = datetime.fromtimestamp(told.at).astimezone().isoformat(timespec="seconds")
                self._log.info("kernel=%s ends_at=%s reason=%s", told.kernel_id, at, told.reason)
        await asyncio.gather(*(self._end(told) for told in decision.ends))

    async def _end(self, told: Announcement) -> None:
        # The ends of other kernels may have taken a while. A cell that began meanwhile counts.
        if not self._lead.is_current():
            return
        facts = self._facts(told.kernel_id) if told.kernel_id in self._kernels.list_kernel_ids() else None
        if facts is None:
            return
        if not decide([facts], {told.kernel_id: told}, self._clock.wall(), self._policy).ends:
            return
        try:
            await self._kernels.end_kernel(told.kernel_id, asked_by_rule(EndingCode.CULLED, told.ending))
        except Exception:
            # It lives. The next check announces it anew.
            self._log.exception("kernel=%s culled=failed", told.kernel_id)

    # ---- the facts of one kernel

    def _each_facts(self, ids: Iterable[str]) -> Iterator[KernelFacts | None]:
        """Yield the facts of the kernels that are there when it comes to them."""
        return map(self._facts, filter(self._kernels.__contains__, ids))

    def _since_kept(self, facts: KernelFacts) -> KernelFacts:
        """Return the facts of a kernel whose owner may have kept it since they were found."""
        kept = self._kept.get(facts.id, 0.0)
        return facts if kept <= facts.active else replace(facts, active=kept)

    def _facts(self, kernel_id: str) -> KernelFacts | None:
        """Return the facts of a kernel; None if it does not run, or its use is not known."""
        if self._kernels.kernel_state(kernel_id)[0] != "on_gpu":
            return None
        kernel = self._kernels.get_kernel(kernel_id)
        work = self._work(kernel_id, kernel)
        request = request_of(kernel)
        gpu = self._gpu.last(kernel_id) if request is not None else 0.0
        if work is None or gpu is None:
            return None
        is_busy, active = work
        started = getattr(kernel, "queued_at", None) or self._first_seen.get(kernel_id, self._clock.wall())
        facts = KernelFacts(
            id=kernel_id,
            started=started,
            active=max(active, gpu, self._kept.get(kernel_id, 0.0)),
            is_busy=is_busy,
            connections=self._kernels.connections(kernel_id),
            idle=_own_idle_seconds(kernel),
            server_gone=self._server_gone(kernel_id),
        )
        is_low = request is not None and request.workload_class is WorkloadClass.OPPORTUNISTIC
        return replace(facts, is_low_priority=is_low)

    def _server_gone(self, kernel_id: str) -> float | None:
        owner = self._kernels.owner_of(kernel_id)
        return None if self._servers is None or owner is None else self._servers.gone_since(owner)

    def _work(self, kernel_id: str, kernel: Any) -> tuple[bool, float] | None:
        """Return whether it works, waiting for input included, and when it last did."""
        link = None if self._kernels.links is None else self._kernels.links.get(kernel_id)
        if link is None:
            return kernel.execution_state not in _IDLE_STATES, kernel.last_activity.timestamp()
        if link.activity is None or not link.is_up:
            return None
        return link.activity.is_busy, link.activity.last_activity


def _own_idle_seconds(kernel: Any) -> float | None:
    """Return the idle time of its kernelspec. Jupyter Server reads the same field."""
    try:
        found = kernel.kernel_spec.metadata.get(_METADATA)
    except NoSuchKernel:
        return None
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    return max(0.0, float(found)) if is_number else None

"""The policy of culling: its settings, and one pure decision which unused kernels end.

It ends no kernel itself.

Work is never ended, and each end is announced first. ``culler.py`` finds out which kernels are
idle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from traitlets import Bool, Float, TraitError, validate
from traitlets.config import Configurable

LEAST_WARNING_SECONDS = 1.0


class Culling(Configurable):
    """Settings of culling: unused kernels are ended, after an announcement."""

    idle_seconds = Float(
        0.0, help="End a kernel after so long without work and without use of its GPU; 0 for never."
    ).tag(config=True)
    low_priority_idle_seconds = Float(
        -1.0, help="The same for kernels of low priority; 0 for never, -1 for what holds for all."
    ).tag(config=True)
    max_age_seconds = Float(0.0, help="End a kernel so long after its start, once its work is done; 0 for never.").tag(
        config=True
    )
    server_gone_seconds = Float(
        0.0,
        help="Under `aliquot serve --hub`: end a kernel so long after its user's last server in the "
        "Hub has gone, once its work is done and while no client is connected to it; 0 for never.",
    ).tag(config=True)
    warning_seconds = Float(
        300.0, help="How long before its end a kernel's owner is told of it, 1 or more; 0 to end it untold."
    ).tag(config=True)
    connected = Bool(True, help="Whether kernels are ended, too, to which a browser tab is connected.").tag(config=True)

    @validate("idle_seconds", "max_age_seconds", "server_gone_seconds")
    def _is_not_negative(self, proposal: dict[str, Any]) -> float:
        return self._seconds(proposal, least=0.0)

    @validate("warning_seconds")
    def _is_a_warning_or_none(self, proposal: dict[str, Any]) -> float:
        # A shorter warning reaches no user, and the shortest are below the resolution of a clock.
        return 0.0 if proposal["value"] == 0 else self._seconds(proposal, least=LEAST_WARNING_SECONDS)

    @validate("low_priority_idle_seconds")
    def _is_a_time_or_left_open(self, proposal: dict[str, Any]) -> float:
        return -1.0 if proposal["value"] == -1 else self._seconds(proposal, least=0.0)

    def _seconds(self, proposal: dict[str, Any], least: float) -> float:
        if not least <= proposal["value"] < math.inf:
            name = proposal["trait"].name
            wanted = "0 or more" if least == 0 else f"{least:g} or more, or 0 for none"
            raise TraitError(
                f"c.Culling.{name}: {proposal['value']!r} is not valid. Use a number of seconds, {wanted}."
            )
        return float(proposal["value"])


@dataclass(frozen=True)
class Policy:
    """Times in seconds, 0 for never; ``warning`` is 0 or at least LEAST_WARNING_SECONDS.

    ``ends_busy`` is Jupyter's `cull_busy`, with which silent work is ended.
    """

    idle: float = 0.0
    low_priority_idle: float = 0.0
    max_age: float = 0.0
    server_gone: float = 0.0
    warning: float = 300.0
    ends_connected: bool = True
    ends_busy: bool = False
    check_seconds: float = 15.0


@dataclass(frozen=True)
class KernelFacts:
    """The facts of one running kernel. Times in seconds since the epoch.

    ``active`` is when it last worked, used its GPU or was kept by its owner. ``idle`` is its
    kernelspec's own idle time. ``server_gone`` is since when its owner has no server in the Hub;
    None if one runs, or that is not known.
    """

    id: str
    started: float
    active: float
    is_busy: bool = False
    connections: int = 0
    is_low_priority: bool = False
    idle: float | None = None
    server_gone: float | None = None


@dataclass(frozen=True)
class Announcement:
    """The announcement, made at ``since``, that a kernel ends at ``at``.

    With ``can_keep`` its owner may prevent it.
    """

    kernel_id: str
    at: float
    reason: str
    ending: str
    can_keep: bool
    since: float


@dataclass(frozen=True)
class Decision:
    """The announcements that stand now, with the new ones, and the ``ends`` that are due."""

    announced: Mapping[str, Announcement]
    ends: tuple[Announcement, ...] = ()


def read_policy(settings: Culling, jupyter: Any) -> Policy:
    """Return the policy of our settings.

    If they leave the idle time open, Jupyter's kernel manager's settings apply.
    """
    is_jupyters = not settings.idle_seconds and jupyter.cull_idle_timeout > 0
    idle = float(jupyter.cull_idle_timeout) if is_jupyters else settings.idle_seconds
    low_priority = idle if settings.low_priority_idle_seconds < 0 else settings.low_priority_idle_seconds
    known = (idle, low_priority, settings.max_age_seconds, settings.server_gone_seconds, settings.warning_seconds)
    times = [seconds for seconds in known if seconds > 0]
    check_seconds = min([15.0, *(seconds / 10 for seconds in times)])
    if is_jupyters and jupyter.cull_interval > 0:
        check_seconds = min(check_seconds, jupyter.cull_interval)
    return Policy(
        idle=idle,
        low_priority_idle=low_priority,
        max_age=settings.max_age_seconds,
        server_gone=settings.server_gone_seconds,
        warning=settings.warning_seconds,
        ends_connected=jupyter.cull_connected if is_jupyters else settings.connected,
        ends_busy=is_jupyters and jupyter.cull_busy,
        check_seconds=check_seconds,
    )


def decide(
    kernels: Iterable[KernelFacts], announced: Mapping[str, Announcement], now: float, policy: Policy
) -> Decision:
    """Return the announcements and the ends that are due.

    Activity of a kernel cancels its earlier announcement.
    """
    stand: dict[str, Announcement] = {}
    ends = []
    for kernel in kernels:
        due = _due(kernel, policy)
        if due is None or now < due.at - policy.warning:
            continue
        told = announced.get(kernel.id)
        if told is None or kernel.active >= told.since or told.reason != due.reason:
            at = max(due.at, now + policy.warning)
            told = Announcement(kernel.id, at, due.reason, due.ending, due.can_keep, now)
        if now >= told.at:
            ends.append(told)
        else:
            stand[kernel.id] = told
    return Decision(stand, tuple(ends))


@dataclass(frozen=True)
class _Due:
    """The time and the reason of a kernel's end, if nothing happens."""

    at: float
    reason: str
    ending: str
    can_keep: bool


def _due(kernel: KernelFacts, policy: Policy) -> _Due | None:
    if kernel.is_busy and not policy.ends_busy:
        return None
    if kernel.connections and not policy.ends_connected:
        return None
    causes = []
    idle = _idle_seconds(kernel, policy)
    if idle > 0:
        text = duration_text(idle)
        reason = f"kernels that are idle for {text} are ended"
        causes.append(_Due(kernel.active + idle, reason, f"after {text} idle", can_keep=True))
    if policy.max_age > 0 and not kernel.is_busy:
        # After work that ends late, the time of a warning follows, so that its results can be
        # saved.
        at = max(kernel.started + policy.max_age, kernel.active + policy.warning)
        text = duration_text(policy.max_age)
        causes.append(_Due(at, f"kernels are ended {text} after their start", f"{text} after its start", False))
    if policy.server_gone > 0 and kernel.server_gone is not None and not (kernel.is_busy or kernel.connections):
        at = max(kernel.server_gone, kernel.active) + policy.server_gone
        text = duration_text(policy.server_gone)
        reason = f"kernels are ended {text} after their user's server has gone"
        causes.append(_Due(at, reason, f"{text} after its user's server had gone", can_keep=True))
    return min(causes, key=lambda due: due.at, default=None)


def _idle_seconds(kernel: KernelFacts, policy: Policy) -> float:
    if kernel.idle is not None:
        return kernel.idle
    return policy.low_priority_idle if kernel.is_low_priority else policy.idle


def duration_text(seconds: float) -> str:
    """Return a duration for users: ``90 s``, ``60 min``, ``1 h 30 min``, ``3 d``."""
    if seconds < 120:
        return f"{seconds:g} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours >= 48 and not minutes and not hours % 24:
        return f"{hours // 24} d"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"

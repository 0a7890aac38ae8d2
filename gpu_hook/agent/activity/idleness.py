"""Decide whether a kernel is idle, and since when, from its relay's reports and its hooks' pages.

Neither source is enough: a thread launches while Jupyter reports idle, and a cell that waits for
input() is busy to Jupyter for hours. The lease policy decides what follows from idleness.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.pages.hook_page import HookSide


@dataclass(frozen=True)
class Activity:
    """A relay's last report of a kernel's open requests, ``work`` of which may use the device.

    ``since`` and ``input`` are in seconds since the epoch. ``input`` is the time from which all of
    that work waits for its user's input(), if the relay reports it.
    """

    open: int
    work: int
    since: float | None
    input: float | None = None


@dataclass(frozen=True)
class Moment:
    """One moment on both clocks: the machine's monotonic one, and seconds since the epoch.

    Relays report seconds since the epoch.
    """

    monotonic: float
    wall: float


@dataclass(frozen=True)
class Telemetry:
    """One process's hook page, on the monotonic clock.

    It is untrusted: a moment in the future counts as now. ``last_call`` is the time of its last
    call through the gate (a launch, a copy), None when there was none; the hook writes it at its
    tick. ``worked`` is when the devices were last seen working for it; a long computation works
    without any call.
    """

    last_call: float | None = None
    calls_inside: int = 0
    waiting_calls: int = 0
    worked: float | None = None


@dataclass(frozen=True)
class Patience:
    """The time without a call after which a kernel counts as idle."""

    # nothing is open: more than the hook's tick, and than a pause between two training steps
    recent_seconds: float = 2.0
    # a cell runs, or no relay reports: the cell may compute on the CPU, sleep or download
    silent_seconds: float = 60.0


@dataclass(frozen=True)
class Idleness:
    """A kernel's idleness.

    ``since`` is on the monotonic clock, None while it is busy; ``reason`` is in words, for users.
    """

    since: float | None
    reason: str


def judge(
    activity: Activity | None,
    telemetry: Iterable[Telemetry],
    now: Moment,
    *,
    known_since: float = 0.0,
    patience: Patience | None = None,
) -> Idleness:
    """Judge whether a kernel is idle.

    ``activity`` None: no relay ever reported. ``known_since`` is the time from which its calls
    would have been seen.
    """
    patience = patience or Patience()
    pages = tuple(telemetry)
    if any(page.waiting_calls for page in pages):
        return Idleness(None, "a call waits for its memory")
    if any(page.calls_inside for page in pages):
        return Idleness(None, "a call is under way")
    called = _latest(pages, now)
    quiet, wanted, reason = _as_told(activity, now, known_since, patience)
    since = quiet if called is None else max(quiet, called)
    if called is not None and now.monotonic - called < patience.recent_seconds:
        return Idleness(None, "it used its devices just now")
    if now.monotonic - since < wanted:
        return Idleness(None, reason)
    return Idleness(since, reason)


def idle_since(
    activity: Activity | None,
    telemetry: Iterable[Telemetry],
    now: Moment,
    *,
    known_since: float = 0.0,
    patience: Patience | None = None,
) -> float | None:
    """Return since when it is idle, on the monotonic clock; None while it is busy."""
    return judge(activity, telemetry, now, known_since=known_since, patience=patience).since


def _as_told(
    activity: Activity | None, now: Moment, known_since: float, patience: Patience
) -> tuple[float, float, str]:
    """Return since when it has no work, how long it must make no call, and the reason in words."""
    if activity is None:
        return known_since, patience.silent_seconds, "no relay tells of its cells"
    if not activity.work:
        return _monotonic(activity.since, now), 0.0, "nothing is open"
    if activity.input is not None:
        return _monotonic(activity.input, now), 0.0, "its cell waits for input"
    return _monotonic(activity.since, now), patience.silent_seconds, "its cell runs without using the devices"


def _latest(pages: Iterable[Telemetry], now: Moment) -> float | None:
    moments = [moment for page in pages for moment in (page.last_call, page.worked) if moment is not None]
    return min(max(moments), now.monotonic) if moments else None


def _monotonic(wall: float | None, now: Moment) -> float:
    """Convert a wall-clock time to the monotonic clock. A time in the future counts as now."""
    return now.monotonic if wall is None else now.monotonic - max(0.0, now.wall - wall)


def telemetry_of(page: HookSide) -> Telemetry:
    """Return the telemetry of one hook page; its numbers are untrusted."""
    words = page.read_residency()
    return Telemetry(words.last_call or None, words.calls_inside, words.waiting_calls)

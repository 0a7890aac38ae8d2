"""The input and output of a compute controller for one device, as frozen values.

Also the interface of controllers. Times are nanoseconds on CLOCK_MONOTONIC. Sums of times are
cumulative from a process's first measured work on. The words of hooks are untrusted; reading.py
bounds them when it makes these values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from jupyter_aliquot.gpu_hook.agent.pages.agent_page import Order

MILLISECOND = 1_000_000
SECOND = 1_000_000_000


class Interval(NamedTuple):
    """A time in which a process had work on the device, slices of its peers included."""

    start: int
    end: int


@dataclass(frozen=True)
class ProcessSample:
    """One process on one device, in one sample.

    ``intervals`` were added to its activity page since the sample before, in order and without overlaps;
    ``lost`` is occupied time since then that no interval shows. ``is_active``: work is on the
    device; ``active_since``: since when that is so, or not so. ``longest`` is the longest launch or
    graph of the last seconds. ``sampled`` is the time of sampled launches, ``sampled_solo`` the
    time that the same launches take alone. ``own`` is its GPU time by NVML; None where NVML does
    not report it. ``waiting_calls`` counts the threads that wait at the gate or for the lease, with
    launches or other calls, for any device.
    """

    key: int  # the session's number
    kernel_id: str
    is_production: bool
    hundredths: int  # of the device, the kernel's
    is_capped: bool = False  # the share is a limit even while the kernel is alone
    intervals: tuple[Interval, ...] = ()
    lost: int = 0
    occupied: int = 0
    is_active: bool = False
    active_since: int = 0
    in_flight: int = 0  # batches
    waiting_launches: int = 0
    launches: int = 0
    longest: int = 0
    throttled: int = 0
    sampled: int = 0
    sampled_solo: int = 0
    samples: int = 0
    without_baseline: int = 0
    own: int | None = None
    waiting_calls: int = 0


@dataclass(frozen=True)
class DeviceSample:
    """All processes with a hook on one device.

    ``time_slices`` is False where their work runs side by side (MPS).
    """

    now: int
    processes: tuple[ProcessSample, ...] = ()
    time_slices: bool = True


@dataclass(frozen=True)
class KernelShare:
    """The share of a device that a kernel had over the last second or so.

    Shares are parts of the device's time, 0 to 1. ``entitled`` is its share by weight among the
    kernels that want the device now; None where it wants nothing. ``own`` is its GPU time so far in
    nanoseconds, without peers' slices. ``slowdown`` is the time of its launches relative to
    the same launches alone; None where that is unknown. ``bound`` is for how many nanoseconds its
    launches in flight can hold up a production kernel that comes back.
    """

    entitled: float | None
    used: float
    own: int
    throttled: int = 0
    slowdown: float | None = None
    bound: int | None = None
    reason: str = ""  # why the kernel is held back, in words for users


@dataclass(frozen=True)
class Verdict:
    """The result of one step.

    ``unholdable`` are the kernels that must leave the device, since no pace keeps the target.
    ``look_after`` is the time until the next step, in nanoseconds.
    """

    orders: Mapping[int, Order]  # by the process's key
    shares: Mapping[str, KernelShare] = field(default_factory=dict)
    unholdable: tuple[str, ...] = ()
    look_after: int = 20 * MILLISECOND


class Controller(Protocol):
    """A controller of one device. It may keep state, but has no clock and does no I/O."""

    def step(self, look: DeviceSample) -> Verdict: ...

"""One simulated GPU with its processes, and a controller that gets views.py's samples.

The plant steps the controller as the agent does. It is deterministic by its seed, and has no clock
but its own. The core (core/) is C, for a pair of workloads is millions of events; only the
controller's samples and orders cross into Python, once for each of its steps.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from compute.baselines.blocks import BlockOrder, BlockSample
from compute.core_library import NEVER, CoreLook, CoreSettings, Op, PaceOrder, core
from compute.programs import Workload
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import (
    MILLISECOND,
    Controller,
    DeviceSample,
    Interval,
    ProcessSample,
    Verdict,
)
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import MEASURED, OPEN, Order
from jupyter_aliquot.gpu_hook.protocol.codec import NO_LIMIT, Gate

BIN = 10 * MILLISECOND  # BIN_NANOSECONDS of core/plant.h
RETURN = 300 * MILLISECOND  # to restore a swapped kernel: 6 GB over a link of 20 GB/s


@dataclass(frozen=True)
class Device:
    """One GPU's properties.

    ``slice_`` and ``switch_cost`` belong to time-slicing contexts; ``slowdown``: thousandths that
    each neighbor costs where contexts run side by side, None under time slices. The hook sees an
    end 0.25 to 0.5 ms late.
    """

    slice_: int = 2 * MILLISECOND
    switch_cost: int = 50_000
    slowdown: int | None = None
    notice_least: int = 250_000
    notice_most: int = 500_000
    wake: int = 10_000
    sample_every: int = 64


@dataclass(frozen=True)
class Process:
    workload: Workload
    is_production: bool = False
    hundredths: int = 100
    is_capped: bool = False
    kernel_id: str = ""
    begins: int = 0
    ends: int = NEVER


@dataclass(frozen=True)
class Step:
    end: int
    time: int
    kind: int = 0


@dataclass
class Outcome:
    """The outcome of a run.

    ``bins``: own device time of each process in each 10 ms; ``steps``: of each process.
    """

    own: list[int] = field(default_factory=list)
    occupied: list[int] = field(default_factory=list)
    throttled: list[int] = field(default_factory=list)
    launches: list[int] = field(default_factory=list)
    steps: list[list[Step]] = field(default_factory=list)
    bins: list[list[int]] = field(default_factory=list)
    switched: int = 0
    verdicts: list[tuple[int, Verdict]] = field(default_factory=list)

    def own_between(self, process: int, begin: int, end: int) -> int:
        """Return a process's own time in an interval; both ends are borders of bins."""
        return sum(self.bins[process][begin // BIN : end // BIN])

    def steps_between(self, process: int, begin: int, end: int) -> list[int]:
        return [step.time for step in self.steps[process] if begin < step.end <= end]


class Plant:
    """The plant.

    ``clock`` converts the plant's time into the time of the agent's samples: the identity, except
    in tests of clock jumps.
    """

    def __init__(
        self,
        processes: Sequence[Process],
        controller: Controller | None,
        horizon: int,
        seed: int = 1,
        device: Device | None = None,
        clock: Callable[[int], int] = lambda now: now,
        keeps_verdicts: bool = False,
    ) -> None:
        self._processes, self._controller, self._horizon = list(processes), controller, horizon
        self._device, self._clock, self._keeps_verdicts = device or Device(), clock, keeps_verdicts
        self._random = Random(seed)
        self._core = core()
        self._handle = self._core.plant_new(ctypes.byref(self._settings(seed)))
        self._programs = [self._add(process) for process in self._processes]
        self._look = CoreLook()
        self._away_until = [0] * len(self._processes)

    def _settings(self, seed: int) -> CoreSettings:
        device = self._device
        side = 0 if device.slowdown is None else 1 + device.slowdown
        return CoreSettings(
            seed, self._horizon, device.slice_, device.switch_cost, device.notice_least, device.notice_most,
            device.wake, device.sample_every, side,
        )  # fmt: skip

    def _add(self, process: Process) -> ctypes.Array[Op]:
        ops = (Op * len(process.workload.ops))(*process.workload.ops)
        number = self._core.plant_add(self._handle, ops, len(ops), process.is_production, process.begins, process.ends)
        if number < 0:
            raise ValueError(f"Requested process {len(self._processes)} on one device, but 64 fit")
        return ops  # the core reads it until its end

    def run(self) -> Outcome:
        """Run to the horizon.

        The controller is stepped when it requests it, a little late as the agent's loop is.
        """
        outcome, now = Outcome(), 0
        try:
            for number in range(len(self._processes)):
                self._order(number, OPEN)  # as the hook finds its page
            while now < self._horizon:
                self._advance(now)
                wait = self._step(now, outcome) if self._controller else self._horizon
                now += max(MILLISECOND, wait) + self._random.randrange(0, MILLISECOND)
            self._advance(self._horizon)
            return self._measured(outcome)
        finally:
            self._core.plant_free(self._handle)

    def _advance(self, until: int) -> None:
        if self._core.plant_run(self._handle, min(until, self._horizon)):
            raise MemoryError("the plant ran out of room for what is in flight")

    def _step(self, now: int, outcome: Outcome) -> int:
        assert self._controller
        here = [number for number, process in enumerate(self._processes) if process.begins <= now < process.ends]
        looks = tuple(self._view(number) for number in here)
        verdict = self._controller.step(DeviceSample(self._clock(now), looks, self._device.slowdown is None))
        if self._keeps_verdicts:
            outcome.verdicts.append((now, verdict))
        self._advance(now + self._random.randrange(50_000, 300_000))  # the duration of the step itself
        for number in here:
            is_unholdable = self._is_away(number, now, verdict)
            if is_unholdable or number in verdict.orders:
                self._order(number, verdict.orders.get(number, OPEN), is_unholdable)
        return verdict.look_after

    def _is_away(self, number: int, now: int, verdict: Verdict) -> bool:
        if self._kernel_id(number) in verdict.unholdable:
            self._away_until[number] = now + RETURN
        return now < self._away_until[number]

    def _kernel_id(self, number: int) -> str:
        return self._processes[number].kernel_id or str(number)

    def _view(self, number: int) -> ProcessSample:
        process, look = self._processes[number], self._look
        self._core.plant_look(self._handle, number, ctypes.byref(look))
        pieces = look.pieces
        clock = self._clock
        return BlockSample(
            key=number, kernel_id=self._kernel_id(number), is_production=process.is_production,
            hundredths=process.hundredths, is_capped=process.is_capped,
            intervals=tuple(
                Interval(clock(pieces[place][0]), clock(pieces[place][1])) for place in range(look.piece_count)
            ),
            lost=look.lost, occupied=look.occupied, is_active=bool(look.is_active), active_since=clock(look.since),
            in_flight=look.in_flight, waiting_launches=look.waiting_launches, launches=look.launches,
            blocks=look.blocks, longest=look.longest, throttled=look.throttled, sampled=look.sampled,
            sampled_solo=look.sampled_solo, samples=look.samples, without_baseline=look.without_baseline,
        )  # fmt: skip

    def _order(self, number: int, order: Order, is_unholdable: bool = False) -> None:
        """Apply an order.

        The agent swaps out a kernel that it cannot hold: here its gate stays closed, as that of a
        swapped kernel.
        """
        if is_unholdable:
            order = replace(order, gate=Gate.CLOSED)
        words = PaceOrder(
            int(order.pace), order.in_flight_cap, min(order.allowed, NO_LIMIT),
            min(order.allowed_with_busy_peers, NO_LIMIT),
            order.idle_window_min, order.idle_window_max, order.idle_resume, 0,
        )  # fmt: skip
        self._core.plant_order(
            self._handle, number, int(order.gate), ctypes.byref(words), order.batch_microseconds * 1000,
            order.solo_window, order.allowed_blocks if isinstance(order, BlockOrder) else NO_LIMIT,
        )  # fmt: skip

    def _measured(self, outcome: Outcome) -> Outcome:
        library, handle = self._core, self._handle
        for number in range(len(self._processes)):
            outcome.own.append(library.plant_own(handle, number))
            outcome.occupied.append(library.plant_occupied(handle, number))
            outcome.throttled.append(library.plant_throttled(handle, number))
            outcome.launches.append(library.plant_launches(handle, number))
            steps = library.plant_steps(handle, number)
            count = library.plant_step_count(handle, number)
            outcome.steps.append([Step(*steps[3 * place : 3 * place + 3]) for place in range(count)])
            outcome.bins.append(library.plant_bins(handle, number)[: self._horizon // BIN])
        outcome.switched = library.plant_switched(handle)
        return outcome


class OnlyMeasured:
    """A controller that lets everything pass and measures it: the behavior of a process alone."""

    def step(self, look: DeviceSample) -> Verdict:
        return Verdict({process.key: MEASURED for process in look.processes}, look_after=50 * MILLISECOND)

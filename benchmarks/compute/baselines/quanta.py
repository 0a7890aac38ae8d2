"""Exclusive time quanta: one kernel at a time has the device.

Two forms: Gemini's token (quota 250 ms, use over 10 s against the share), and nvshare's lock (30 s,
given back after 5 s without work). The previous kernel drains first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import (
    MILLISECOND,
    SECOND,
    DeviceSample,
    ProcessSample,
    Verdict,
)
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import MEASURED
from jupyter_aliquot.gpu_hook.protocol.codec import Gate

GEMINI_QUOTA, GEMINI_WINDOW = 250 * MILLISECOND, 10 * SECOND
NVSHARE_QUANTUM, NVSHARE_IDLE = 30 * SECOND, 5 * SECOND
LOOK, DRAIN_LOOK = 10 * MILLISECOND, 2 * MILLISECOND
SHUT = replace(MEASURED, gate=Gate.CLOSED)


def wants(process: ProcessSample) -> bool:
    """Return whether a process wants the device.

    A closed gate holds every call. A process whose call takes memory must get a turn, too, or its
    program never launches.
    """
    return process.waiting_launches > 0 or process.waiting_calls > 0 or process.in_flight > 0 or process.is_active


class Quanta:
    """Time quanta. ``idle_after``: a holder gives its turn up after so long without work."""

    def __init__(self, quantum: int = GEMINI_QUOTA, idle_after: int = 0, window: int = GEMINI_WINDOW) -> None:
        self._quantum, self._idle_after, self._window = quantum, idle_after, window
        self._holder: str | None = None
        self._until = self._busy_at = 0
        self._is_draining = False
        self._turns: deque[tuple[int, int, str]] = deque()  # from, to, kernel
        self._began = 0

    def step(self, look: DeviceSample) -> Verdict:
        kernels: dict[str, list[ProcessSample]] = {}
        for process in look.processes:
            kernels.setdefault(process.kernel_id, []).append(process)
        if self._holder is not None:
            self._hold(look.now, kernels)
        if self._holder is None:
            self._choose(look.now, kernels)
        is_open = None if self._is_draining else self._holder
        orders = {one.key: MEASURED if one.kernel_id == is_open else SHUT for one in look.processes}
        if len(kernels) < 2:
            orders = {one.key: MEASURED for one in look.processes}
        return Verdict(orders, look_after=DRAIN_LOOK if self._is_draining else LOOK)

    def _hold(self, now: int, kernels: dict[str, list[ProcessSample]]) -> None:
        assert self._holder is not None
        mine = kernels.get(self._holder, [])
        if any(wants(process) for process in mine):
            self._busy_at = now
        is_idle = now - self._busy_at >= self._idle_after and not any(wants(process) for process in mine)
        others_want = any(wants(one) for kernel, all_ in kernels.items() if kernel != self._holder for one in all_)
        if others_want and (now >= self._until or is_idle):
            self._is_draining = True
        if not mine or (self._is_draining and not any(process.in_flight for process in mine)):
            self._turns.append((self._began, now, self._holder))
            self._holder, self._is_draining = None, False

    def _choose(self, now: int, kernels: dict[str, list[ProcessSample]]) -> None:
        while self._turns and self._turns[0][1] <= now - self._window:
            self._turns.popleft()

        def claim(kernel: str) -> tuple[float, str]:
            had = sum(end - max(begin, now - self._window) for begin, end, who in self._turns if who == kernel)
            return had / max(1, kernels[kernel][0].hundredths), kernel

        waiting = [kernel for kernel, all_ in kernels.items() if any(wants(one) for one in all_)]
        if waiting:
            self._holder = min(waiting, key=claim)
            self._began = self._busy_at = now
            self._until = now + self._quantum


def nvshare() -> Quanta:
    return Quanta(NVSHARE_QUANTUM, NVSHARE_IDLE)

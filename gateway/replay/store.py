"""The output of the cells of all kernels, within one bound. In memory only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from .cells import Budget, KernelCells

_LOOK_SECONDS = 60.0
# When all kernels together keep too much, the one that keeps the most drops this many bytes at a
# time.
_STEP = 1 << 16


class CellOutputs:
    """The outputs of all kernels, made by the extension for the links.

    ``clock``: seconds since the epoch.
    """

    def __init__(self, budget: Budget, clock: Callable[[], float] = time.time) -> None:
        self._budget = budget
        self._clock = clock
        self._kernels: dict[str, KernelCells] = {}
        self._looking: asyncio.TimerHandle | None = None

    def open(self, kernel_id: str) -> KernelCells:
        """Return the cells of a kernel, made with its link."""
        found = self._kernels.get(kernel_id)
        if found is None:
            found = self._kernels[kernel_id] = KernelCells(self._budget, self.fit)
        if self._looking is None:
            self._look_later()
        return found

    def get(self, kernel_id: str) -> KernelCells | None:
        """Return a kernel's cells; None without a link."""
        return self._kernels.get(kernel_id)

    def close(self, kernel_id: str) -> None:
        """Close what is kept of a kernel at its end. Idempotent."""
        cells = self._kernels.pop(kernel_id, None)
        if cells is not None:
            cells.close()
        if not self._kernels and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def fit(self) -> None:
        """Drop output of the kernels that keep the most, until the bound of all holds."""
        while self._budget.used > self._budget.all_bytes:
            largest = max(self._kernels.values(), key=lambda cells: cells.bytes, default=None)
            before = 0 if largest is None else largest.bytes
            if largest is not None:
                largest.fit(before - _STEP)
            if largest is None or largest.bytes == before:
                return

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        now = self._clock()
        for cells in self._kernels.values():
            cells.forget_old(now)
        self._look_later()

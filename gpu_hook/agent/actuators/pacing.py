"""The default actuator: the hook's own pacing of bursts, by the words that the compute controller writes."""

from __future__ import annotations

from collections.abc import Sequence

from .base import KernelCompute, Setting


class Pacing:
    """Implements ``base.Actuator``. Everywhere where the hook is. Without it the controller's orders reach nobody."""

    name = "pacing"
    is_experimental = False
    warning = ""

    def unavailable(self) -> str:
        return ""

    def setting(self, kernel: KernelCompute) -> Setting:
        return Setting()

    def misfits(self, kernel: KernelCompute, pids: Sequence[int]) -> tuple[str, ...]:
        return ()

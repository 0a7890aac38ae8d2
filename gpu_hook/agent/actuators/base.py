"""Actuators apply a kernel's share of compute: their common interface, and the default one.

An actuator decides how, from a kernel's share and class. A controller
(compute/measurement/views.py) decides when a kernel is paced, and how much. No actuator measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from jupyter_aliquot.gpu_hook.placement.placement import Part


class ActuatorError(Exception):
    """The requested actuator is not available. The message is for the administrator."""


@dataclass(frozen=True)
class KernelCompute:
    """One kernel's part of the devices.

    ``is_capped``: its share is a limit even while the kernel is alone.
    """

    kernel_id: str
    workload_class: str
    parts: tuple[Part, ...]
    is_capped: bool = False

    @property
    def is_production(self) -> bool:
        return self.workload_class == "production"


class Actuator(Protocol):
    """An actuator.

    ``unavailable`` and ``misfits`` may block: the agent calls them in a thread, or before anything
    runs.
    """

    name: str
    is_experimental: bool  # opt-in: docs/results record no run on hardware
    warning: str  # for the administrator, while it is in force; empty: none

    def unavailable(self) -> str:
        """Return why this node does not have it; empty when it does."""
        ...

    def environment(self, kernel: KernelCompute) -> Mapping[str, str]:
        """Return the variables for this kernel's environment."""
        ...

    def needs_restart(self, kernel: KernelCompute, pids: Sequence[int]) -> tuple[str, ...]:
        """Return the settings of its running processes that differ and need a restart."""
        ...


class Pacing:
    """The default actuator: the hook paces launches by the compute controller's words.

    Every hook has it. Without it the controller's orders reach no hook.
    """

    name = "pacing"
    is_experimental = False
    warning = ""

    def unavailable(self) -> str:
        return ""

    def environment(self, kernel: KernelCompute) -> Mapping[str, str]:
        return {}

    def needs_restart(self, kernel: KernelCompute, pids: Sequence[int]) -> tuple[str, ...]:
        return ()

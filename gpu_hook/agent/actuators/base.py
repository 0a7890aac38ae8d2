"""What acts on a kernel's compute: the interface that all actuators share, and the values it speaks in.

An actuator says how, from a kernel's share and class; when and how much pacing there is, a controller decides
(compute/views.py). None of them measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol.codec import Actuators

NO_BITS = Actuators(0)


class ActuatorError(Exception):
    """What was asked for cannot be had. The message is for the administrator."""


@dataclass(frozen=True)
class KernelCompute:
    """What one kernel may have. ``is_capped``: its share is a limit, too, when it is alone."""

    kernel_id: str
    workload_class: str
    parts: tuple[Part, ...]
    is_capped: bool = False

    @property
    def is_production(self) -> bool:
        return self.workload_class == "production"


@dataclass(frozen=True)
class Setting:
    """What an actuator wants of a kernel: words of its pages, which change while it runs, and of its environment.

    ``sm_percents``: of each of the kernel's devices, in their order; 0: all of it. Empty: not this actuator's.
    """

    bits: Actuators = NO_BITS
    sm_percents: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class Actuator(Protocol):
    """``unavailable`` and ``misfits`` may block: they are called in a thread, or before anything runs."""

    name: str
    is_experimental: bool  # no run on hardware is recorded: opt-in
    warning: str  # what the administrator has to know while it is in force; empty: nothing

    def unavailable(self) -> str:
        """Why this node has it not; empty when it has."""
        ...

    def setting(self, kernel: KernelCompute) -> Setting:
        """What holds for this kernel now; asked again after every resize."""
        ...

    def misfits(self, kernel: KernelCompute, pids: Sequence[int]) -> tuple[str, ...]:
        """What its running processes have otherwise, and cannot be given before they are restarted."""
        ...

"""The actuators in force, for the kernels of this node.

They give a kernel its environment, and the settings that need a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.ledger.journal import Reservation

from .base import Actuator, KernelCompute


@dataclass(frozen=True)
class ActuatorReport:
    """One actuator in the status.

    ``reason`` says why it is not in force; ``warning`` is for the administrator while it is.
    """

    name: str
    in_force: bool
    available: bool
    experimental: bool
    reason: str
    warning: str


@dataclass(frozen=True)
class ChosenActuators:
    """The actuators in force, and their combined settings for one kernel."""

    in_force: tuple[Actuator, ...]
    reports: tuple[ActuatorReport, ...]

    @property
    def paces(self) -> bool:
        """Return whether a controller's orders reach the hooks."""
        return "pacing" in self.names

    @property
    def runs_side_by_side(self) -> bool:
        """Return whether work of several processes may be on a device at once.

        Otherwise processes have the device in time slices.
        """
        return "mps" in self.names

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(actuator.name for actuator in self.in_force)

    def environment(self, kernel: KernelCompute) -> Mapping[str, str]:
        return {name: value for one in self.in_force for name, value in one.environment(kernel).items()}

    def needs_restart(self, kernel: KernelCompute, pids: Sequence[int]) -> tuple[str, ...]:
        return tuple(text for actuator in self.in_force for text in actuator.needs_restart(kernel, pids))


def _never(reservation: Reservation) -> bool:
    return False


class Actuation:
    """The effect of the actuators on kernels.

    ``is_capped``: a kernel's share is a limit for it when it is alone, too.
    """

    def __init__(self, chosen: ChosenActuators, is_capped: Callable[[Reservation], bool] = _never) -> None:
        self._chosen = chosen
        self._is_capped = is_capped

    @property
    def paces(self) -> bool:
        return self._chosen.paces

    @property
    def runs_side_by_side(self) -> bool:
        return self._chosen.runs_side_by_side

    @property
    def names(self) -> tuple[str, ...]:
        return self._chosen.names

    @property
    def reports(self) -> tuple[ActuatorReport, ...]:
        return self._chosen.reports

    def environment(self, reservation: Reservation) -> Mapping[str, str]:
        return self._chosen.environment(self._compute(reservation))

    def needs_restart(self, reservation: Reservation, pids: Sequence[int]) -> tuple[str, ...]:
        """Return the settings that differ in its running processes and need a restart.

        This may read the processes' environment.
        """
        return self._chosen.needs_restart(self._compute(reservation), pids)

    def _compute(self, reservation: Reservation) -> KernelCompute:
        return KernelCompute(
            reservation.kernel_id, reservation.workload_class, reservation.parts, self._is_capped(reservation)
        )

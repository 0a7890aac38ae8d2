"""The actuators in force, for the kernels of this node: their words and environment, and what a running one misses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jupyter_aliquot.gpu_hook.agent.ledger.journal import Reservation

from .base import KernelCompute, Setting
from .choice import ActuatorReport, ChosenActuators


def nobody(reservation: Reservation) -> bool:
    return False


class Actuation:
    """``is_capped``: whether a kernel's share is a limit for it when it is alone, too."""

    def __init__(self, chosen: ChosenActuators, is_capped: Callable[[Reservation], bool] = nobody) -> None:
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

    def setting(self, reservation: Reservation) -> Setting:
        return self._chosen.setting(self._compute(reservation))

    def environment(self, reservation: Reservation) -> Mapping[str, str]:
        return self._chosen.environment(self._compute(reservation))

    def misfits(self, reservation: Reservation, pids: Sequence[int]) -> tuple[str, ...]:
        """What its running processes have otherwise, until they are restarted. Reads their environment, if anything."""
        return self._chosen.misfits(self._compute(reservation), pids)

    def _compute(self, reservation: Reservation) -> KernelCompute:
        return KernelCompute(
            reservation.kernel_id, reservation.workload_class, reservation.parts, self._is_capped(reservation)
        )

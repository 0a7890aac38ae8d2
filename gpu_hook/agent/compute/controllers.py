"""The controllers that ``--compute-control`` offers, by name.

Each entry makes a new controller for one device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, Controller, DeviceSample, Verdict
from jupyter_aliquot.gpu_hook.agent.compute.policy.controller import MeasuredController
from jupyter_aliquot.gpu_hook.agent.compute.policy.policy import Policy
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import MEASURED


class NoControl:
    """Leave the device to the driver's time slices: every launch passes, and is measured."""

    def step(self, look: DeviceSample) -> Verdict:
        return Verdict({process.key: MEASURED for process in look.processes}, look_after=50 * MILLISECOND)


class ControllerParameters(Protocol):
    """The parameters of a controller that an administrator can set; see settings.py."""

    @property
    def slowdown_target(self) -> float: ...

    @property
    def floor(self) -> float: ...

    @property
    def period(self) -> int: ...


def _measured(parameters: ControllerParameters) -> Controller:
    return MeasuredController(
        Policy(slowdown_target=parameters.slowdown_target, floor=parameters.floor, period=parameters.period)
    )


MakeController = Callable[[ControllerParameters], Controller]

CONTROLLERS: Mapping[str, MakeController] = {"measured": _measured, "none": lambda parameters: NoControl()}

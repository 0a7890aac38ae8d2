"""The controllers that ``--compute-control`` offers, by name. Each entry makes a new controller for one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import Controller
from jupyter_aliquot.gpu_hook.agent.compute.policy.controller import MeasuredController
from jupyter_aliquot.gpu_hook.agent.compute.policy.policy import Policy

from .no_control import NoControl


class Wishes(Protocol):
    """What an administrator can set of a controller: see settings.py."""

    @property
    def slowdown_target(self) -> float: ...

    @property
    def floor(self) -> float: ...

    @property
    def period(self) -> int: ...


def _measured(wishes: Wishes) -> Controller:
    return MeasuredController(Policy(slowdown_target=wishes.slowdown_target, floor=wishes.floor, period=wishes.period))


MakeController = Callable[[Wishes], Controller]

CONTROLLERS: Mapping[str, MakeController] = {"measured": _measured, "none": lambda wishes: NoControl()}

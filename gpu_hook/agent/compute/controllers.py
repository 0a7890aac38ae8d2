"""The controllers that an agent can be told to use, by name. Each makes a new one for each device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from .baselines.hami import HamiLike
from .baselines.none import NoControl
from .baselines.quanta import Quanta
from .baselines.tgs import Tgs
from .measured import MeasuredController
from .policy import Policy
from .views import Controller


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


CONTROLLERS: Mapping[str, Callable[[Wishes], Controller]] = {
    "measured": _measured,
    "none": lambda wishes: NoControl(),
    "tgs": lambda wishes: Tgs(),
    "hami": lambda wishes: HamiLike(),
    "quanta": lambda wishes: Quanta(),
}

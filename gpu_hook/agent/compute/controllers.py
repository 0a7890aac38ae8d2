"""The controllers that an agent can be told to use, by name. Each makes a new one for each device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from .views import Controller


class Wishes(Protocol):
    """What an administrator can set of a controller: see settings.py."""

    @property
    def slowdown_target(self) -> float: ...

    @property
    def floor(self) -> float: ...

    @property
    def period(self) -> int: ...


Make = Callable[[Wishes], Controller]

CONTROLLERS: Mapping[str, Make] = {}

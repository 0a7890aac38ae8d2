"""The controllers that the benchmark compares, by name, with the time each gets to settle."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from compute.baselines.hami import HamiLike
from compute.baselines.quanta import Quanta
from compute.baselines.tgs import Tgs
from compute.programs import SECOND
from jupyter_aliquot.gpu_hook.agent.compute.controllers import NoControl
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import Controller
from jupyter_aliquot.gpu_hook.agent.compute.policy.controller import MeasuredController
from jupyter_aliquot.gpu_hook.agent.compute.policy.policy import Policy


@dataclass(frozen=True)
class Contender:
    name: str
    make: Callable[[], Controller]
    settles: int = 5 * SECOND  # nanoseconds
    counts_blocks: bool = False  # of launches, which only the plant does


OURS, TGS = "measured", "tgs"
CONTENDERS = {
    one.name: one
    for one in (
        Contender(OURS, MeasuredController),
        Contender("none", NoControl),
        Contender(TGS, Tgs, 200 * SECOND, counts_blocks=True),  # a profile of 25 s, then 80 s and more of slow start
        Contender("hami", HamiLike, counts_blocks=True),
        Contender("quanta", Quanta),
    )
}


def contender(name: str) -> Contender:
    """Return the controller of this name; ``measured@8`` is ours with a slowdown target of 8 %.

    Raises ValueError.
    """
    if name in CONTENDERS:
        return CONTENDERS[name]
    found = re.fullmatch(rf"{OURS}@(\d{{1,2}}(?:\.\d+)?)", name)
    if found is None or not float(found[1]):
        choices = ", ".join(CONTENDERS)
        raise ValueError(f"No controller is named {name}. Choose one of {choices}, or {OURS}@8 for a target of 8 %.")
    policy = Policy(slowdown_target=float(found[1]) / 100)
    return Contender(name, lambda: MeasuredController(policy))

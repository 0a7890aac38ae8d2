"""The controllers that the benchmark compares, by name, with the time each gets to settle.

The module has values only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compute.baselines.hami import HamiLike
from compute.baselines.quanta import Quanta
from compute.baselines.tgs import Tgs
from compute.programs import SECOND
from jupyter_aliquot.gpu_hook.agent.compute.controllers import NoControl
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import Controller
from jupyter_aliquot.gpu_hook.agent.compute.policy.controller import MeasuredController


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

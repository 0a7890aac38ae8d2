"""What could limit memory and act on compute on this node, the default first, and the choice among them.

Made here for main, before anything runs; whether the node has one, each says itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.actuators.actuation import ChosenActuators
from jupyter_aliquot.gpu_hook.agent.actuators.base import Actuator, ActuatorError, Pacing
from jupyter_aliquot.gpu_hook.agent.actuators.choice import ActuatorSettings, choose_actuators
from jupyter_aliquot.gpu_hook.agent.actuators.mps import Mps
from jupyter_aliquot.gpu_hook.paths import Driver

from .base import Enforcer
from .cgroups import find_hierarchy
from .choice import Choice, choose
from .driver import DriverEnforcer
from .hook import HookEnforcer
from .mps import MpsEnforcer

FindEnforcers = Callable[[Driver], Sequence[Enforcer]]


@dataclass(frozen=True)
class Chosen:
    """``limits``: the enforcer in force; ``actuators``: what acts on compute."""

    limits: Choice
    actuators: ChosenActuators


def find_enforcers(driver: Driver) -> Sequence[Enforcer]:
    hierarchy = find_hierarchy(may_be_version_1=driver.kind == "softgpu")
    return HookEnforcer(), DriverEnforcer(driver.nvml, hierarchy), MpsEnforcer()


def find_actuators(settings: ActuatorSettings) -> Sequence[Actuator]:
    return Pacing(), Mps(settings.mps_folder)


def choose_candidates(
    enforcer: str, actuators: ActuatorSettings, driver: Driver, find_enforcers: FindEnforcers
) -> Chosen:
    """Return the enforcer of this name (or ``auto``) and the actuators. Raises EnforcerError, ActuatorError."""
    limits = choose(enforcer, find_enforcers(driver))
    if limits.enforcer.name == "mps" and "mps" in actuators.asked:
        raise ActuatorError(
            "asked --enforcer mps and --compute-actuators mps: the first has one server for all kernels, the second "
            "keeps classes apart; ask for one of them"
        )
    return Chosen(limits, choose_actuators(actuators.asked, find_actuators(actuators)))

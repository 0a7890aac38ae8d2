"""The enforcers and actuators of a node, the default first, and the choice of those in force.

main calls it before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.actuators.actuation import ChosenActuators
from jupyter_aliquot.gpu_hook.agent.actuators.base import Actuator, ActuatorError, Pacing
from jupyter_aliquot.gpu_hook.agent.actuators.choice import ActuatorSettings, choose_actuators
from jupyter_aliquot.gpu_hook.agent.actuators.mps import Mps
from jupyter_aliquot.gpu_hook.paths import Driver

from .base import Enforcer, EnforcerError, HookEnforcer
from .cgroups import find_hierarchy
from .driver import DriverEnforcer
from .mps import MpsEnforcer

FindEnforcers = Callable[[Driver], Sequence[Enforcer]]

ENFORCERS = ("hook", "driver", "mps")
_PROVEN = {"hook"}  # docs/results have no run of the others on hardware: they are opt-in


@dataclass(frozen=True)
class EnforcerReport:
    """One enforcer in the status.

    ``reason`` says why it is not in force; it is empty for the one that is.
    """

    name: str
    in_force: bool
    available: bool
    experimental: bool
    reason: str


@dataclass(frozen=True)
class Choice:
    enforcer: Enforcer
    reports: tuple[EnforcerReport, ...]


def choose(asked: str, candidates: Sequence[Enforcer]) -> Choice:
    """Return the chosen enforcer; ``auto`` takes the first proven one.

    Raises EnforcerError when the requested one is not available.
    """
    problems = {candidate.name: candidate.unavailable() for candidate in candidates}
    by_name = {candidate.name: candidate for candidate in candidates}
    if asked == "auto":
        asked = next(name for name, problem in problems.items() if name in _PROVEN and not problem)
    if problems[asked]:
        raise EnforcerError(
            f"Requested --enforcer {asked}, but this node does not have it: {problems[asked]}. Choose another, or auto"
        )
    return Choice(by_name[asked], tuple(_report(name, name == asked, problems[name]) for name in by_name))


def _report(name: str, is_in_force: bool, problem: str) -> EnforcerReport:
    is_experimental = name not in _PROVEN
    reason = problem
    if not is_in_force and not problem:
        how = f"request it with --enforcer {name}"
        reason = f"no run on hardware is recorded; {how}" if is_experimental else f"not requested; {how}"
    return EnforcerReport(name, is_in_force, not problem, is_experimental, reason)


@dataclass(frozen=True)
class Chosen:
    """The enforcer and the actuators in force.

    ``limits`` is the enforcer; ``actuators`` act on compute.
    """

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
    """Return the enforcer of this name (or ``auto``) and the actuators.

    Raises EnforcerError, ActuatorError.
    """
    limits = choose(enforcer, find_enforcers(driver))
    if limits.enforcer.name == "mps" and "mps" in actuators.asked:
        raise ActuatorError(
            "Requested --enforcer mps and --compute-actuators mps, but the first has one server for "
            "all kernels, and the second keeps classes apart. Request one of them"
        )
    return Chosen(limits, choose_actuators(actuators.asked, find_actuators(actuators)))

"""The enforcers and actuators that a node could have, the default first, and the choice of those in force.

Called by main before anything runs.
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
_PROVEN = {"hook"}  # the others have no run on hardware under docs/results: they are opt-in


@dataclass(frozen=True)
class EnforcerReport:
    """One line of the status. ``reason``: why it is not in force; empty for the one that is."""

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
    """``auto`` takes the first that is proven. Raises EnforcerError when the one asked for is not there."""
    problems = {candidate.name: candidate.unavailable() for candidate in candidates}
    by_name = {candidate.name: candidate for candidate in candidates}
    if asked == "auto":
        asked = next(name for name, problem in problems.items() if name in _PROVEN and not problem)
    if problems[asked]:
        raise EnforcerError(f"asked --enforcer {asked}; this node has it not: {problems[asked]}")
    return Choice(by_name[asked], tuple(_report(name, name == asked, problems[name]) for name in by_name))


def _report(name: str, is_in_force: bool, problem: str) -> EnforcerReport:
    is_experimental = name not in _PROVEN
    reason = problem
    if not is_in_force and not problem:
        how = f"ask for it with --enforcer {name}"
        reason = f"no run on hardware is recorded; {how}" if is_experimental else f"not asked for; {how}"
    return EnforcerReport(name, is_in_force, not problem, is_experimental, reason)


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

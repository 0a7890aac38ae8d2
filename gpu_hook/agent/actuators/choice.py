"""Which actuators are in force on this node, and why the others are not."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .base import NO_BITS, Actuator, ActuatorError, KernelCompute, Setting

ACTUATORS = ("pacing", "stream-priority", "mps", "green-contexts")
AUTO = ("pacing",)  # the others are opt-in


@dataclass(frozen=True)
class ActuatorReport:
    """One line of the status. ``reason``: why it is not in force; ``warning``: what to know while it is."""

    name: str
    in_force: bool
    available: bool
    experimental: bool
    reason: str
    warning: str


@dataclass(frozen=True)
class ChosenActuators:
    """Those in force; what they want of one kernel, put together."""

    in_force: tuple[Actuator, ...]
    reports: tuple[ActuatorReport, ...]

    @property
    def paces(self) -> bool:
        """Whether a controller's orders are to reach the hooks."""
        return "pacing" in self.names

    @property
    def runs_side_by_side(self) -> bool:
        """Whether work of several processes may be on a device at once; else it has it in slices of time."""
        return "mps" in self.names

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(actuator.name for actuator in self.in_force)

    def setting(self, kernel: KernelCompute) -> Setting:
        bits, percents, environment = NO_BITS, (0,) * len(kernel.parts), dict[str, str]()
        for wanted in (actuator.setting(kernel) for actuator in self.in_force):
            bits |= wanted.bits
            percents = wanted.sm_percents or percents
            environment |= wanted.environment
        return Setting(bits, percents, environment)

    def environment(self, kernel: KernelCompute) -> Mapping[str, str]:
        return self.setting(kernel).environment

    def misfits(self, kernel: KernelCompute, pids: Sequence[int]) -> tuple[str, ...]:
        return tuple(text for actuator in self.in_force for text in actuator.misfits(kernel, pids))


def read_actuators(text: str) -> tuple[str, ...]:
    """The value of ``--compute-actuators``. Called by argparse."""
    names = tuple(part.strip() for part in text.split(","))
    if names == ("auto",):
        return AUTO
    unknown = [name for name in names if name not in ACTUATORS]
    if unknown or len(set(names)) != len(names):
        what = f"no actuator {unknown[0]!r}" if unknown else "one of them twice"
        raise argparse.ArgumentTypeError(
            f"asked {text!r}, found {what}; ask for auto, or for some of {','.join(ACTUATORS)}"
        )
    return names


def choose_actuators(asked: Sequence[str], candidates: Sequence[Actuator]) -> ChosenActuators:
    """Raises ActuatorError when one that was asked for is not there."""
    problems = {candidate.name: candidate.unavailable() for candidate in candidates}
    missing = next((name for name in asked if problems[name]), None)
    if missing is not None:
        raise ActuatorError(f"asked --compute-actuators {missing}; this node has it not: {problems[missing]}")
    return ChosenActuators(
        tuple(candidate for candidate in candidates if candidate.name in asked),
        tuple(_report(candidate, candidate.name in asked, problems[candidate.name]) for candidate in candidates),
    )


def _report(candidate: Actuator, is_in_force: bool, problem: str) -> ActuatorReport:
    reason = problem
    if not is_in_force and not problem:
        why = "no run on hardware is recorded" if candidate.is_experimental else "not asked for"
        reason = f"{why}; ask for it with --compute-actuators …,{candidate.name}"
    return ActuatorReport(
        name=candidate.name,
        in_force=is_in_force,
        available=not problem,
        experimental=candidate.is_experimental,
        reason=reason,
        warning=candidate.warning if is_in_force else "",
    )

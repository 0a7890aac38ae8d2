"""The options of the agent for actuators, and the choice of those in force on this node."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.devices.mps_daemon import default_pipe_directory

from .actuation import ActuatorReport, ChosenActuators
from .base import Actuator, ActuatorError

ACTUATORS = ("pacing", "mps")
AUTO = ("pacing",)  # the other one is opt-in


@dataclass(frozen=True)
class ActuatorSettings:
    """The actuator options.

    ``mps_folder`` holds a pipe directory of a control daemon for each class.
    """

    asked: tuple[str, ...] = AUTO
    mps_folder: Path = field(default_factory=default_pipe_directory)


def add_actuator_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--compute-actuators",
        type=read_actuators,
        default=AUTO,
        metavar="auto|NAME,…",
        help=f"what acts on kernels' compute: some of {', '.join(ACTUATORS)}; mps is experimental "
        "(default auto: pacing)",
    )
    parser.add_argument(
        "--mps-folder",
        type=Path,
        metavar="DIR",
        help="for --compute-actuators mps: DIR/production and DIR/opportunistic are the pipe directories of a control "
        "daemon each; a class without one goes without MPS (default: CUDA_MPS_PIPE_DIRECTORY, or /tmp/nvidia-mps)",
    )


def read_actuator_settings(options: argparse.Namespace) -> ActuatorSettings:
    folder: Path | None = options.mps_folder
    if folder is None:
        return ActuatorSettings(options.compute_actuators)
    return ActuatorSettings(options.compute_actuators, Path(os.path.abspath(folder)))


def read_actuators(text: str) -> tuple[str, ...]:
    """Return the value of ``--compute-actuators``. Called by argparse."""
    names = tuple(part.strip() for part in text.split(","))
    if names == ("auto",):
        return AUTO
    unknown = [name for name in names if name not in ACTUATORS]
    if unknown or len(set(names)) != len(names):
        what = f"no actuator {unknown[0]!r}" if unknown else "one of them twice"
        raise argparse.ArgumentTypeError(f"{text!r} is not valid: {what}. Use auto, or some of {','.join(ACTUATORS)}")
    return names


def choose_actuators(asked: Sequence[str], candidates: Sequence[Actuator]) -> ChosenActuators:
    """Return the requested actuators.

    Raises ActuatorError when a requested one is not available.
    """
    problems = {candidate.name: candidate.unavailable() for candidate in candidates}
    missing = next((name for name in asked if problems[name]), None)
    if missing is not None:
        raise ActuatorError(
            f"Requested --compute-actuators {missing}, but this node does not have it: "
            f"{problems[missing]}. Choose another, or auto"
        )
    return ChosenActuators(
        tuple(candidate for candidate in candidates if candidate.name in asked),
        tuple(_report(candidate, candidate.name in asked, problems[candidate.name]) for candidate in candidates),
    )


def _report(candidate: Actuator, is_in_force: bool, problem: str) -> ActuatorReport:
    reason = problem
    if not is_in_force and not problem:
        why = "no run on hardware is recorded" if candidate.is_experimental else "not requested"
        reason = f"{why}; request it with --compute-actuators …,{candidate.name}"
    return ActuatorReport(
        name=candidate.name,
        in_force=is_in_force,
        available=not problem,
        experimental=candidate.is_experimental,
        reason=reason,
        warning=candidate.warning if is_in_force else "",
    )

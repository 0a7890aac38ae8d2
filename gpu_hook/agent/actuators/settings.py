"""What a node agent can be told about actuators: its options, and their values. Read once, like the other settings."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.devices.mps_daemon import default_pipe_directory

from .choice import ACTUATORS, AUTO, read_actuators


@dataclass(frozen=True)
class ActuatorSettings:
    """``mps_folder`` holds a pipe directory of a control daemon for each class."""

    asked: tuple[str, ...] = AUTO
    mps_folder: Path = field(default_factory=default_pipe_directory)


def add_actuator_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--compute-actuators",
        type=read_actuators,
        default=AUTO,
        metavar="auto|NAME,…",
        help=f"what acts on kernels' compute: some of {', '.join(ACTUATORS)}; mps and green-contexts are experimental "
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

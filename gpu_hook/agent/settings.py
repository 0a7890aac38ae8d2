"""The options of the node agent. Read once at its start; nothing here changes while it runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.actuators.choice import (
    ActuatorSettings,
    add_actuator_arguments,
    read_actuator_settings,
)
from jupyter_aliquot.gpu_hook.agent.compute.settings import (
    ComputeSettings,
    add_compute_arguments,
    read_compute_settings,
)
from jupyter_aliquot.gpu_hook.agent.devices.devices import DEADLINE_SECONDS
from jupyter_aliquot.gpu_hook.agent.devices.host_memory import HostMemoryRule
from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import SoftGpuSettings
from jupyter_aliquot.gpu_hook.agent.dialing.settings import (
    GatewayAddress,
    add_dialing_arguments,
    read_dialing_arguments,
)
from jupyter_aliquot.gpu_hook.agent.enforcers.choice import ENFORCERS
from jupyter_aliquot.gpu_hook.agent.kubelet.settings import (
    KubeletSettings,
    add_kubelet_arguments,
    read_kubelet_arguments,
)
from jupyter_aliquot.gpu_hook.agent.scheduling.settings import LeaseSettings, add_lease_arguments, read_lease_settings
from jupyter_aliquot.gpu_hook.agent.swap.settings import SwapSettings, add_swap_arguments, read_swap_settings
from jupyter_aliquot.gpu_hook.agent.trimming.policy import TrimPolicy, add_trim_arguments
from jupyter_aliquot.gpu_hook.base.memory_text import parse_memory
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, find_runtime_dir

# Where this agent runs and writes; a kernel has none of it.
_OWN_PATHS = frozenset({"runtime_dir", "log_file", "exit_when_idle", "gateway", "token_file", "node", "kubelet"})


@dataclass(frozen=True)
class AgentSettings:
    """One value for each option of ``aliquot agent``."""

    runtime: RuntimeDir
    driver: str = "auto"
    softgpu: SoftGpuSettings = field(default_factory=SoftGpuSettings)
    exit_when_idle_seconds: float | None = None
    log_file: Path | None = None
    cdi_dir: Path | None = None
    library_dir: Path | None = None
    enforcer: str = "auto"
    compute: ComputeSettings = field(default_factory=ComputeSettings)
    actuators: ActuatorSettings = field(default_factory=ActuatorSettings)
    context_slack_bytes: int = 1 << 30
    host_memory: HostMemoryRule = field(default_factory=HostMemoryRule)
    swap: SwapSettings = field(default_factory=SwapSettings)
    leases: LeaseSettings = field(default_factory=LeaseSettings)
    trim: TrimPolicy = field(default_factory=TrimPolicy)
    # How long a kernel lives without any holder: after its last process, and after its last connection. A
    # client gives a connection up when a slow agent has not answered for 10 s; it renews its grants on another.
    orphan_seconds: float = 2.0
    reconnect_seconds: float = 10.0
    restart_grace_seconds: float = 10.0
    recall_seconds: float = 0.2
    page_period_seconds: float = 0.05
    device_period_seconds: float = 1.0
    driver_deadline_seconds: float = DEADLINE_SECONDS
    # Option to value, as ``told_options`` gives them, for users who ask what is in force.
    options: Mapping[str, str] = field(default_factory=dict)
    # None: no gateway on another machine.
    gateway: GatewayAddress | None = None
    # Empty: the machine's host name.
    node: str = ""
    # None: no kernels in pods.
    kubelet: KubeletSettings | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the agent, for its own command line and for ``aliquot agent``."""
    parser.add_argument("--runtime-dir", type=Path, help="folder of the agent's sockets (ALIQUOT_RUNTIME_DIR)")
    parser.add_argument(
        "--driver",
        choices=("auto", "nvidia", "softgpu"),
        default="auto",
        help="what lies below: the NVIDIA driver, or the software GPU (default: what is found)",
    )
    software = parser.add_argument_group("software GPU")
    software.add_argument("--softgpu-devices", type=_positive_int, metavar="N", help="devices of the software GPU")
    software.add_argument(
        "--softgpu-memory", type=parse_bytes, metavar="BYTES", help="memory of each, for example 16GiB"
    )
    software.add_argument("--softgpu-sm-count", type=_positive_int, metavar="N", help="multiprocessors of each")
    software.add_argument(
        "--softgpu-link-gbps", type=_positive_float, metavar="X", help="speed of each one's link, GB/s"
    )
    parser.add_argument(
        "--exit-when-idle",
        type=_positive_float,
        metavar="SECONDS",
        help="end after so long without a connection, a kernel and a process",
    )
    _add_memory_rules(parser)
    add_compute_arguments(parser)
    add_actuator_arguments(parser)
    add_lease_arguments(parser, parse_bytes)
    add_trim_arguments(parser)
    add_swap_arguments(parser, parse_bytes)
    _add_container_folders(parser)
    add_dialing_arguments(parser)
    add_kubelet_arguments(parser)
    parser.add_argument("--log-file", type=Path, help="append the log to this file (default: stderr)")


def _add_memory_rules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--enforcer",
        choices=("auto", *ENFORCERS),
        default=AgentSettings.enforcer,
        help="what keeps kernels within their memory; driver and mps are experimental (default auto: the hook)",
    )
    parser.add_argument(
        "--host-memory-fraction",
        type=_fraction,
        default=HostMemoryRule.fraction,
        metavar="X",
        help="part of the machine's memory to be page-locked, shared out by GPU share; 0: no limit (default 0.5)",
    )
    parser.add_argument(
        "--host-memory-floor",
        type=parse_bytes,
        default=HostMemoryRule.floor_bytes,
        metavar="BYTES",
        help="page-locked memory that every kernel may have, however small its share (default 1GiB)",
    )
    advanced = parser.add_argument_group("advanced: memory")
    advanced.add_argument(
        "--context-slack",
        type=parse_bytes,
        default=AgentSettings.context_slack_bytes,
        metavar="BYTES",
        help="what a process may hold of a device beside what its hook charged, for its context (default 1GiB)",
    )


def _add_container_folders(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cdi-dir",
        type=Path,
        metavar="DIR",
        help="write CDI specs of the hook and the software GPU here, for container engines (usually /etc/cdi)",
    )
    parser.add_argument(
        "--library-dir",
        type=Path,
        metavar="DIR",
        help="give kernels copies of the libraries in this folder, which the engines' host has at the same path",
    )


def read_arguments(arguments: Sequence[str] | None = None) -> AgentSettings:
    """Parse a command line; ends the program with a usage message when it is wrong."""
    parser = argparse.ArgumentParser(prog="aliquot agent", description="The node agent: one per machine.")
    add_arguments(parser)
    try:
        return settings_from(parser.parse_args(arguments))
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))


def settings_from(options: argparse.Namespace) -> AgentSettings:
    """Return the settings from the parsed options of ``add_arguments``."""
    folder: Path | None = options.runtime_dir
    return AgentSettings(
        runtime=find_runtime_dir() if folder is None else RuntimeDir(Path(os.path.abspath(folder))),
        driver=options.driver,
        softgpu=SoftGpuSettings(
            devices=options.softgpu_devices,
            memory_bytes=options.softgpu_memory,
            sm_count=options.softgpu_sm_count,
            link_gbps=options.softgpu_link_gbps,
        ),
        exit_when_idle_seconds=options.exit_when_idle,
        log_file=options.log_file,
        cdi_dir=_absolute(options.cdi_dir),
        library_dir=_absolute(options.library_dir),
        enforcer=options.enforcer,
        compute=read_compute_settings(options),
        actuators=read_actuator_settings(options),
        context_slack_bytes=options.context_slack,
        host_memory=HostMemoryRule(options.host_memory_fraction, options.host_memory_floor),
        trim=TrimPolicy(options.trim_after),
        swap=read_swap_settings(options, _absolute(options.swap_spill_dir)),
        leases=read_lease_settings(options),
        options=told_options(options),
        gateway=read_dialing_arguments(options),
        node=options.node or "",
        kubelet=read_kubelet_arguments(options),
    )


def told_options(options: argparse.Namespace) -> dict[str, str]:
    """Return the values of this namespace, by the options' names; empty where none is set.

    Its own paths are left out.
    """
    return {
        "--" + name.replace("_", "-"): _told(value) for name, value in vars(options).items() if name not in _OWN_PATHS
    }


def _told(value: object) -> str:
    """Return a value as a command line has it."""
    if isinstance(value, tuple):
        return ",".join(map(_told, value))
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _absolute(folder: Path | None) -> Path | None:
    return None if folder is None else Path(os.path.abspath(folder))


def parse_bytes(text: str) -> int:
    """Parse an amount of memory above 0, as `parse_memory` does."""
    try:
        amount = parse_memory(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if amount < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid. Use an amount of memory above 0")
    return amount


def _positive_int(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid. Use a whole number from 1 on")
    return int(text)


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid. Use a number from 0 to 1")
    return value


def _positive_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not valid. Use a number above 0")
    return value

"""What every runtime can do with a kernel's process. The runtime is the record: what runs is found by asking it.

Values and one protocol: nothing here starts or looks at a process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from jupyter_aliquot.provisioner.containers.plan import ContainerLimits, ContainerPlan
from jupyter_aliquot.provisioner.launch_spec import LaunchSpec
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord
from jupyter_aliquot.provisioner.resources import Grant, KernelProcess
from jupyter_aliquot.provisioner.terminations import ProcessEnd

from .stdio import PipeEnds

# The exit status of a process that nobody could wait for.
UNKNOWN_EXIT_STATUS = 255


@dataclass(frozen=True)
class Launch:
    """All that a runtime may need for one start. ``streams`` are Popen's further arguments, such as stderr.

    ``relay`` None: nothing stands before the kernel, which binds what its connection file says.
    """

    spec: LaunchSpec
    streams: Mapping[str, Any] = field(default_factory=dict)
    grant: Grant | None = None
    container: ContainerPlan | None = None
    relay: RelayRecord | None = None


class Runtime(Protocol):
    """Where kernels run. Each method may be called again after a failure, and from one event loop after another."""

    async def create(self, launch: Launch) -> KernelProcess:
        """Start it. Raises LaunchError; nothing is left behind then."""

    async def signal(self, process: KernelProcess, signal_number: int) -> None:
        """Signal the whole process group; nothing once the process has ended."""

    async def poll(self, process: KernelProcess) -> int | None:
        """None while it runs, else its exit status. Cheap: called every few seconds for each kernel."""

    async def wait(self, process: KernelProcess) -> int:
        """Wait for its end and give the exit status."""

    async def ending(self, process: KernelProcess) -> ProcessEnd | None:
        """How it ended; None while it runs. Stays known until remove, and to this object after it."""

    def pipes(self, process: KernelProcess) -> PipeEnds:
        """What a caller that asked for pipes reads from and writes to; without any where nobody asked."""

    async def resize(self, process: KernelProcess, limits: ContainerLimits) -> str:
        """Other limits of the host for a process that runs. Tells what could not be changed, in words; else empty."""

    async def remove(self, process: KernelProcess) -> None:
        """Kill what is left of it, and forget it."""

    async def list(self) -> tuple[KernelProcess, ...]:
        """The kernels that run here now, whoever started them."""


def exit_status(end: ProcessEnd) -> int:
    """As Popen says it: the exit code, or the negative signal."""
    if end.signal is not None:
        return -end.signal
    return UNKNOWN_EXIT_STATUS if end.exit_code is None else end.exit_code

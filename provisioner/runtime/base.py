"""The operations that every runtime has on a kernel's process. The runtime is the record.

Callers find what runs by asking the runtime. This module has values and one protocol; it neither
starts nor looks at a process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.containers.plan import ContainerLimits, ContainerPlan
from jupyter_aliquot.provisioner.launch_spec import LaunchSpec
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord, RelayRequest
from jupyter_aliquot.provisioner.resources import Grant, KernelProcess
from jupyter_aliquot.provisioner.terminations import ProcessEnd

from .stdio import PipeEnds

# The exit status of a process that no caller could wait for.
UNKNOWN_EXIT_STATUS = 255


async def _nothing() -> None:
    """Return at once."""


@dataclass(frozen=True)
class Launch:
    """The arguments of one start. ``streams`` are Popen's further arguments, such as stderr.

    ``relay`` None: nothing stands before the kernel, which binds the ports of its connection file. A relay that
    starts meanwhile has its ``relay_request``, and is there after ``until_relay``, which raises LaunchError.
    """

    spec: LaunchSpec
    streams: Mapping[str, Any] = field(default_factory=dict)
    grant: Grant | None = None
    container: ContainerPlan | None = None
    relay: RelayRecord | None = None
    relay_request: RelayRequest | None = None
    until_relay: Callable[[], Awaitable[None]] = _nothing


class Runtime(Protocol):
    """A way to run kernels.

    Callers may call each method again after a failure, and from one event loop after another.
    """

    async def create(self, launch: Launch) -> KernelProcess:
        """Start the kernel; a failure leaves nothing behind. Raises LaunchError."""

    async def signal(self, process: KernelProcess, signal_number: int) -> None:
        """Signal the whole process group; do nothing once the process has ended."""

    async def poll(self, process: KernelProcess) -> int | None:
        """Return the exit status; None while the process runs.

        Cheap: called every few seconds for each kernel.
        """

    async def wait(self, process: KernelProcess) -> int:
        """Wait for the process's end and return its exit status."""

    async def ending(self, process: KernelProcess) -> ProcessEnd | None:
        """Return how the process ended; None while it runs.

        The answer stays known until remove, and to this object after it.
        """

    def pipes(self, process: KernelProcess) -> PipeEnds:
        """Return the pipes for a caller that asked for pipes; empty if it asked for none."""

    async def resize(self, process: KernelProcess, limits: ContainerLimits) -> str:
        """Change the host's limits for a running process.

        Returns in words what could not be changed; else an empty string.
        """

    async def remove(self, process: KernelProcess) -> None:
        """Kill what is left of the process, and forget it."""

    async def list(self) -> tuple[KernelProcess, ...]:
        """Return the kernels that run here now, whichever program started them."""


@dataclass(frozen=True)
class FoundContainer:
    """A kernel's container or pod that is there, running or ended."""

    process: KernelProcess
    labels: Mapping[str, str]
    is_running: bool


class Containers(Runtime, Protocol):
    """A runtime of kernels in containers, of which a gateway makes one for all its kernels."""

    def waiting_reason(self, kernel_id: str) -> str | None:
        """Return what a start waits for, such as its image; None if it does not wait."""

    def withdraw(self, kernel_id: str) -> bool:
        """Give up a start that waits, and return whether one did; ``create`` then raises WithdrawnError."""

    async def ensure_relay_host(self, runtime: RuntimeDir) -> None:
        """Make sure that the relay host runs, if the configuration says where. Raises LaunchError, EngineError."""

    async def find(self, labels: Mapping[str, str] | None = None) -> tuple[FoundContainer, ...]:
        """Return the containers of kernels with these labels, ended ones too. Raises EngineError."""

    async def revive(self, found: FoundContainer) -> RelayRecord | None:
        """Start a relay for a kernel that runs and has none; None where that can never be.

        Raises EngineError and RelayError where it may be another time.
        """

    def serves(self, node: str) -> bool:
        """Return whether kernels start on the node of this name; the empty name is this machine's."""

    def close(self) -> None:
        """End threads and connections; containers run on. Called in a thread."""


def exit_status(end: ProcessEnd) -> int:
    """Return the exit status as Popen does: the exit code, or the negative signal."""
    if end.signal is not None:
        return -end.signal
    return UNKNOWN_EXIT_STATUS if end.exit_code is None else end.exit_code

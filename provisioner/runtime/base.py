"""What every runtime can do with a kernel's process. The runtime is the record: what runs is found by asking it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from aliquot.provisioner.launch_spec import LaunchSpec


@dataclass(frozen=True)
class KernelProcess:
    """One kernel's process. A pid comes back after its end, so it is only itself with its start time."""

    kernel_id: str
    pid: int
    start_time_ticks: int
    process_group: int


class Runtime(Protocol):
    """Where kernels run. Each method may be called again after a failure."""

    async def create(self, spec: LaunchSpec, streams: Mapping[str, Any]) -> KernelProcess:
        """Start it. ``streams`` are Popen's further arguments, such as stderr. Raises LaunchError."""

    async def signal(self, process: KernelProcess, signal_number: int) -> None:
        """Signal the whole process group; nothing once the process has ended."""

    async def poll(self, process: KernelProcess) -> int | None:
        """None while it runs, else its exit status."""

    async def wait(self, process: KernelProcess) -> int:
        """Wait for its end and give the exit status."""

    async def remove(self, process: KernelProcess) -> None:
        """Kill what is left of it, and forget it."""

    async def list(self) -> tuple[KernelProcess, ...]:
        """The kernels that run here now, whoever started them."""

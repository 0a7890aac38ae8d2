"""The command `aliquot capacity`: how many kernels a server carries, and the host memory for more. Asks no server."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table
from traitlets import Integer, Unicode

from jupyter_aliquot.gateway.base.errors import UsageError
from jupyter_aliquot.gateway.cli.commands.base import JSON_FLAG, Command
from jupyter_aliquot.gateway.terminal.tables import console
from jupyter_aliquot.gpu_hook.placement.automatic import AUTO_MOST, Asked, DeviceNeeds, find_overcommit
from jupyter_aliquot.provisioner.resources import Bytes

SIZES = (0.1, 0.25, 0.5, 1.0)
RATIOS = (1.5, 2.0, 3.0, AUTO_MOST)
_MOST_GPUS = 16  # of one kernel, and of one machine that was looked at


@dataclass(frozen=True)
class Capacity:
    """The overcommit that `auto` finds, how many kernels of a size fit, and the copies' memory for other ratios."""

    ratio: float
    reason: str
    kernels: Mapping[float, int]
    copies_bytes: Mapping[float, int]


def capacity(gpus: int, gpu_bytes: int, copies_bytes: int, context_bytes: int) -> Capacity:
    """Return what a node agent finds for devices that are alike.

    Args:
        gpus: How many devices.
        gpu_bytes: The memory of each.
        copies_bytes: The host memory for copies of swapped-out kernels.
        context_bytes: The memory of a context, which stays on the device.
    """
    devices = [DeviceNeeds(f"GPU-{index}", gpu_bytes, context_bytes) for index in range(gpus)]
    found = find_overcommit(Asked(), devices, copies_bytes)
    ratio = found.rule.most_of("GPU-0")
    # A kernel of at most one GPU is on one, so the rest of each GPU's ratio holds none.
    kernels = {size: gpus * math.floor(round(ratio * 100) / round(size * 100)) for size in SIZES}
    total, largest = gpus * gpu_bytes, gpu_bytes
    copies = {ratio: int(min(ratio * total, (ratio - 1) * total + 2 * largest)) for ratio in RATIOS}
    return Capacity(ratio, found.reasons.get("GPU-0", ""), kernels, copies)


class CapacityCommand(Command):
    """Print one server's capacity."""

    name = "aliquot capacity"
    usage = "aliquot capacity --gpus 4 --gpu-memory 80GiB --host-memory 512GiB [options]"
    description = """Compute how many kernels a server carries, and the host memory that more of them need.
    It computes as the node agent does with --overcommit auto, and asks no server."""
    examples = """
    aliquot capacity --gpus 4 --gpu-memory 80GiB --host-memory 512GiB
    aliquot capacity --gpus 8 --gpu-memory 141GiB --host-memory 2TiB --swap-memory 1536GiB --json
    """
    flags = {**Command.flags, **JSON_FLAG}
    aliases = {
        "gpus": "CapacityCommand.gpus",
        "gpu-memory": "CapacityCommand.gpu_memory",
        "host-memory": "CapacityCommand.host_memory",
        "swap-memory": "CapacityCommand.swap_memory",
        "context": "CapacityCommand.context",
    }
    gpus = Integer(1, help="GPUs of the server.").tag(config=True)
    gpu_memory = Unicode("80GiB", help="Memory of each GPU.").tag(config=True)
    host_memory = Unicode("512GiB", help="Memory of the server.").tag(config=True)
    swap_memory = Unicode("", help="Host memory for copies, the agent's --swap-memory (default: half of it).").tag(
        config=True
    )
    context = Unicode("512MiB", help="Memory of a CUDA context.").tag(config=True)

    def start(self) -> None:
        """Called by Application.start."""
        if not 1 <= self.gpus <= _MOST_GPUS:
            raise UsageError(f"Requested {self.gpus} GPUs, but a server has 1 to {_MOST_GPUS}")
        gpu, host, context = (self._bytes(name) for name in ("gpu_memory", "host_memory", "context"))
        copies = self._bytes("swap_memory") if self.swap_memory else Bytes(host // 2)
        if gpu == 0:
            raise UsageError("--gpu-memory is 0. Write the memory of each GPU, like 80GiB")
        if copies > host:
            raise UsageError(
                f"Requested {copies} for copies (--swap-memory), but the server has {host} (--host-memory)"
            )
        found = capacity(self.gpus, gpu, copies, context)
        if self.json_output:
            print(json.dumps(_report(found, copies), indent=2, ensure_ascii=False))
            return
        screen = console()
        screen.print(f"{self.gpus} × {gpu} of GPU memory, {host} of host memory, {copies} of it for copies")
        screen.print(f"overcommit: {found.ratio:.2f}" + (f" ({found.reason})" if found.reason else ""), soft_wrap=True)
        screen.print(_counts_table(found))
        screen.print(_memory_table(found, copies, host))

    def _bytes(self, name: str) -> Bytes:
        try:
            return Bytes.parse(getattr(self, name))
        except ValueError as error:
            raise UsageError(f"--{name.replace('_', '-')}: {error}") from None


def _report(found: Capacity, copies: int) -> dict[str, object]:
    return {
        "overcommit": found.ratio,
        "reason": found.reason,
        "copies_bytes": copies,
        "kernels": {f"{size:g}": count for size, count in found.kernels.items()},
        "copies_bytes_by_overcommit": {f"{ratio:g}": need for ratio, need in found.copies_bytes.items()},
    }


def _counts_table(found: Capacity) -> Table:
    table = Table("size", "kernels", title="kernels that fit", title_justify="left")
    for size, count in found.kernels.items():
        table.add_row(f"{size:g} GPU", str(count))
    return table


def _memory_table(found: Capacity, copies: int, host: int) -> Table:
    """Tell the host memory for other ratios, with the same part of it for copies."""
    table = Table("overcommit", "--swap-memory", "host memory", title="memory for more", title_justify="left")
    for ratio, need in found.copies_bytes.items():
        whole = Bytes(need * host // copies) if copies else "–"
        table.add_row(f"{ratio:g}", str(Bytes(need)), str(whole))
    return table

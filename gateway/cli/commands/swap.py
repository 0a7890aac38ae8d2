"""The commands `aliquot swap` and `aliquot restore`: move a kernel's memory to the host, and back."""

from __future__ import annotations

from typing import Any

from traitlets import Float

from jupyter_aliquot.gateway.base.errors import CommandError, UsageError
from jupyter_aliquot.gateway.status.residency import is_swap_out_text, state_text
from jupyter_aliquot.gateway.terminal.kernel_client import RunningKernel
from jupyter_aliquot.provisioner.resources import Bytes

from .base import WHICH_GATEWAY
from .kernel_command import KernelCommand, poll_until, title

_MOST_SECONDS = 86400.0
_OUT = ("swapped_out", "checkpointed")
_SWAP_SECONDS = 130.0  # longer than the node agent tries: after that the move cannot come any more


class MoveCommand(KernelCommand):
    """The base of both: the time that they wait for the move."""

    aliases = {**KernelCommand.aliases, "seconds": "MoveCommand.seconds"}
    seconds = Float(60.0, help="How long to wait for the move; 0 to return at once (default 60).").tag(config=True)

    def one_kernel(self) -> RunningKernel:
        """Find the kernel that the command line names. Raises AliquotError."""
        if not 0 <= self.seconds <= _MOST_SECONDS:
            raise UsageError(f"--seconds {self.seconds:g} is out of range. Use a number from 0 to {_MOST_SECONDS:g}")
        return self.kernel(self.words(1, 1)[0])


class SwapCommand(MoveCommand):
    """Send the request to the gateway, or to the node agent where no gateway runs."""

    aliases = {**MoveCommand.aliases, "seconds": "SwapCommand.seconds"}
    seconds = Float(
        _SWAP_SECONDS,
        help="How long to wait for the move, which the node agent tries for 120 s; 0 to return at once (default 130).",
    ).tag(config=True)
    name = "aliquot swap"
    usage = "aliquot swap KERNEL [options]"
    description = (
        """Move a kernel's memory from its GPU to the host's RAM, now. It comes back with the next cell.

    KERNEL is its id, the first letters of it, or its notebook's name. Without this, idle kernels are swapped out when
    another kernel needs the memory.
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot swap train.ipynb
    """

    def start(self) -> None:
        """Called by Application.start."""
        kernel = self.one_kernel()
        kernel.move("swap-out")
        waits: list[str] = []  # what the request waited for, as far as the reports tell

        def is_moved(report: dict[str, Any]) -> bool:
            if is_swap_out_text(report["reason"]):
                waits[:] = [report["reason"]]
            return report["state"] in _OUT

        report, is_out = poll_until(kernel, is_moved, self.seconds)
        if not is_out and self.seconds:
            why = why_not_moved(report, *waits)
            raise CommandError(f"{title(report)} is still on its GPU after {self.seconds:g} s{why}")
        moved = Bytes((report["residency"] or {}).get("swapped_bytes", 0))
        self.tell(
            report, f"{title(report)}: {moved} in host memory" if is_out else f"{title(report)} is being swapped out"
        )


class RestoreCommand(MoveCommand):
    """Send the request to the gateway, or to the node agent where no gateway runs."""

    name = "aliquot restore"
    usage = "aliquot restore KERNEL [options]"
    description = (
        """Move a kernel's memory back to its GPU, ahead of its next cell.

    KERNEL is its id, the first letters of it, or its notebook's name. Where there is no room the kernel waits for it.
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot restore train.ipynb
    """

    def start(self) -> None:
        """Called by Application.start."""
        kernel = self.one_kernel()
        kernel.move("restore")
        report, is_in = poll_until(kernel, lambda report: report["state"] == "on_gpu", self.seconds)
        if not is_in and self.seconds:
            raise CommandError(
                f"{title(report)} is not back on its GPU after {self.seconds:g} s{why_not_moved(report)}"
            )
        self.tell(report, f"{title(report)} is on GPU" if is_in else f"{title(report)} is being restored")


def why_not_moved(report: dict[str, Any], waited: str = "") -> str:
    """Return the end of the error about a kernel that did not move.

    ``waited`` is the last reason by which the requested swap-out waited; its end leaves none in the report.
    """
    residency = report["residency"]
    if residency is None:
        return ": its node agent does not report swaps"
    if waited and not report["reason"]:
        return f". Its request ended with a new cell, or after 120 s; until then it {waited}"
    why = report["reason"] or residency["refusal"]
    return f": {why}" if why else f"; it is {state_text(report['state'])}"

"""The command `aliquot resize`: another size or priority for a running kernel."""

from __future__ import annotations

from typing import Any

from traitlets import Bool, Unicode

from jupyter_aliquot.gateway.base.errors import UsageError
from jupyter_aliquot.gateway.terminal.tables import size_text
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, WorkloadClass

from .base import WHICH_GATEWAY
from .kernel_command import KernelCommand, title

_SHARE = "share"
_PRIORITIES = tuple(one.priority for one in WorkloadClass)


class ResizeCommand(KernelCommand):
    """Send the change to the gateway, or to the node agent where no gateway runs."""

    name = "aliquot resize"
    usage = "aliquot resize KERNEL [GPUS] [options]"
    description = (
        """Change the size or the priority of a running kernel, without a restart.

    KERNEL is its id, the first letters of it, or its notebook's name. A kernel shrinks at once. One that is to grow
    is queued where there is no room, and runs on meanwhile.
    """
        + WHICH_GATEWAY
    )
    examples = """
    aliquot resize train.ipynb 0.5
    aliquot resize train.ipynb --memory 12GiB --priority low
    aliquot resize train.ipynb --withdraw
    """
    flags = {
        **KernelCommand.flags,
        "withdraw": ({"ResizeCommand": {"withdraw": True}}, "Withdraw a change that is queued."),
    }
    aliases = {
        **KernelCommand.aliases,
        "memory": "ResizeCommand.memory",
        "priority": "ResizeCommand.priority",
    }
    memory = Unicode("", help="Memory limit, as 12GiB; 'share' for the share's part of each device.").tag(config=True)
    priority = Unicode("", help="normal or low.").tag(config=True)
    withdraw = Bool(False, help="Withdraw a change that is queued.").tag(config=True)

    def start(self) -> None:
        """Called by Application.start."""
        words = self.words(1, 2)
        body = self._body(words[1:])
        if self.priority and self.priority not in _PRIORITIES:
            raise UsageError(f"--priority {self.priority!r} is not a priority. Use {' or '.join(_PRIORITIES)}")
        if bool(body) == self.withdraw:
            raise UsageError(f"Name a change: GPUS, --memory, --priority, or --withdraw alone. Usage: {self.usage}")
        kernel = self.kernel(words[0])
        if self.withdraw:
            kernel.withdraw_resize()
            report = kernel.report()
            self.tell(report, f"{title(report)} is not queued any more, and keeps {_size(report)}")
            return
        report = kernel.resize(body)
        waits = report["resize"]
        text = f"{title(report)} has {_size(report)}"
        if waits:
            text = f"{title(report)} runs on with {_size(report)}; {waits['reason']}"
        elif report["over_limit_bytes"]:
            more = Bytes(report["over_limit_bytes"])
            text += f"; it uses {more} more with its contexts, and its allocations fail until it uses less"
        self.tell(report, text)

    def _memory_limit(self) -> str:
        try:
            if Bytes.parse(self.memory) <= 0:
                raise ValueError(f"{self.memory!r} is no limit. Use an amount above 0")
        except ValueError as error:
            raise UsageError(f"--memory {error}, or '{_SHARE}'") from None
        return self.memory

    def _body(self, words: list[str]) -> dict[str, Any]:
        body: dict[str, Any] = {}
        for word in words:
            body["gpus"] = _gpus(word)
        if self.memory:
            body["memory"] = None if self.memory == _SHARE else self._memory_limit()
        if self.priority:
            body["priority"] = self.priority
        return body


def _gpus(word: str) -> float:
    """Read a number of GPUs. Raises UsageError."""
    try:
        share = GpuShare.parse(word)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if not share.hundredths:
        raise UsageError(
            "Requested 0 GPUs, but a kernel has 0.01 or more. To free its GPU memory, run aliquot swap KERNEL"
        )
    return float(share)


def _size(report: dict[str, Any]) -> str:
    size = size_text(round(report["gpus"] * 100), report["priority"])
    return f"{size}, {Bytes(report['memory_limit_bytes'])}"

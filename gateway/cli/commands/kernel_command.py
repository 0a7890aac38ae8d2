"""The base of the commands that change one running kernel: its name, and the gateway that has it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from traitlets import Unicode

from jupyter_aliquot.gateway.base.errors import UsageError
from jupyter_aliquot.gateway.terminal.kernel_client import RunningKernel
from jupyter_aliquot.gateway.terminal.rest_client import Gateways
from jupyter_aliquot.gateway.terminal.tables import printable

from .base import JSON_FLAG, Command

_LOOK_SECONDS = 0.2


class KernelCommand(Command):
    """A command with the name of a running kernel as its first word."""

    accepts_arguments = True
    flags = {**Command.flags, **JSON_FLAG}
    aliases = {"runtime-dir": "KernelCommand.runtime_dir"}
    runtime_dir = Unicode("", help="Folder of the node agent's sockets (default: the usual one).").tag(config=True)

    def words(self, least: int, most: int) -> list[str]:
        """Return the words that are no options. Raises UsageError for too few or too many."""
        if not least <= len(self.extra_args) <= most:
            what = "name a kernel" if not self.extra_args else f"{' '.join(self.extra_args[most:])!r} was not expected"
            raise UsageError(f"{what}; usage: {self.usage} (aliquot status lists the kernels)")
        return list(self.extra_args)

    def kernel(self, word: str, *, takes_ids: bool = False) -> RunningKernel:
        """Find the kernel; with ``takes_ids`` also one without a GPU, by its whole id.

        Raises AliquotError.
        """
        return RunningKernel.find(Gateways.of(self.runtime_dir), word, takes_ids=takes_ids)

    def tell(self, report: dict[str, Any], text: str) -> None:
        """Print one line for people, or with --json the kernel's report."""
        print(json.dumps(report, indent=2, ensure_ascii=False) if self.json_output else text)


def title(report: dict[str, Any]) -> str:
    """Return the label of a kernel, or the first letters of its id."""
    return printable(str(report["label"] or report["id"][:8]))


def poll_until(
    kernel: RunningKernel, is_done: Callable[[dict[str, Any]], bool], seconds: float
) -> tuple[dict[str, Any], bool]:
    """Poll the kernel. Returns its last report, and whether ``is_done`` held within ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        report = kernel.report()
        if is_done(report) or time.monotonic() >= deadline:
            return report, is_done(report)
        time.sleep(_LOOK_SECONDS)

"""Read and change a kernel's residency through the node agent. The module measures nothing."""

from __future__ import annotations

import time
from typing import Any

from subjects import AKernel

from jupyter_aliquot.gpu_hook.client import client

PATIENCE_SECONDS = 60.0


class Residency:
    """The residency of a kernel whose only process idles between questions."""

    def __init__(self, kernel: AKernel) -> None:
        self._runtime = kernel.runtime
        self._kernel_id = kernel.kernel_id

    def swap_out(self) -> dict[str, float]:
        """Report to the agent that nothing is open in the kernel, and swap it out once it is idle.

        Returns the move's phases in seconds.
        """
        self._query("activity", open=0, work=0, since=None, input=None)
        before = self._report()["swaps_out"]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._report()["state"] != "swapped" or self._report()["swaps_out"] == before:
            try:
                self._query("swap_out")
            except client.AgentClientError as error:
                if time.monotonic() > deadline:
                    raise SystemExit(f"Requested to swap the kernel out, but the agent refused: {error}") from error
            if time.monotonic() > deadline:
                raise SystemExit(f"the kernel was not swapped out: {self._report()}")
            time.sleep(0.1)
        return self.last("last_out")

    def last(self, way: str) -> dict[str, Any]:
        """Return the phases of the last move in that direction."""
        move: dict[str, Any] = self._report()[way]
        return move

    def _query(self, op: str, **fields: Any) -> None:
        client.query(op, runtime_dir=self._runtime, kernel_id=self._kernel_id, **fields)

    def _report(self) -> dict[str, Any]:
        status = client.query("status", runtime_dir=self._runtime)
        return next(dict(one["residency"]) for one in status["kernels"] if one["kernel_id"] == self._kernel_id)

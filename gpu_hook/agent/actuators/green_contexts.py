"""CUDA green contexts: a capped kernel's new streams run on its part of each device's multiprocessors. Experimental.

The hook makes them. It is a ceiling in space: two such kernels may get the same multiprocessors.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

from jupyter_aliquot.gpu_hook.placement.placement import WHOLE
from jupyter_aliquot.gpu_hook.protocol.codec import Actuators

from .base import KernelCompute, Setting

_NEWEST_CALL = "cuGreenCtxStreamCreate"


class GreenContexts:
    """Implements ``base.Actuator``. Streams that a program has already stay where they are."""

    name = "green-contexts"
    is_experimental = True
    warning = ""

    def __init__(self, library: Path) -> None:
        self._library = library

    def unavailable(self) -> str:
        try:
            getattr(ctypes.CDLL(os.fspath(self._library)), _NEWEST_CALL)
        except (OSError, AttributeError):
            return f"the driver has no {_NEWEST_CALL}; it came with CUDA 12.5"
        return ""

    def setting(self, kernel: KernelCompute) -> Setting:
        """Only a cap is held in space: whoever has none may use all of a device that nobody else wants."""
        percents = tuple(part.hundredths if kernel.is_capped else WHOLE for part in kernel.parts)
        return Setting(Actuators.GREEN_CONTEXT, tuple(percent % WHOLE for percent in percents))

    def misfits(self, kernel: KernelCompute, pids: Sequence[int]) -> tuple[str, ...]:
        return ()

"""Stream priorities: the hook puts a program's new streams into the half of the range that is its class's.

A device heeds them among the streams of one process, and of one MPS server: under time slices alone they order nothing
between kernels. So nothing but a request has them in force.
"""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_aliquot.gpu_hook.protocol.codec import Actuators

from .base import KernelCompute, Setting


class StreamPriority:
    """Implements ``base.Actuator``. Streams that a program has already keep their priority."""

    name = "stream-priority"
    is_experimental = False
    warning = ""

    def unavailable(self) -> str:
        return ""

    def setting(self, kernel: KernelCompute) -> Setting:
        return Setting(bits=Actuators.STREAM_PRIORITY)

    def misfits(self, kernel: KernelCompute, pids: Sequence[int]) -> tuple[str, ...]:
        return ()

"""No control: everything passes, and is measured. What a time-slicing GPU does by itself."""

from __future__ import annotations

from aliquot.gpu_hook.agent.compute.views import MEASURED, MILLISECOND, DeviceLook, Verdict


class NoControl:
    """Called by whoever steps controllers: the agent's loop, the plant."""

    def step(self, look: DeviceLook) -> Verdict:
        return Verdict({process.key: MEASURED for process in look.processes}, look_after=50 * MILLISECOND)

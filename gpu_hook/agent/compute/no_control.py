"""Leave the device to the driver's time slices: every launch passes, and is measured."""

from __future__ import annotations

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, DeviceLook, Verdict
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import MEASURED


class NoControl:
    """Implements views.Controller."""

    def step(self, look: DeviceLook) -> Verdict:
        return Verdict({process.key: MEASURED for process in look.processes}, look_after=50 * MILLISECOND)

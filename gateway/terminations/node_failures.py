"""Cordons a node on which the starts of several kernels failed in a short time by its own fault."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.nodes.cordons import Cordons
from jupyter_aliquot.provisioner.errors import AliquotError

from .failures import Failure

# So many kernels within so long. A single broken notebook is one kernel, however often it is started.
MOST_FAILURES = 3
WINDOW_SECONDS = 600.0


class NodeFailures:
    """The failed starts that speak against the node of this gateway's kernels; ``node`` returns its name."""

    def __init__(self, cordons: Cordons, node: Callable[[], str], clock: Clock, log: logging.Logger) -> None:
        self._cordons = cordons
        self._node = node
        self._clock = clock
        self._log = log
        self._recent: deque[tuple[float, str, Failure]] = deque(maxlen=100)
        self._cordoning: set[asyncio.Task[None]] = set()

    def note(self, kernel_id: str, failure: Failure) -> None:
        """Note a kernel whose start failed by the node's fault. Called by the recorder of ends."""
        now, node = self._clock.now(), self._node()
        self._recent.append((now, kernel_id, failure))
        recent = [one for one in self._recent if now - one[0] <= WINDOW_SECONDS]
        kernels = {kernel_id for _, kernel_id, _ in recent}
        if len(kernels) < MOST_FAILURES or not node or self._cordons.of(node) is not None:
            return
        self._recent.clear()  # an administrator who uncordons it gets the whole count again
        kinds = ", ".join(sorted({one.value for _, _, one in recent}))
        reason = f"{len(kernels)} kernels could not start there within {WINDOW_SECONDS / 60:g} min ({kinds})"
        task = asyncio.get_running_loop().create_task(self._cordon(node, reason), name="aliquot-cordon")
        self._cordoning.add(task)
        task.add_done_callback(self._cordoning.discard)

    async def _cordon(self, node: str, reason: str) -> None:
        try:
            await self._cordons.cordon(node, "", reason)
        except AliquotError as error:
            self._log.error("node=%s cordon=failed reason=%s", node, error)
        else:
            self._log.error("node=%s cordoned reason=%s", node, reason)

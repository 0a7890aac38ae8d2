"""Keep the enforcer at work: it checks and repairs every kernel's limits again and again.

The enforcer blocks (driver calls, files), so it runs in a thread; its results are kept here, on the
loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.devices.devices import call_in_thread
from jupyter_aliquot.gpu_hook.agent.kernels.kernel import Kernel
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol.codec import Enforcer as EnforcerWord
from jupyter_aliquot.gpu_hook.waiting import within

from .base import EnforcerError, KernelLimits
from .choice import Choice, EnforcerReport

log = logging.getLogger(__name__)

HOLDS, PENDING = "holds", "pending"


@dataclass(frozen=True)
class _Outcome:
    state: str
    drifts: tuple[str, ...] = ()


class Enforcement:
    """The enforcement of this node.

    ``kernels`` are those of the node now. A kernel that is not bound yet has no process to limit:
    it is pending.
    """

    def __init__(
        self,
        choice: Choice,
        kernels: Callable[[], Iterable[Kernel]],
        within_devices: Callable[[Sequence[Part]], tuple[Part, ...]],
    ) -> None:
        self._choice = choice
        self._kernels = kernels
        self._within_devices = within_devices
        self._states: dict[str, str] = {}
        self._drifts: dict[str, int] = {}
        self._wanted = asyncio.Event()

    @property
    def name(self) -> str:
        return self._choice.enforcer.name

    @property
    def word(self) -> EnforcerWord:
        return self._choice.enforcer.word

    @property
    def reports(self) -> tuple[EnforcerReport, ...]:
        return self._choice.reports

    def state_of(self, kernel_id: str) -> str:
        """Return ``holds``, ``pending`` or ``failed: ...``."""
        return self._states.get(kernel_id, HOLDS if self._is_hook else PENDING)

    def drifts_of(self, kernel_id: str) -> int:
        """Return how often a limit differed from its set value."""
        return self._drifts.get(kernel_id, 0)

    def notify(self) -> None:
        """Check the limits soon: a kernel was bound, resized, moved or ended."""
        self._wanted.set()

    async def run(self, period_seconds: float) -> None:
        """Hold every period, and when notified, until cancelled. The hook needs none of it."""
        while not self._is_hook:
            with contextlib.suppress(asyncio.TimeoutError):
                await within(self._wanted.wait(), period_seconds)
            self._wanted.clear()
            try:
                await self.hold()
            except Exception:
                log.exception("event=enforcement_failed")

    async def hold(self) -> None:
        """Check every kernel once.

        A kernel that is moved meanwhile has its limits on the device before, and is checked again.
        """
        kernels = {kernel.kernel_id: kernel for kernel in self._kernels()}
        places = {kernel_id: _devices(kernel) for kernel_id, kernel in kernels.items()}
        wanted = [
            KernelLimits(kernel_id, self._within_devices(kernel.reservation.parts), tuple(kernel.pids))
            for kernel_id, kernel in kernels.items()
            if kernel.pids
        ]
        ended = [kernel_id for kernel_id in self._states if kernel_id not in kernels]
        outcomes = await call_in_thread(lambda: self._hold_all(wanted, ended))
        for kernel_id in ended:
            self._states.pop(kernel_id, None)
            self._drifts.pop(kernel_id, None)
        for kernel_id, outcome in outcomes.items():
            if _devices(kernels[kernel_id]) != places[kernel_id]:
                self.notify()
                continue
            self._note(kernel_id, outcome)
            is_held = outcome.state == HOLDS
            kernels[kernel_id].set_enforcer(self._choice.enforcer.word if is_held else EnforcerWord.HOOK)

    @property
    def _is_hook(self) -> bool:
        return self._choice.enforcer.word is EnforcerWord.HOOK

    def _hold_all(self, wanted: Sequence[KernelLimits], ended: Sequence[str]) -> dict[str, _Outcome]:
        """Hold all limits. Called in a thread."""
        enforcer = self._choice.enforcer
        for kernel_id in ended:
            try:
                enforcer.release(kernel_id)
            except EnforcerError as error:
                log.warning("event=limit_not_removed kernel=%s reason=%r", kernel_id, str(error))
        outcomes = {}
        for limits in wanted:
            try:
                outcomes[limits.kernel_id] = _Outcome(HOLDS, enforcer.hold(limits))
            except EnforcerError as error:
                outcomes[limits.kernel_id] = _Outcome(f"failed: {error}")
            except Exception as error:  # the other kernels' limits are held all the same
                log.exception("event=enforcer_failed kernel=%s", limits.kernel_id)
                outcomes[limits.kernel_id] = _Outcome(f"failed: a defect of the agent ({error!r}); its log says how")
        return outcomes

    def _note(self, kernel_id: str, outcome: _Outcome) -> None:
        for drift in outcome.drifts:
            self._drifts[kernel_id] = self._drifts.get(kernel_id, 0) + 1
            log.warning("event=limit_drifted kernel=%s enforcer=%s found=%r", kernel_id, self.name, drift)
        if self._states.get(kernel_id) != outcome.state:
            level = logging.INFO if outcome.state == HOLDS else logging.ERROR
            log.log(level, "event=enforcement kernel=%s enforcer=%s state=%r", kernel_id, self.name, outcome.state)
        self._states[kernel_id] = outcome.state


def _devices(kernel: Kernel) -> tuple[str, ...]:
    return tuple(part.uuid for part in kernel.reservation.parts)

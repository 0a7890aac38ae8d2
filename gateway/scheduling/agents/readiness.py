"""The readiness of admission: sizes that never fit are known, or will not be known soon, so starts need not wait."""

from __future__ import annotations

import asyncio

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
from jupyter_aliquot.gpu_hook.waiting import until_first


class Readiness:
    """The moment of the agents' first answer, or of their being missed, and in any case after *seconds*."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._at = clock.now() + seconds
        # Whether admission has looked for the own agent; set: it connected, or was not found.
        self.has_looked = False
        self._is_answered = asyncio.Event()

    @property
    def is_come(self) -> bool:
        return self._is_answered.is_set() or self._clock.now() >= self._at

    async def wait(self) -> None:
        """Wait for it."""
        if not self.is_come:
            await until_first(self._is_answered.wait(), self._clock.sleep(self._at - self._clock.now()))

    def note(self, known: LedgerSnapshot, *, is_away: bool) -> None:
        """Note what a cycle came to know; ``is_away``: the own agent is not connected."""
        if (self.has_looked and is_away) or known.node.name or (known.others and known.is_complete):
            self._is_answered.set()

"""The node agent's first word on what the node has.

Until then nobody knows which sizes never fit: starts wait for it.

For a moment at most, and not where the agent was looked for and is not there: that may take as long
as it likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gpu_hook.waiting import end_task

_SECONDS = 10.0


class Agent(Protocol):
    """The node agent, as agent_link.AgentLink gives it."""

    unavailable_since: float | None

    def listen(self, listener: Callable[[], None]) -> None: ...


class Admission(Protocol):
    """Whose cycles ask the agent."""

    def observe(self, observer: Callable[[], None]) -> Callable[[], None]: ...

    def snapshot(self) -> AdmissionSnapshot: ...


class FirstWord:
    """Waited for by who starts kernels, ``seconds`` after it was made at the latest."""

    def __init__(self, agent: Agent, admission: Admission, clock: Clock, seconds: float = _SECONDS) -> None:
        self._agent = agent
        self._admission = admission
        self._clock = clock
        self._until = clock.now() + seconds
        self._has_looked = False
        self._is_over = asyncio.Event()
        agent.listen(self._looked)
        self._stop_observing = admission.observe(self._hear)

    def _looked(self) -> None:
        """The agent came, or was not found."""
        self._has_looked = True

    def _hear(self) -> None:
        """After a cycle: the agent told what there is, or was looked for and does not answer."""
        is_missed = self._has_looked and self._agent.unavailable_since is not None
        if not self._is_over.is_set() and (is_missed or self._admission.snapshot().node.name):
            self._is_over.set()
            self._stop_observing()

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for it any more."""
        return self._is_over.is_set() or self._clock.now() >= self._until

    async def wait(self) -> None:
        """Until it was heard, or is not to be expected, or the moment is over."""
        if self.is_over:
            return
        left = self._until - self._clock.now()
        waits = [asyncio.ensure_future(self._is_over.wait()), asyncio.ensure_future(self._clock.sleep(left))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                await end_task(wait)

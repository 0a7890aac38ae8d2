"""Tells cells that wait for GPU memory why and how long: hears the agent, signs, sends. What to say is `waiting`'s."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from .agent_teller import AgentTeller
from .messages import Signer
from .traffic import Traffic
from .waiting import WaitingNotices


class Notices:
    """A chore of the relay's loop. Never writes to a cell that is idle: both are known by the same thread."""

    def __init__(self, traffic: Traffic, signer: Signer, teller: AgentTeller) -> None:
        self._traffic = traffic
        self._signer = signer
        self._waiting = WaitingNotices()
        teller.listen("lease", self._heard, asking="watch")

    def _heard(self, event: Mapping[str, Any] | None) -> None:
        self._waiting.heard(event, time.time())

    def due_in(self) -> float | None:
        """Called by Relay for each turn."""
        if not self._waiting.is_needed:
            return None
        return self._waiting.due_in(self._traffic.tracker.cells, time.time())

    def turn(self) -> None:
        """Called by Relay at the end of each turn."""
        if not self._waiting.is_needed:
            return
        for cell, text in self._waiting.due(self._traffic.tracker.cells, time.time()):
            content = {"name": "stderr", "text": text}
            self._traffic.publish(self._signer.message("stream", content, cell.header))

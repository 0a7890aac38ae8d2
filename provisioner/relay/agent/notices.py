"""Show cells that wait for GPU memory why and how long. `wait_notices` decides what to say.

A line is an output that the relay clears again. The relay forwards all that the kernel shows, so it
knows which cells have shown nothing, and it clears only its own line.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_aliquot.provisioner.relay.server.activity_tracker import RunningCell
from jupyter_aliquot.provisioner.relay.server.agent_notifier import AgentNotifier
from jupyter_aliquot.provisioner.relay.server.forwarder import Forwarder
from jupyter_aliquot.provisioner.relay.wire.messages import CONTENT, PARENT, Signer, read_object

from .wait_notices import WaitingNotices


class Notices:
    """The notices of one kernel, run by the relay's loop.

    They never go to an idle cell: one thread knows both.
    """

    def __init__(self, forwarder: Forwarder, signer: Signer, notifier: AgentNotifier) -> None:
        self._forwarder = forwarder
        self._signer = signer
        self._waiting = WaitingNotices()
        self._shown: bytes = b""  # the parent of the last output: thousands in a row have the same
        notifier.listen("lease", self._heard, asking="watch")

    def _heard(self, event: Mapping[str, Any] | None) -> None:
        self._waiting.heard(event, time.time())

    def passes(self, header: bytes, message: Sequence[Any]) -> None:
        """Clear the relay's line in a cell before the cell's own output.

        Called by Forwarder before it forwards an iopub message of the kernel.
        """
        is_status = b'"status"' in header
        if b'"execute_input"' in header or (is_status and not self._waiting.has_told):
            return
        parent = message[PARENT].bytes
        if is_status:
            if b'"idle"' in message[CONTENT].bytes:
                self._clear(self._waiting.take_back(_msg_id(parent), time.time()))
        elif parent != self._shown:
            self._shown = parent
            self._forwarder.tracker.showed(_msg_id(parent))
            self._clear(self._waiting.take_back(_msg_id(parent), time.time()))

    def due_in(self) -> float | None:
        """Called by Relay for each turn."""
        if not self._waiting.is_needed:
            return None
        return self._waiting.due_in(self._cells(), time.time())

    def turn(self) -> None:
        """Called by Relay at the end of each turn."""
        if not self._waiting.is_needed:
            return
        cells, now = self._cells(), time.time()
        for cell in self._waiting.over(cells, now):
            self._clear(cell)
        for cell, text in self._waiting.due(cells, now):
            # An earlier line, if there is one, goes when this one comes.
            self._publish(cell, "clear_output", {"wait": True})
            self._publish(cell, "stream", {"name": "stderr", "text": text})

    def _cells(self) -> list[RunningCell]:
        return [cell for cell in self._forwarder.tracker.cells if not cell.has_shown]

    def _clear(self, cell: RunningCell | None) -> None:
        if cell is not None:
            self._publish(cell, "clear_output", {"wait": False})

    def _publish(self, cell: RunningCell, msg_type: str, content: Mapping[str, Any]) -> None:
        self._forwarder.publish(self._signer.message(msg_type, content, cell.header))


def _msg_id(parent: bytes) -> str:
    return str(read_object(parent).get("msg_id"))

"""Where processes of one kernel come in: its door, and who has not said HELLO yet. Knows nothing of who joined."""

from __future__ import annotations

import itertools
import logging
import socket
from pathlib import Path

from aliquot.gpu_hook import protocol
from aliquot.gpu_hook.protocol import RefusalReason

from .door import HookDoor, send_away
from .session import HookSession, InvisiblePeerError, SessionOwner

log = logging.getLogger(__name__)

MAX_VISITORS = 64  # of one kernel: a hook says HELLO at once, and silent ones must not take all our descriptors

_session_numbers = itertools.count(1)


class Entrance:
    """Makes the sessions of ``owner``, the kernel named ``kernel_id``, whose folder has the door."""

    def __init__(self, kernel_id: str, folder: Path, owner: SessionOwner) -> None:
        """Raises OSError when the socket cannot be made."""
        self._kernel_id = kernel_id
        self._owner = owner
        self._visitors: set[HookSession] = set()  # connected, have not said HELLO
        self._door = HookDoor(folder / protocol.SOCKET_NAME, self._accept)

    def discard(self, session: HookSession) -> bool:
        """It joined, or left; tells whether it was still a visitor."""
        was_visitor = session in self._visitors
        self._visitors.discard(session)
        return was_visitor

    def close(self) -> None:
        """Let nobody in any more, and send away who waits to be. Idempotent."""
        self._door.close()
        for visitor in list(self._visitors):
            visitor.refuse(RefusalReason.KERNEL, "the kernel's grant ended")

    def _accept(self, connection: socket.socket) -> None:
        try:
            visitor = HookSession(next(_session_numbers), connection, self._owner)
        except InvisiblePeerError as error:
            log.warning("event=hook_refused kernel=%s pid=0 reason=PEER text=%r", self._kernel_id, str(error))
            return send_away(connection, protocol.pack(protocol.Refuse(RefusalReason.PEER, str(error))))
        if len(self._visitors) >= MAX_VISITORS:
            return visitor.refuse(RefusalReason.FULL, f"{MAX_VISITORS} processes of the kernel have not said HELLO")
        self._visitors.add(visitor)

"""Where processes of one kernel come in: its door, and who has not said HELLO yet. Knows nothing of who joined."""

from __future__ import annotations

import itertools
import logging
import socket
import time
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.base.descriptors import OF_A_SESSION, OF_A_VISITOR, Descriptors
from jupyter_aliquot.gpu_hook.base.pacing import TokenBucket
from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import RefusalReason

from .listener import HookDoor, send_away
from .session import HookSession, InvisiblePeerError, SessionOwner

log = logging.getLogger(__name__)

MESSAGES_A_SECOND, MESSAGES_AT_ONCE = 5000.0, 1000.0  # of one kernel's processes together; more are read later
_ENTRY_TOKENS = 10.0  # a process that comes in costs the agent as much as so many messages
_JOURNAL_TOKENS, _JOURNAL_TOKENS_A_PROCESS = 10.0, 0.5  # a record that is written for its sake, as measured
MAX_SESSIONS = 256  # of one kernel
MAX_VISITORS = 64  # of one kernel: a hook says HELLO at once, and silent ones must not take all our descriptors

# On the host the folder above keeps others out. In a container this one is mounted, and any user may run there.
_FOLDER_MODE = 0o711

_session_numbers = itertools.count(1)


def journal_tokens(processes: int) -> float:
    """As how many messages a kernel's record counts, in which so many processes are."""
    return _JOURNAL_TOKENS + _JOURNAL_TOKENS_A_PROCESS * processes


class Entrance:
    """Makes the sessions of ``owner``, the kernel named ``kernel_id``, whose folder has the door."""

    def __init__(self, kernel_id: str, folder: Path, owner: SessionOwner, descriptors: Descriptors) -> None:
        """Make the folder, too. Raises OSError when it or the socket cannot be made."""
        folder.mkdir(exist_ok=True)
        folder.chmod(_FOLDER_MODE)
        self._descriptors = descriptors
        self._bucket = TokenBucket(MESSAGES_A_SECOND, MESSAGES_AT_ONCE, time.monotonic())
        self._kernel_id = kernel_id
        self._owner = owner
        self._visitors: set[HookSession] = set()  # connected, have not said HELLO
        self._door = HookDoor(folder / protocol.SOCKET_NAME, self._accept)

    def discard(self, session: HookSession) -> bool:
        """It joined, or left; tells whether it was still a visitor."""
        if session not in self._visitors:
            return False
        self._visitors.discard(session)
        self._descriptors.give_back(self._kernel_id, OF_A_VISITOR)
        return True

    def why_full(self, joined: int) -> str:
        """Count another process that joins ``joined`` ones, or tell why the kernel may not have it."""
        if joined >= MAX_SESSIONS:
            return f"the kernel has {MAX_SESSIONS} processes already"
        return "" if self._descriptors.take(self._kernel_id, OF_A_SESSION) else self._shortage()

    def charge_journal(self, entries: int) -> None:
        """Read fewer messages for a record of so many processes that the agent wrote for one of them; 0: it did not."""
        if entries:
            self._bucket.charge(journal_tokens(entries), time.monotonic())

    def close(self) -> None:
        """Let nobody in any more, and send away who waits to be. Idempotent."""
        self._door.close()
        for visitor in list(self._visitors):
            visitor.refuse(RefusalReason.KERNEL, "the kernel's grant ended")

    def _accept(self, connection: socket.socket) -> None:
        self._bucket.charge(_ENTRY_TOKENS, time.monotonic())
        try:
            visitor = HookSession(next(_session_numbers), connection, self._owner, self._bucket)
        except InvisiblePeerError as error:
            log.warning("event=hook_refused kernel=%s pid=0 reason=PEER text=%r", self._kernel_id, str(error))
            return send_away(connection, protocol.pack(protocol.Refuse(RefusalReason.PEER, str(error))))
        if len(self._visitors) >= MAX_VISITORS:
            return visitor.refuse(RefusalReason.FULL, f"{MAX_VISITORS} processes of the kernel have not said HELLO")
        # One more than may join, so that its refusal can be read: a socket closed with its HELLO unread loses that.
        if not self._descriptors.take(self._kernel_id, OF_A_VISITOR, beyond=OF_A_VISITOR):
            return visitor.refuse(RefusalReason.FULL, self._shortage())
        self._visitors.add(visitor)

    def _shortage(self) -> str:
        """Why there is no descriptor for another process, and what to do."""
        held, limit = self._descriptors.held(self._kernel_id), self._descriptors.limit
        return (
            f"the kernel has {held} of the {limit} descriptors that the node agent has for kernels, and what is left "
            "is kept for others: end some of its processes, or raise the agent's limit of open files"
        )

"""Accept connections of one kernel's processes, and keep those that have not sent HELLO yet.

The kernel keeps the sessions that joined.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import struct
import time
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.base.descriptors import OF_A_SESSION, OF_AN_UNREGISTERED, Descriptors
from jupyter_aliquot.gpu_hook.base.pacing import Throttle, TokenBucket
from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import RefusalReason

from .listener import HookListener, send_away
from .session import HookSession, InvisiblePeerError, SessionOwner

log = logging.getLogger(__name__)

# of one kernel's processes together; the agent reads further ones later
MESSAGES_A_SECOND, MESSAGES_AT_ONCE = 5000.0, 1000.0
_ENTRY_TOKENS = 10.0  # a process that joins costs the agent as much as so many messages
# for a journal that is written because of the process, as measured
_JOURNAL_TOKENS, _JOURNAL_TOKENS_A_PROCESS = 10.0, 0.5
MAX_SESSIONS = 256  # of one kernel
MAX_UNREGISTERED = 64  # of one kernel: a hook sends HELLO at once, and silent connections must not take all descriptors

# On the host the folder above keeps other users out. In a container this folder is mounted, and any
# user may run there.
_TOLD_AGAIN_SECONDS = 60.0  # of an account that is refused: it must not fill the log
_FOLDER_MODE = 0o711

_PEER = struct.Struct("iII")
_session_numbers = itertools.count(1)


def journal_tokens(processes: int) -> float:
    """Return how many messages a record of so many processes counts for."""
    return _JOURNAL_TOKENS + _JOURNAL_TOKENS_A_PROCESS * processes


class Acceptor:
    """Makes the sessions of ``owner``, the kernel ``kernel_id``.

    Its folder has the listening socket.
    """

    def __init__(
        self, kernel_id: str, folder: Path, owner: SessionOwner, descriptors: Descriptors, uid: int | None = None
    ) -> None:
        """Make the folder and the socket. Raises OSError.

        ``uid``: the account whose processes may connect, beside the agent's and root; None: any.
        """
        self._uid = uid
        folder.mkdir(exist_ok=True)
        folder.chmod(_FOLDER_MODE)
        self._descriptors = descriptors
        self._bucket = TokenBucket(MESSAGES_A_SECOND, MESSAGES_AT_ONCE, time.monotonic())
        self._kernel_id = kernel_id
        self._refused = Throttle(_TOLD_AGAIN_SECONDS)  # by account
        self._owner = owner
        self._unregistered: set[HookSession] = set()  # connected, without a HELLO
        self._listener = HookListener(folder / protocol.SOCKET_NAME, self.accept)

    def discard(self, session: HookSession) -> bool:
        """Forget a session that joined or left; return whether it was still unregistered."""
        if session not in self._unregistered:
            return False
        self._unregistered.discard(session)
        self._descriptors.give_back(self._kernel_id, OF_AN_UNREGISTERED)
        return True

    def why_full(self, joined: int) -> str:
        """Count another process beside the ``joined`` ones.

        Return why the kernel may not have it, or nothing.
        """
        if joined >= MAX_SESSIONS:
            return f"the kernel has {MAX_SESSIONS} processes already"
        return "" if self._descriptors.take(self._kernel_id, OF_A_SESSION) else self._shortage()

    def charge_journal(self, entries: int) -> None:
        """Slow reading down for a record that the agent wrote for a process.

        Args:
            entries: The processes in that record; 0: none was written.
        """
        if entries:
            self._bucket.charge(journal_tokens(entries), time.monotonic())

    def close(self) -> None:
        """Stop listening, and refuse the connections that are not registered. Idempotent."""
        self._listener.close()
        for session in list(self._unregistered):
            session.refuse(RefusalReason.KERNEL, "the kernel's grant ended")

    def accept(self, connection: socket.socket) -> None:
        """Make a session of a connection: of the listener's, or of a pod's slot. Raises OSError."""
        self._bucket.charge(_ENTRY_TOKENS, time.monotonic())
        peer = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1]
        if self._uid is not None and peer not in (self._uid, 0, os.geteuid()):
            if self._refused.passes(peer, time.monotonic()):
                log.warning("event=hook_refused kernel=%s uid=%d reason=PEER", self._kernel_id, peer)
            text = f"the kernel is of the account {self._uid}, this process of {peer}"
            return send_away(connection, protocol.pack(protocol.Refuse(RefusalReason.PEER, text)))
        try:
            session = HookSession(next(_session_numbers), connection, self._owner, self._bucket)
        except InvisiblePeerError as error:
            log.warning("event=hook_refused kernel=%s pid=0 reason=PEER text=%r", self._kernel_id, str(error))
            return send_away(connection, protocol.pack(protocol.Refuse(RefusalReason.PEER, str(error))))
        if len(self._unregistered) >= MAX_UNREGISTERED:
            text = f"{MAX_UNREGISTERED} processes of the kernel have not sent HELLO"
            return session.refuse(RefusalReason.FULL, text)
        # One more than may join, so that its refusal can be read: a socket closed with its HELLO
        # unread discards it.
        if not self._descriptors.take(self._kernel_id, OF_AN_UNREGISTERED, beyond=OF_AN_UNREGISTERED):
            return session.refuse(RefusalReason.FULL, self._shortage())
        self._unregistered.add(session)

    def _shortage(self) -> str:
        """Return why there is no descriptor for another process, and what to do."""
        held, limit = self._descriptors.held(self._kernel_id), self._descriptors.limit
        return (
            f"the kernel has {held} of the {limit} descriptors that the node agent has for kernels, and what is left "
            "is kept for others: end some of its processes, or raise the agent's limit of open files"
        )

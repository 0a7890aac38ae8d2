"""Requests of the relay's own to an ipykernel, hidden from clients.

There is one at a time, and only while no request is open. This module knows how they look on the
wire and how they ended. `trimmer` decides when to send one, and what for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jupyter_aliquot.provisioner.relay.wire.messages import CONTENT, HEADER, PARENT, Signer, find_delimiter, read_object

_MARK = "aliquot_own"
_MARK_BYTES = _MARK.encode()
_IMPLEMENTATION = "ipython"  # ipykernel itself; kernels derived from it name themselves
_ENDING_DEBUGGER = (b'"disconnect"', b'"terminate"')
_BEGINNING_DEBUGGER = (b'"attach"', b'"launch"')

Answered = Callable[[Mapping[str, Any] | None], object]


class InternalRequests:
    """Make such requests, and keep what they need to know of the kernel.

    At most one is under way.
    """

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        self._answered: Answered | None = None
        self._last_header: bytes = b""
        self._number = 0
        self._mark = ""  # the request under way; its reply and idle status come in any order
        self._is_idle = self._has_reply = True
        self.is_ipykernel: bool | None = None  # None: no client asked, so this is unknown
        self.is_debugged = False
        self.give_way: Callable[[], object] = lambda: None  # called before a client's request goes to the kernel
        self.incarnation = 0

    @property
    def is_under_way(self) -> bool:
        return not (self._is_idle and self._has_reply)

    @property
    def may_be_heard(self) -> bool:
        """Tell whether the kernel may still send something for the latest request."""
        return not self._is_idle

    def kernel_ended(self) -> None:
        """Forget the kernel, which ended."""
        self._finish(None)
        self._is_idle = True
        self._last_header = b""
        self.is_ipykernel, self.is_debugged = None, False
        self.incarnation += 1

    def give_up(self) -> None:
        """Stop waiting for the reply.

        Clients still do not see what the kernel sends for the request.
        """
        self._finish(None)

    def saw_request(self, channel: str, message: Sequence[Any]) -> None:
        """Note a client's request, which has a header and is signed."""
        header = bytes(message[HEADER])
        if channel == "shell":
            self._last_header = header
            self.give_way()
        elif b'"debug_request"' in header:
            content = bytes(message[CONTENT])
            if any(word in content for word in _BEGINNING_DEBUGGER):
                self.is_debugged = True
            elif any(word in content for word in _ENDING_DEBUGGER):
                self.is_debugged = False

    def saw_reply(self, frames: Sequence[Any]) -> None:
        """Note a reply to a client: the first kernel_info_reply tells which kernel this is."""
        message = frames[find_delimiter(frames) :]
        if len(message) > CONTENT and b'"kernel_info_reply"' in bytes(message[HEADER]):
            self.is_ipykernel = read_object(message[CONTENT]).get("implementation") == _IMPLEMENTATION

    def make(self, msg_type: str, content: Mapping[str, Any], answered: Answered) -> list[bytes]:
        """Return a message, from its delimiter on.

        ``answered`` gets its reply's content, or None without a reply. The message bears the id of
        the request before it: output of the user's threads goes by the latest request's id, and
        must still reach the cell that started them.
        """
        self._number += 1
        self._answered, self._mark = answered, str(self._number)
        self._is_idle = self._has_reply = False
        message = self._signer.message(msg_type, content)
        last = read_object(self._last_header)
        header = {**read_object(message[HEADER]), _MARK: self._mark}
        header |= {name: last[name] for name in ("msg_id", "session", "username") if name in last}
        return self._signer.signed(json.dumps(header).encode(), b"{}", message[CONTENT])

    def took_reply(self, frames: Sequence[Any]) -> None:
        """Take a reply to a request of the relay's own."""
        message = frames[find_delimiter(frames) :]
        if len(message) > CONTENT and self._is_ours(message):
            self._finish(read_object(message[CONTENT]))

    def took_status(self, message: Sequence[Any]) -> bool:
        """Tell whether a message on iopub is a status of the relay's own request.

        Clients do not get that.
        """
        if len(message) <= CONTENT or _MARK_BYTES not in bytes(message[PARENT]) or not self._is_ours(message):
            return False
        if read_object(message[HEADER]).get("msg_type") != "status":
            return False
        if b'"idle"' in bytes(message[CONTENT]):
            self._is_idle = True
        return True

    def _is_ours(self, message: Sequence[Any]) -> bool:
        return read_object(message[PARENT]).get(_MARK) == self._mark

    def _finish(self, content: Mapping[str, Any] | None) -> None:
        self._has_reply = True
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(content)

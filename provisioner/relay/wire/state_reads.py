"""How a page that comes back reads widgets' state over comms: requests that are no work, since no
user asked for them.

The protocol is that of ipywidgets' control comm (``jupyter.widget.control``, version 1) and of its
older ``request_state``. Knows no sockets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .messages import CONTENT, HEADER, Request, read_object, read_request

_CONTROL = "jupyter.widget.control"
_METHODS = ("request_state", "request_states")
# A page opens one such comm, reads, and closes it.
_MOST_COMMS = 64
_LONGEST = 4096  # of such a request; a longer comm message is a widget's own


class StateReads:
    """Remembers control comms, so that closing one is known as a part of the reading."""

    def __init__(self) -> None:
        self._comms: deque[str] = deque(maxlen=_MOST_COMMS)

    def request(self, message: Sequence[Any], channel: str) -> Request | None:
        """Return the request of a message, from its delimiter on; None for a header without id or
        type.
        """
        request = read_request(read_object(message[HEADER]), channel)
        if request is None or not request.msg_type.startswith("comm_"):
            return request
        content = bytes(message[CONTENT])
        is_read = len(content) <= _LONGEST and self._is_read(request.msg_type, read_object(content))
        return replace(request, reads_state=is_read)

    def _is_read(self, msg_type: str, content: Mapping[str, Any]) -> bool:
        comm, data = content.get("comm_id"), content.get("data")
        if msg_type == "comm_open":
            if content.get("target_name") != _CONTROL or not isinstance(comm, str):
                return False
            self._comms.append(comm)
            return True
        if msg_type == "comm_close":
            return comm in self._comms
        return isinstance(data, dict) and data.get("method") in _METHODS

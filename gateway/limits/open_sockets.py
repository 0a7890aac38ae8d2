"""The websockets that each user has open, or asks to open. Nobody has to say that one closed: it is looked at."""

from __future__ import annotations

from weakref import WeakSet

from tornado.websocket import WebSocketHandler


class OpenSockets:
    """By the user's name."""

    def __init__(self) -> None:
        self._by_user: dict[str, WeakSet[WebSocketHandler]] = {}

    def add(self, name: str, socket: WebSocketHandler) -> None:
        """This user's, from its handshake on."""
        self._by_user.setdefault(name, WeakSet()).add(socket)

    def count(self, name: str) -> int:
        """Those of this user. What has closed is forgotten."""
        kept = WeakSet(socket for socket in self._by_user.pop(name, ()) if _is_open(socket))
        if kept:
            self._by_user[name] = kept
        return len(kept)


def _is_open(socket: WebSocketHandler) -> bool:
    if socket.ws_connection is not None:
        return True
    # Its handshake waits, for a kernel that has not started perhaps. When it is over, the connection has no stream.
    stream = getattr(socket.request.connection, "stream", None)
    return not socket._finished and stream is not None and not stream.closed()

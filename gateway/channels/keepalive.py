"""The pings of a websocket with Jupyter's WebSocketMixin: they keep neither its request nor, once it closed, itself.

A timer holds the context variables it was made with, and those the request; a cancelled one until its time has come.
"""

from __future__ import annotations

from typing import Any

from jupyter_aliquot.gpu_hook.waiting import outlasting


def only_jupyters(protocol: Any) -> Any:
    """tornado's protocol of a websocket, without pings: it takes Jupyter's milliseconds for seconds, so hours."""
    if protocol is not None:
        protocol.params.ping_interval = None
    return protocol


def begin_pings(socket: Any) -> None:
    """Of one that Jupyter has opened, and that pings already."""
    if socket.ping_callback is not None:
        socket.ping_callback.stop()
        outlasting(socket.ping_callback.start)


def end_pings(socket: Any) -> None:
    """Of one that closed: the timer and the socket hold each other. Idempotent."""
    pings, socket.ping_callback = socket.ping_callback, None
    if pings is not None:
        pings.stop()

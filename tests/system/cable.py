"""A cable between an agent and a gateway, which a test cuts and mends: bytes wait in it meanwhile."""

from __future__ import annotations

import contextlib
import socket
import threading

_PIECE = 1 << 16


class Cable:
    """A forwarder on a loopback port to ``target``, the port of the gateway that runs now.

    While it is cut, no byte arrives on either side, and no side learns that.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self._whole = threading.Event()
        self._whole.set()
        self._ends: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    def close(self) -> None:
        self._whole.set()
        for end in [self._listening, *self._ends]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self._listening.accept()[0]
                self._ends.append(near)
                threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        self._whole.wait()
        try:
            far = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            near.close()
            return
        self._ends.append(far)
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                self._whole.wait()
                sink.sendall(piece)
        self._whole.wait()
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

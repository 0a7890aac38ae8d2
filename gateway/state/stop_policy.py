"""The policy whether kernels outlive a stop of the server. It ends no kernel itself.

A signal from a service manager or an upgrade is no request to end kernels. A user's Ctrl-C is.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from jupyter_server.serverapp import ServerApp

from jupyter_aliquot.gateway.base.jupyter_private import signal_stop


class StopPolicy:
    """The policy which kernels a stop of the server leaves.

    *keep_kernels* is the setting of that name. *can_keep*: kernels could be recovered at all.
    """

    def __init__(self, keep_kernels: str, *, can_keep: bool) -> None:
        self._keep_kernels = keep_kernels if can_keep else "never"
        self._had_sigterm = False

    @property
    def lets_kernels_outlive(self) -> bool:
        """Return whether kernels are started so that they survive at least a killed server."""
        return self._keep_kernels != "never"

    def keeps_kernels(self) -> bool:
        """Return whether the stop that goes on now leaves kernels running."""
        return self._keep_kernels == "always" or (self._keep_kernels == "auto" and self._had_sigterm)

    def watch(self, server: ServerApp) -> None:
        """Learn of the SIGTERM that stops the server.

        Called when the server has set its signal handlers.

        A process that embeds a server and handles signals itself stops the server by a call, which
        ends kernels.
        """
        handler = signal.getsignal(signal.SIGTERM)
        if threading.current_thread() is not threading.main_thread() or handler != signal_stop(server):
            return

        def stop(signal_number: int, frame: FrameType | None) -> Any:
            self._had_sigterm = True
            return signal_stop(server)(signal_number, frame)

        signal.signal(signal.SIGTERM, stop)
        # Without a terminal Jupyter leaves Ctrl-C to Python: the server ends at once, and its
        # kernels stay.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal_stop(server))

"""Ask an idle ipykernel to return its frameworks' unused caches when the node agent wants them.

ipykernel_trim.py runs in the kernel. The relay leaves alone kernels that are not ipykernels, and
debugged ones.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_aliquot.provisioner.relay.server.agent_notifier import AgentNotifier
from jupyter_aliquot.provisioner.relay.server.forwarder import Forwarder
from jupyter_aliquot.provisioner.relay.server.internal_requests import InternalRequests

from .ipykernel_trim import REQUEST

_SOURCE = (Path(__file__).parent / "ipykernel_trim.py").read_text()
_KEY = "aliquot"
_REPLY_SECONDS = 60.0
_MOST_TRIES = 3
_MOST_BYTES = 1 << 60


class Trimmer:
    """The trimmer of one kernel, run by the relay's loop. The kernel sees ``folder``, too."""

    def __init__(
        self, forwarder: Forwarder, own: InternalRequests, notifier: AgentNotifier, kernel_id: str, folder: Path
    ) -> None:
        self._forwarder = forwarder
        self._own = own
        self._notifier = notifier
        self._kernel_id = kernel_id
        self._place = folder / "trim"
        self._is_wanted = False
        self._give_up_at: float | None = None
        self._incarnation = -1
        self._tries = 0
        self._is_prepared = False
        self._is_marked = False  # the file is there
        own.give_way = self._give_way
        notifier.listen("trim", self._asked, asking="trimmer")

    def due_in(self) -> float | None:
        """Called by Relay for each turn."""
        return None if self._give_up_at is None else max(0.0, self._give_up_at - time.monotonic())

    def turn(self) -> None:
        """Called by Relay at the end of each turn."""
        if self._own.is_under_way:
            self._look_at_patience()
            return
        self._give_up_at = None
        if self._incarnation != self._own.incarnation:
            self._incarnation, self._tries, self._is_prepared = self._own.incarnation, 0, False
        if not self._forwarder.is_quiet or not self._own.is_ipykernel:
            self._is_wanted = False  # an agent that still wants it asks again when the kernel is quiet
        elif not self._is_prepared and self._tries < _MOST_TRIES:
            self._prepare()
        elif self._is_wanted:
            self._is_wanted = False
            if self._is_prepared and not self._own.is_debugged:
                self._trim()

    def _look_at_patience(self) -> None:
        if self._give_up_at is not None and time.monotonic() >= self._give_up_at:
            self._give_up_at = None
            self._own.give_up()

    def _asked(self, event: Mapping[str, Any] | None) -> None:
        self._is_wanted = event is not None

    def _prepare(self) -> None:
        """Install the trimming at the first quiet moment of each run of the kernel.

        The kernel then holds little of the user's. The message has no code and one expression, so
        IPython counts, keeps, transforms and shows nothing.
        """
        self._tries += 1
        names = "{'__name__': 'aliquot'}"
        expression = f"(lambda own: __import__('builtins').exec({_SOURCE!r}, own) or own['install']())({names})"
        content = {
            "code": "",
            "silent": True,
            "store_history": False,
            "user_expressions": {_KEY: expression},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        self._send("execute_request", content, self._prepared)

    def _prepared(self, content: Mapping[str, Any] | None) -> None:
        with contextlib.suppress(KeyError, TypeError):
            self._is_prepared = (content or {})["user_expressions"][_KEY]["data"]["text/plain"] == "True"

    def _trim(self) -> None:
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._place)
            os.close(os.open(self._place, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
            self._is_marked = True
        except OSError:
            return  # the kernel may spoil its own folder, to its own loss
        self._send(REQUEST, {"while": os.fspath(self._place)}, self._trimmed)

    def _trimmed(self, content: Mapping[str, Any] | None) -> None:
        self._give_way()
        returned = (content or {}).get("bytes")
        if isinstance(returned, int) and 0 <= returned < _MOST_BYTES:
            self._notifier.say({"op": "trimmed", "kernel_id": self._kernel_id, "bytes": returned})

    def _give_way(self) -> None:
        """Stop the trimming: a request arrives, and the kernel serves it first."""
        if not self._is_marked:
            return
        self._is_marked = False
        with contextlib.suppress(OSError):
            os.unlink(self._place)

    def _send(self, msg_type: str, content: Mapping[str, Any], answered: Any) -> None:
        self._give_up_at = time.monotonic() + _REPLY_SECONDS
        self._forwarder.send_own("shell", self._own.make(msg_type, content, answered))

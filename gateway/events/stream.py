"""Events of kernels, to those who may hear of them: looks at each new status, and tells what became different.

Jupyter's own event stream tells everybody everything, so this one has a logger and listeners of its own. While nobody
listens nothing is looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jupyter_events import EventLogger

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.auth.shares import read_shares
from jupyter_aliquot.gateway.reports.kernel import Kernel
from jupyter_aliquot.gateway.status.report import Scene, access_for, kernel_reports

from .diff import by_id, kernel_news

SCHEMA = Path(__file__).parent / "kernel_event.yaml"
_SCHEMA_ID = "https://schema.aliquot.dev/kernel-change"
_EVERYBODY = User("", "admin")
# One that reads so slowly reads the status anew: its stream ends.
_LONGEST_QUEUE = 1024
_LAST_ENDED = 20

# An event as jupyter_events gives it: a KernelEvent with the id of its schema.
Event = dict[str, Any]


class Listener:
    """One open stream."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.events: asyncio.Queue[Event | None] = asyncio.Queue()

    def put(self, event: Event | None) -> None:
        """What comes too fast ends the stream, and not the server's memory."""
        if self.events.qsize() < _LONGEST_QUEUE:
            self.events.put_nowait(event)
        elif self.events.qsize() == _LONGEST_QUEUE:
            self.events.put_nowait(None)


class KernelEvents:
    """``scene``: all that is known now."""

    def __init__(self, scene: Callable[[], Scene], log: logging.Logger) -> None:
        self._scene = scene
        self._log = log
        # Every kernel as it was at the last look, and at the one before.
        self._before: Mapping[str, Kernel] = {}
        self._last: Mapping[str, Kernel] = {}
        self._listeners: set[Listener] = set()
        # Who last asked a change of a kernel, while somebody listens.
        self._askers: dict[str, str] = {}
        self._logger = EventLogger()
        self._logger.register_event_schema(SCHEMA)
        self._logger.add_listener(schema_id=_SCHEMA_ID, listener=self._deliver)

    def listen(self, user: User) -> Listener:
        """From now on this user hears of the kernels that he may see. To be given back with forget."""
        if not self._listeners:
            self._before = self._look()
        listener = Listener(user)
        self._listeners.add(listener)
        return listener

    def forget(self, listener: Listener) -> None:
        """It closed. Idempotent."""
        self._listeners.discard(listener)
        if not self._listeners:
            self._askers.clear()

    @contextlib.contextmanager
    def asked(self, kernel_id: str, asker: str) -> Iterator[None]:
        """Around a wish of a user's: what comes of it is his doing. One that was refused is not."""
        if self._listeners:
            self._askers[kernel_id] = asker
        try:
            yield
        except BaseException:
            self._askers.pop(kernel_id, None)
            raise

    def close(self) -> None:
        """The server stops: every stream ends."""
        for listener in self._listeners:
            listener.put(None)
        self._listeners.clear()

    def tell(self, *_: object) -> None:
        """Called with each new view of the node, and after each cycle of admission."""
        if not self._listeners:
            return
        before, self._before = self._before, self._look()
        self._last = before
        news = kernel_news(before, self._before, self._askers)
        self._askers = {one: asker for one, asker in self._askers.items() if one in self._before}
        for data in news:
            self._logger.emit(schema_id=_SCHEMA_ID, data=dict(data))

    def _look(self) -> Mapping[str, Kernel]:
        return by_id(kernel_reports(self._scene(), _EVERYBODY, _LAST_ENDED))

    async def _deliver(self, logger: EventLogger, schema_id: str, data: Event) -> None:
        """Called by the logger with what it has found to be of the schema."""
        looks = [self._before.get(data["kernel_id"]), self._last.get(data["kernel_id"])]
        told = [look for look in looks if look is not None]
        # Who lost it hears of that alone; of its end, those who could see it: shares end with it.
        is_last = data["kind"] == "shared" or data["state"] == "ended"
        for listener in list(self._listeners):
            if any(_may_hear(listener.user, look) for look in (told if is_last else told[:1])):
                listener.put({"schema_id": schema_id, **data})


def _may_hear(user: User, report: Kernel) -> bool:
    return access_for(user, report["owner"], read_shares(report["shares"] or ())) is not Access.NONE

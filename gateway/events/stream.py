"""The stream of kernel events: compare each new status with the last, and send the changes.

Each listener gets the events of the kernels that its user may see. Jupyter's own event stream sends
every event to every user, so this one has a logger and listeners of its own. Without listeners it
looks at nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jupyter_events import EventLogger

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.steps import in_steps
from jupyter_aliquot.gateway.reports.kernel import Kernel
from jupyter_aliquot.gateway.sharing.rights import access_for
from jupyter_aliquot.gateway.sharing.shares import read_shares
from jupyter_aliquot.gateway.status.report import StatusSnapshot, each_kernel, kernel_reports
from jupyter_aliquot.gpu_hook.waiting import end_task

from .diff import by_id, kernel_news

SCHEMA = Path(__file__).parent / "kernel_event.yaml"
_SCHEMA_ID = "https://schema.aliquot.dev/kernel-change"
_SEES_ALL = User("", "admin")
# A longer queue ends the stream: a client that reads so slowly has to read the status anew.
_LONGEST_QUEUE = 1024
_LAST_ENDED = 20

# An event in the form of jupyter_events: a KernelEvent with the id of its schema.
Event = dict[str, Any]


class Listener:
    """One open stream of one user."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.events: asyncio.Queue[Event | None] = asyncio.Queue()

    def put(self, event: Event | None) -> None:
        """Queue the event. A full queue ends the stream instead of filling the server's memory."""
        if self.events.qsize() < _LONGEST_QUEUE:
            self.events.put_nowait(event)
        elif self.events.qsize() == _LONGEST_QUEUE:
            self.events.put_nowait(None)


class KernelEvents:
    """The events of all kernels, and their listeners.

    *snapshot* returns all that is known now; *gather* does so in steps, between which the loop serves others.
    """

    def __init__(
        self,
        snapshot: Callable[[], StatusSnapshot],
        gather: Callable[[], Awaitable[StatusSnapshot]],
        log: logging.Logger,
    ) -> None:
        self._snapshot = snapshot
        self._gather = gather
        self._log = log
        # The looks that go on until nothing has changed since the last one began.
        self._looks: asyncio.Task[None] | None = None
        self._is_due = False
        # Each kernel's report at the last look; in ``_last``, at the one before.
        self._before: Mapping[str, Kernel] = {}
        self._last: Mapping[str, Kernel] = {}
        self._listeners: set[Listener] = set()
        # The user who last requested a change of a kernel, while there are listeners.
        self._requesters: dict[str, str] = {}
        self._logger = EventLogger()
        self._logger.register_event_schema(SCHEMA)
        self._logger.add_listener(schema_id=_SCHEMA_ID, listener=self._deliver)

    def listen(self, user: User) -> Listener:
        """Return a listener that gets the events of the kernels that the user may see.

        The caller gives it back with `forget`.
        """
        if not self._listeners:
            self._before = by_id(kernel_reports(self._snapshot(), _SEES_ALL, _LAST_ENDED))
        listener = Listener(user)
        self._listeners.add(listener)
        return listener

    def forget(self, listener: Listener) -> None:
        """Remove a listener whose stream closed. Idempotent."""
        self._listeners.discard(listener)
        if not self._listeners:
            self._requesters.clear()

    @contextlib.contextmanager
    def asked(self, kernel_id: str, requester: str) -> Iterator[None]:
        """Attribute the changes of the kernel that follow to this user. A refused request has none."""
        if self._listeners:
            self._requesters[kernel_id] = requester
        try:
            yield
        except BaseException:
            self._requesters.pop(kernel_id, None)
            raise

    async def close(self) -> None:
        """End every stream. Called when the server stops."""
        for listener in self._listeners:
            listener.put(None)
        self._listeners.clear()
        if self._looks is not None:
            await end_task(self._looks)

    def tell(self, *_: object) -> None:
        """Send the changes to the listeners, soon.

        Called with each new view of a node, and after each cycle of admission. One look at all kernels
        serves the calls that come until it begins.
        """
        if not self._listeners:
            return
        self._is_due = True
        if self._looks is None:
            self._looks = asyncio.create_task(self._look_while_due(), name="aliquot-events")

    async def _look_while_due(self) -> None:
        try:
            while self._is_due and self._listeners:
                self._is_due, before = False, self._before
                after = await self._look()
                if self._before is before:
                    self._compare(after)
                else:  # a first listener came meanwhile, with a later look
                    self._is_due = True
        except Exception:
            self._log.exception("events=failed; it goes on")
        finally:
            self._looks = None

    async def _look(self) -> Mapping[str, Kernel]:
        found = await in_steps(each_kernel(await self._gather(), _SEES_ALL, _LAST_ENDED))
        await asyncio.sleep(0)  # the comparison is a step of its own
        return by_id(found)

    def _compare(self, after: Mapping[str, Kernel]) -> None:
        before, self._before = self._before, after
        self._last = before
        news = kernel_news(before, self._before, self._requesters)
        self._requesters = {one: requester for one, requester in self._requesters.items() if one in self._before}
        for data in news:
            self._logger.emit(schema_id=_SCHEMA_ID, data=dict(data))

    async def _deliver(self, logger: EventLogger, schema_id: str, data: Event) -> None:
        """Called by the event logger with data that fits the schema."""
        looks = [self._before.get(data["kernel_id"]), self._last.get(data["kernel_id"])]
        told = [look for look in looks if look is not None]
        # A user who lost a share gets that event alone. The event of a kernel's end goes to those
        # who could see it, for the shares end with it.
        is_last = data["kind"] == "shared" or data["state"] == "ended"
        for listener in list(self._listeners):
            if any(_may_hear(listener.user, look) for look in (told if is_last else told[:1])):
                listener.put({"schema_id": schema_id, **data})


def _may_hear(user: User, report: Kernel) -> bool:
    return access_for(user, report["owner"], read_shares(report["shares"] or ())) is not Access.NONE

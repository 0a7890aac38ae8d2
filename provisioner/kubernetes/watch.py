"""The objects of one resource as the API server last told them: listed once, and then watched.

One watch a resource. It resumes where it was, lists again when the server has forgotten that version
(410), and waits longer after each failure. While the server is away the objects stay, and
``is_current`` says that they may be old: no reader may take an object for gone then.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

from jupyter_aliquot.gpu_hook.base.pacing import Backoff

from .client import GONE, OPENED, ClusterClient, ClusterError, Collection, Object

_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.5, 30.0

# Called with an object before and after a change; None: it was not there, or is gone.
Listener = Callable[["Object | None", "Object | None"], None]


class ResourceWatch:
    """The watch of a collection. *sleep* waits, and *chance* returns a number from 0 to 1."""

    def __init__(
        self,
        client: ClusterClient,
        collection: Collection,
        sleep: Callable[[float], Awaitable[None]],
        chance: Callable[[], float],
        log: logging.Logger,
    ) -> None:
        self._client = client
        self._collection = collection
        self._sleep = sleep
        self._chance = chance
        self._log = log
        self._objects: dict[str, Object] = {}
        self._version: str | None = None
        self._waits = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
        self._listeners: list[Listener] = []
        self.is_current = False
        self.problem = "It has not been asked yet"
        # How often all objects were listed, for tests and metrics.
        self.lists = 0

    @property
    def objects(self) -> Mapping[str, Object]:
        """The objects by name."""
        return MappingProxyType(self._objects)

    def listen(self, listener: Listener) -> None:
        """Call *listener* with each change."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Watch for as long as the gateway runs."""
        while True:
            try:
                await self._watch_once()
                wait = 0.0
            except ClusterError as error:
                wait = self._note(error)
            except Exception:
                self._log.exception("cluster_watch=failed resource=%s; it goes on", self._collection.plural)
                self._version, self.is_current = None, False
                wait = _LAST_RETRY_SECONDS
            if wait:
                await self._sleep(wait)

    async def _watch_once(self) -> None:
        """List if need be, and watch until the server ends the watch. Raises ClusterError."""
        if self._version is None:
            await self._list()
        assert self._version is not None
        is_empty = True
        async for event in self._client.watch(self._collection, self._version):
            if event["type"] == OPENED:
                self._set_current()
                continue
            is_empty = False
            self._waits.reset()
            self._take(event)
        if is_empty:
            # Each watch of some minutes has a bookmark at least: this one was ended at once.
            await self._sleep(self._next_wait())

    async def _list(self) -> None:
        self.take_list(*await self._client.list(self._collection))

    def take_list(self, found: Sequence[Object], version: str) -> None:
        """Take all objects as they were at a version, and watch from there."""
        self.lists += 1
        before, self._objects = self._objects, {one["metadata"]["name"]: one for one in found}
        self._version = version
        self._set_current()
        for name in before.keys() | self._objects.keys():
            self._tell_difference(before.get(name), self._objects.get(name))

    def _take(self, event: Object) -> None:
        told = event["object"]
        self._version = str(told["metadata"]["resourceVersion"])
        if event["type"] == "BOOKMARK":
            return
        name = told["metadata"]["name"]
        before = self._objects.get(name)
        if event["type"] == "DELETED":
            self._objects.pop(name, None)
            self._tell_difference(before, None)
        else:
            self._objects[name] = told
            self._tell_difference(before, told)

    def _tell_difference(self, before: Object | None, after: Object | None) -> None:
        if before is not None and after is not None:
            if before["metadata"]["uid"] != after["metadata"]["uid"]:
                self._tell(before, None)  # another object of the same name
                before = None
            elif before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]:
                return
        if before is not None or after is not None:
            self._tell(before, after)

    def _tell(self, before: Object | None, after: Object | None) -> None:
        for listener in self._listeners:
            try:
                listener(before, after)
            except Exception:
                self._log.exception("cluster_watch=listener_failed resource=%s", self._collection.plural)

    def _set_current(self) -> None:
        if self.problem:
            self._log.info("cluster_watch=current resource=%s", self._collection.plural)
        self.is_current, self.problem = True, ""

    def _note(self, error: ClusterError) -> float:
        """Note a failure; return how long to wait before the next request."""
        if error.code == GONE:
            self._log.info("cluster_watch=too_old resource=%s; listed again", self._collection.plural)
            self._version = None
            # A server that forgets each version at once is not asked in a loop.
            return self._next_wait()
        self.is_current = False
        if str(error) != self.problem:
            self._log.warning("cluster_watch=away resource=%s reason=%s", self._collection.plural, error)
        self.problem = str(error)
        return max(error.retry_after or 0.0, self._next_wait())

    def _next_wait(self) -> float:
        return self._waits.next_seconds() * (0.5 + self._chance() / 2)

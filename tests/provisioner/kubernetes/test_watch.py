"""The watch of a resource through whatever the server does: ends, compactions, absence, and a busy server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from api_double.server import ApiDouble
from api_double.store import RESOURCES, Failure

from jupyter_aliquot.gpu_hook.waiting import end_task
from jupyter_aliquot.provisioner.kubernetes import client as client_module
from jupyter_aliquot.provisioner.kubernetes.watch import ResourceWatch

from .conftest import PATIENCE_SECONDS, Cluster, until

MAPS = RESOURCES["configmaps"]
Seen = list[tuple[str, str]]


class Watched:
    """A running watch, the changes that it told, and the waits that it asked for.

    A wait takes no time; ``is_paused`` holds it until the test goes on.
    """

    def __init__(self, cluster: Cluster, selector: str = "") -> None:
        self.client = cluster.client()
        self.waits: list[float] = []
        self.seen: Seen = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        log = logging.getLogger("test")
        self.watch = ResourceWatch(self.client, cluster.collection(selector=selector), self._sleep, lambda: 1.0, log)
        self.watch.listen(self._note)
        self._task = asyncio.create_task(self.watch.run())

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)
        await self.may_go_on.wait()

    def _note(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        known = after or before
        assert known is not None
        kind = "added" if before is None else "gone" if after is None else "changed"
        self.seen.append((kind, known["metadata"]["name"]))

    async def stop(self) -> None:
        await end_task(self._task)
        await self.client.close()


@contextlib.asynccontextmanager
async def watched(cluster: Cluster, selector: str = "") -> AsyncIterator[Watched]:
    made = Watched(cluster, selector)
    try:
        yield made
    finally:
        await made.stop()


def put(double: ApiDouble, name: str, **data: str) -> None:
    double.store.create(MAPS, "default", {"metadata": {"name": name}, "data": data})


def change(double: ApiDouble, name: str, **data: str) -> None:
    found = double.store.read(MAPS, "default", name)
    double.store.replace(MAPS, "default", name, {**found, "data": data})


def remove(double: ApiDouble, name: str) -> None:
    double.store.delete(MAPS, "default", name, {})


def run(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_SECONDS))


def test_what_is_there_and_what_changes_is_told_in_order(a_double: ApiDouble, on_double: Cluster) -> None:
    async def act() -> None:
        put(a_double, "a")
        async with watched(on_double) as one:
            await until(lambda: one.watch.is_current)
            put(a_double, "b")
            change(a_double, "a", k="2")
            remove(a_double, "b")
            await until(lambda: len(one.seen) == 4)
            assert one.seen == [("added", "a"), ("added", "b"), ("changed", "a"), ("gone", "b")]
            assert list(one.watch.objects) == ["a"]
            assert one.watch.lists == 1

    run(act())


def test_a_watch_that_ends_is_resumed_without_a_list(a_double: ApiDouble, on_double: Cluster) -> None:
    async def act() -> None:
        async with watched(on_double) as one:
            await until(lambda: one.watch.is_current)
            put(a_double, "a")
            await until(lambda: one.seen)
            a_double.end_watches()
            put(a_double, "b")
            await until(lambda: len(one.seen) == 2)
            assert (one.seen[-1], one.watch.lists) == (("added", "b"), 1)

    run(act())


def test_a_watch_whose_thread_fails_as_no_reader_foresaw_is_tried_again(
    a_double: ApiDouble, on_double: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []

    async def act() -> None:
        async with watched(on_double) as one:
            real = one.client.open

            def fail_once(method: str, path: str, query: Mapping[str, str], *more: Any) -> Any:
                if "watch" in query and not failed:
                    failed.append(path)
                    raise TypeError("unforeseen")
                return real(method, path, query, *more)

            monkeypatch.setattr(one.client, "open", fail_once)
            await until(lambda: failed and one.waits)
            put(a_double, "a")
            await until(lambda: one.seen)
            assert one.seen == [("added", "a")]

    run(act())


def test_a_version_that_the_server_forgot_is_listed_again_and_only_differences_are_told(
    a_double: ApiDouble, on_double: Cluster
) -> None:
    async def act() -> None:
        for name in ("same", "changed", "gone"):
            put(a_double, name)
        async with watched(on_double) as one:
            await until(lambda: one.watch.is_current and len(one.seen) == 3)
            one.seen.clear()
            # The next watch fails; while the watch waits, all of this is forgotten.
            one.may_go_on.clear()
            a_double.failures.append(Failure(500, "InternalError", "etcdserver: leader changed"))
            a_double.end_watches()
            await until(lambda: one.waits)
            change(a_double, "changed", k="2")
            remove(a_double, "gone")
            put(a_double, "new")
            a_double.store.compact()
            one.may_go_on.set()
            await until(lambda: len(one.seen) == 3)
            assert sorted(one.seen) == [("added", "new"), ("changed", "changed"), ("gone", "gone")]
            assert one.watch.lists == 2

    run(act())


def test_an_object_of_the_same_name_is_another_one(a_double: ApiDouble, on_double: Cluster) -> None:
    async def act() -> None:
        put(a_double, "a")
        async with watched(on_double) as one:
            await until(lambda: one.watch.is_current)
            one.may_go_on.clear()
            a_double.failures.append(Failure(500, "InternalError", "etcdserver: leader changed"))
            a_double.end_watches()
            await until(lambda: one.waits)
            remove(a_double, "a")
            put(a_double, "a")
            a_double.store.compact()
            one.may_go_on.set()
            await until(lambda: len(one.seen) == 3)
            assert one.seen == [("added", "a"), ("gone", "a"), ("added", "a")]

    run(act())


def test_while_the_server_is_away_objects_stay_and_are_said_to_be_old(a_double: ApiDouble, on_double: Cluster) -> None:
    async def act() -> None:
        put(a_double, "a")
        async with watched(on_double) as one:
            await until(lambda: one.watch.is_current)
            a_double.go_away()
            await until(lambda: not one.watch.is_current)
            await until(lambda: len(one.waits) > 8)
            assert list(one.watch.objects) == ["a"], "unknown, not gone"
            assert one.seen == [("added", "a")]
            assert "does not answer" in one.watch.problem
            assert one.waits[:3] == sorted(one.waits[:3]), "it waits longer each time"
            assert max(one.waits) <= 30.0
            put(a_double, "b")
            a_double.come_back()
            await until(lambda: one.watch.is_current and len(one.seen) == 2)
            assert (one.seen[-1], one.watch.lists) == (("added", "b"), 1)

    run(act())


def test_a_busy_server_is_asked_when_it_said(a_double: ApiDouble, on_double: Cluster) -> None:
    async def act() -> None:
        a_double.failures.append(Failure(429, "TooManyRequests", "too many requests", retry_after=17))
        async with watched(on_double) as one:
            await until(lambda: one.watch.is_current)
            assert one.waits == [17.0]

    run(act())


def test_bookmarks_move_the_version_on_without_a_change(a_double: ApiDouble, on_double: Cluster) -> None:
    async def act() -> None:
        async with on_client(on_double) as client:
            _, version = await client.list(on_double.collection())
            a_double.store.create(RESOURCES["secrets"], "default", {"metadata": {"name": "s"}})
            query = {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": version,
                "timeoutSeconds": "0.2",
            }
            path = on_double.collection().path
            response = await asyncio.to_thread(client.open, "GET", path, query, None, "application/json", 30.0)
            text = await asyncio.to_thread(lambda: response.data.decode())
            assert '"type": "BOOKMARK"' in text
            assert f'"resourceVersion": "{a_double.store.version}"' in text

    run(act())


@contextlib.asynccontextmanager
async def on_client(cluster: Cluster) -> AsyncIterator[Any]:
    client = cluster.client()
    try:
        yield client
    finally:
        await client.close()


def test_a_watch_that_is_left_leaves_no_thread(a_double: ApiDouble, on_double: Cluster) -> None:
    def readers() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one.name == "aliquot-cluster-watch"]

    async def act() -> None:
        async with watched(on_double) as one:
            await until(lambda: one.watch.is_current)
            assert readers()
        await until(lambda: not readers())

    run(act())


def test_a_listener_that_fails_keeps_no_other_from_hearing(a_double: ApiDouble, on_double: Cluster) -> None:
    async def act() -> None:
        put(a_double, "a")
        async with watched(on_double) as one:
            one.watch.listen(lambda before, after: [][0])
            heard: list[object] = []
            one.watch.listen(lambda before, after: heard.append(after))
            await until(lambda: heard)
            assert one.watch.is_current

    run(act())


def test_an_event_that_is_none_is_an_error_and_the_watch_goes_on(
    a_double: ApiDouble, on_double: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        async with watched(on_double) as one:
            await until(lambda: one.watch.is_current)
            told: list[Any] = [{"object": {}}]
            loads = lambda text: told.pop() if told else json.loads(text)  # noqa: E731 (the client's alone)
            monkeypatch.setattr(client_module, "json", SimpleNamespace(loads=loads, dumps=json.dumps))
            put(a_double, "a")
            await until(lambda: one.waits)
            assert not told
            put(a_double, "b")
            await until(lambda: ("added", "b") in one.seen)
            assert ("added", "a") in one.seen

    run(act())

"""The state that a gateway's next replica finds in the cluster, while the API is busy and documents are damaged."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from api_double.fixtures import configuration_of
from api_double.server import ApiDouble
from api_double.store import RESOURCES, Failure
from jupyter_client.kernelspec import NoSuchKernel
from traitlets.config import Configurable

from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.local_mode import OwnKernels
from jupyter_aliquot.gateway.recovery.plan import FoundProcesses
from jupyter_aliquot.gateway.recovery.recover import Recovery
from jupyter_aliquot.gateway.state.cluster_state import ClusterRecords, SessionMirror
from jupyter_aliquot.gateway.state.records import KernelRecord, KernelState
from jupyter_aliquot.provisioner.kubernetes.client import ClusterClient
from jupyter_aliquot.provisioner.kubernetes.documents import Documents
from jupyter_aliquot.provisioner.kubernetes.permissions import PERMISSIONS
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster
from jupyter_aliquot.provisioner.resources import KernelProcess
from jupyter_aliquot.provisioner.terminations import ProcessEnd

LOG = logging.getLogger("test")
BUSY = Failure(429, "TooManyRequests", "too many requests")


class Table:
    """A table of sessions that another process may lock."""

    def __init__(self, path: Path | str = ":memory:") -> None:
        self.database = sqlite3.connect(path, isolation_level=None)
        self.locks = 0

    @property
    def total_changes(self) -> int:
        return self.database.total_changes

    def execute(self, *told: Any) -> sqlite3.Cursor:
        if self.locks:
            self.locks -= 1
            raise sqlite3.OperationalError("database is locked")
        return self.database.execute(*told)

    def executemany(self, *told: Any) -> sqlite3.Cursor:
        return self.database.executemany(*told)

    def add(self, session: str, path: str) -> None:
        row = (session, path, path, "notebook", "k1")
        self.database.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?)", row)

    def rows(self) -> list[tuple[str, str]]:
        return self.database.execute("SELECT session_id, path FROM session ORDER BY session_id").fetchall()


class Scene:
    """The documents of a gateway on the double, and the mirror of one replica's table."""

    def __init__(self, double: ApiDouble) -> None:
        double.allowed = [(verb, one.resource) for one in PERMISSIONS for verb in one.verbs]
        self.double = double
        self.leads = True
        self.client = ClusterClient(configuration_of(double))
        self.table = Table()
        self.mirror = SessionMirror(self.documents("session"), lambda: self.table, LOG)  # type: ignore[arg-type,return-value]

    def documents(self, kind: str) -> Documents:
        return Documents(self.client, Cluster("default", "g", "relay:1"), kind, lambda: self.leads)

    def write(self, session: str, **told: str) -> None:
        row = {"session_id": session, "path": "a.ipynb", "name": "a", "type": "notebook", "kernel_id": "k1"}
        self.documents("session").write(session, json.dumps({**row, **told}))

    def kept(self) -> set[str]:
        return set(self.documents("session").read())

    async def until(self, want: set[str]) -> None:
        while True:
            if await asyncio.to_thread(self.kept) == want:
                return
            await asyncio.sleep(0.01)


@pytest.fixture
def play(a_double: ApiDouble) -> Callable[[Callable[[Scene], Awaitable[None]]], None]:
    def run(act: Callable[[Scene], Awaitable[None]]) -> None:
        async def whole() -> None:
            scene = Scene(a_double)
            await asyncio.wait_for(act(scene), 60)
            await scene.mirror.stop()
            await scene.client.close()

        asyncio.run(whole())

    return run


Play = Callable[[Callable[[Scene], Awaitable[None]]], None]


class Server(Configurable):
    """A server without users."""

    identity_provider = None


def test_a_replica_takes_the_sessions_although_the_api_is_busy_and_one_is_damaged(play: Play) -> None:
    async def act(scene: Scene) -> None:
        scene.write("s1")
        for damaged in ("", "[]", json.dumps({"session_id": "s3"})):
            scene.documents("session").write(f"bad-{len(damaged)}", damaged)
        maps = RESOURCES["configmaps"]
        without = scene.double.store.list(maps, "default")[0][0]
        keyless = {**without["metadata"], "name": "keyless", "annotations": {}}
        scene.double.store.create(maps, "default", {**without, "metadata": keyless})
        scene.double.failures.append(BUSY)
        await scene.mirror.restore()
        assert scene.table.rows() == [("s1", "a.ipynb")]
        assert not scene.double.failures

    play(act)


def test_a_replica_that_led_before_drops_what_it_had(play: Play) -> None:
    async def act(scene: Scene) -> None:
        scene.table.execute("CREATE TABLE session (session_id, path, name, type, kernel_id)")
        scene.table.add("s1", "old.ipynb")
        scene.table.add("ended", "b.ipynb")
        scene.write("s1", path="renamed.ipynb")
        await scene.mirror.restore()
        assert scene.table.rows() == [("s1", "renamed.ipynb")]

    play(act)


def test_sessions_are_told_on_after_a_table_that_was_locked(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.mirror.restore()
        scene.table.add("s1", "a.ipynb")
        await scene.until({"s1"})
        scene.table.locks = 1
        scene.table.add("s2", "b.ipynb")
        await scene.until({"s1", "s2"})
        assert not scene.table.locks
        scene.table.add("s3", "c.ipynb")
        scene.table.locks = 1
        await scene.mirror.stop()  # a failure does not keep the server from its end

    play(act)


def test_a_replica_that_may_not_lead_changes_no_document_of_the_next_one(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(scene: Scene) -> None:
        await scene.mirror.restore()
        records = ClusterRecords(scene.documents("record"), LOG)
        records.write(KernelRecord("k", "ada", "python3", KernelState.PENDING, 1e9, ""))
        scene.table.add("s1", "a.ipynb")
        await scene.until({"s1"})
        scene.leads = False
        records.remove("k")
        assert "cannot be removed" in records.problem
        scene.table.add("s2", "b.ipynb")
        while True:
            await asyncio.sleep(0.01)
            if "sessions=later" in caplog.text:
                break
        assert (set(scene.documents("record").read()), scene.kept()) == ({"k"}, {"s1"})
        scene.leads = True
        await scene.until({"s1", "s2"})

    play(act)


def test_a_busy_api_delays_the_recovery_of_kernels(play: Play) -> None:
    async def act(scene: Scene) -> None:
        records = ClusterRecords(scene.documents("record"), LOG)
        records.write(KernelRecord("k", "ada", "python3", KernelState.PENDING, 1e9, ""))
        scene.double.failures.append(BUSY)
        admission, finder = Mock(), Mock(find=AsyncMock(return_value={}))
        manager = Mock(replacements=Mock(finish=AsyncMock()))
        recovery = Recovery(manager, admission, Mock(), records, finder, SystemClock(), LOG, frozenset)
        await recovery.run("")
        await asyncio.sleep(0)  # the task that looks after what it replaces
        await recovery.stop()
        admission.expect.assert_called_once_with("k")

    play(act)


class Fast(SystemClock):
    """A clock whose seconds are short."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 1000)


def test_a_kernel_that_was_left_at_the_start_is_looked_at_again(play: Play) -> None:
    async def act(scene: Scene) -> None:
        records = ClusterRecords(scene.documents("record"), LOG)
        records.write(KernelRecord("k", "ada", "python3", KernelState.RUNNING, 1e9, ""))
        process = KernelProcess("k", 0, 0, 0, "aliquot-kernel-k/uid")
        unknown = {"k": FoundProcesses(is_unknown=True, container=process)}
        ended = {"k": FoundProcesses(had_process=True, container=process, end=ProcessEnd(exit_code=3))}
        away = OSError("the API server does not answer")
        finder = Mock(find=AsyncMock(side_effect=[unknown, unknown, away, ended]), clear=AsyncMock())
        endings = Mock(of=Mock(return_value=None))
        manager = Mock(replacements=Mock(finish=AsyncMock()), kernel_spec_manager=Mock(get_kernel_spec=no_spec))
        recovery = Recovery(manager, Mock(), endings, records, finder, Fast(), LOG, frozenset)
        await recovery.run("")
        endings.record.assert_not_called()
        while True:
            await asyncio.sleep(0.01)
            if finder.clear.await_count:
                break
        endings.record.assert_called_once()
        assert finder.find.await_count == 4, "an error ends no later look"
        assert finder.find.await_args.kwargs["only"] is not None, "else it would look at kernels that start now"
        await recovery.stop()

    play(act)


def test_a_kernel_that_is_recovered_late_ends_what_it_replaces(play: Play) -> None:
    async def act(scene: Scene) -> None:
        records = ClusterRecords(scene.documents("record"), LOG)
        records.write(KernelRecord("k", "ada", "python3", KernelState.PENDING, 1e9, ""))
        unknown = FoundProcesses(is_unknown=True, container=KernelProcess("k", 0, 0, 0, "aliquot-kernel-k/uid"))
        finder = Mock(find=AsyncMock(side_effect=[{"k": unknown}, {}]), clear=AsyncMock())
        finish = AsyncMock()
        manager = Mock(replacements=Mock(finish=finish), begin=lambda kernel_id, kernel, first: first.close())
        recovery = Recovery(manager, Mock(), Mock(), records, finder, Fast(), LOG, frozenset)
        await recovery.run("")
        finish.assert_not_awaited()
        while not finish.await_count:  # noqa: ASYNC110 - the recovery's own task calls it
            await asyncio.sleep(0.01)
        assert finish.await_args.args[0] == "k"
        await recovery.stop()

    play(act)


def test_a_kernel_that_is_recovered_late_is_ended_by_what_replaces_it(play: Play) -> None:
    async def act(scene: Scene) -> None:
        records = ClusterRecords(scene.documents("record"), LOG)
        for name in ("old", "new"):
            records.write(KernelRecord(name, "ada", "python3", KernelState.PENDING, 1e9, ""))
        unknown = FoundProcesses(is_unknown=True, container=KernelProcess("old", 0, 0, 0, "aliquot-kernel-old/uid"))
        finder = Mock(find=AsyncMock(side_effect=[{"old": unknown}, {}]), clear=AsyncMock())
        begun: list[str] = []

        def begin(kernel_id: str, kernel: object, first: Any) -> None:
            first.close()
            begun.append(kernel_id)

        looked = asyncio.Event()

        async def finish(kernel_id: str, used: object) -> None:
            if kernel_id == "new" and "old" in begun:
                looked.set()

        manager = Mock(replacements=Mock(finish=finish), begin=begin)
        recovery = Recovery(manager, Mock(), Mock(), records, finder, Fast(), LOG, frozenset)
        await recovery.run("")
        assert begun == ["new"]
        await asyncio.wait_for(looked.wait(), 60)
        await recovery.stop()

    play(act)


def no_spec(name: str) -> None:
    raise NoSuchKernel(name)


def test_kernels_are_recovered_although_sessions_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    recovered = AsyncMock()
    monkeypatch.setattr(Recovery, "run", recovered)
    services = Mock(is_elsewhere=True, server=Server())
    services.engines.sessions.restore = AsyncMock(side_effect=OSError("the disk is full"))
    own = OwnKernels(Mock(cull_idle_timeout=0), Mock(), services)
    problems = asyncio.run(own.recover())
    recovered.assert_awaited_once_with("")
    assert [one for one in problems if "sessions" in one] == list(problems)

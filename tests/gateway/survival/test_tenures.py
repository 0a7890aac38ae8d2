"""The tenures of grants: what a restarted gateway knows of them, and files that are not whole."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.lending.tenure import Tenure, resumed
from jupyter_aliquot.gateway.scheduling.resize import quota_of
from jupyter_aliquot.gateway.state.queue_memory import QueueMemory
from jupyter_aliquot.gateway.state.tenures import Tenures
from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Request, WorkloadClass

LOG = logging.getLogger(__name__)


class Clock:
    """A clock whose machine was started a hundred seconds before the epoch's thousandth, or later."""

    def __init__(self, now: float = 100.0) -> None:
        self._now = now
        self.at = 1000.0

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def holding(kernel_id: str, **more: object) -> Holding:
    request = Request(GpuShare(100), None, WorkloadClass.PRODUCTION)
    grant = Grant(kernel_id, "ann", request, "node", (), "/k", ())
    return Holding(grant, KernelRef(kernel_id, "ann"), since=950.0, **more)  # type: ignore[arg-type]


def saved(path: Path, *holdings: Holding) -> Tenures:
    async def write() -> Tenures:
        tenures = Tenures(path, Clock(), LOG)
        tenures.note(LedgerSnapshot(holdings={one.grant.kernel_id: one for one in holdings}))
        await tenures.flush()
        return tenures

    return asyncio.run(write())


def test_a_restarted_gateway_knows_since_when_a_kernel_has_its_gpu_and_on_which_condition(tmp_path: Path) -> None:
    path = tmp_path / "tenures.json"
    plain = holding("plain", granted_at=80.0)
    backfilled = holding("small", granted_at=90.0, is_backfilled=True, passed=frozenset({"large"}))
    gone = holding("gone", granted_at=70.0, is_evicted=True, leaves_for="owed")
    saved(path, plain, backfilled, gone)
    later, clock = Tenures(path, Clock(7.0), LOG), Clock(7.0)
    offset = clock.wall() - clock.now()
    found = {
        one: resumed(holding(one), later.of(one), clock.now(), offset) for one in ("plain", "small", "gone", "new")
    }
    assert {one: held.granted_at for one, held in found.items()} == {
        "plain": pytest.approx(-13.0),  # 20 s ago, as before
        "small": pytest.approx(-3.0),
        "gone": pytest.approx(-23.0),
        "new": pytest.approx(-43.0),  # when it was requested
    }
    assert [one for one, held in found.items() if held.is_backfilled] == ["small"]
    assert found["small"].passed == {"large"}
    assert (found["gone"].is_evicted, found["gone"].leaves_for) == (True, "owed")
    assert not any(held.is_confirmed for held in found.values())


def test_a_file_that_was_cut_off_at_any_byte_gives_all_tenures_or_none(tmp_path: Path) -> None:
    path = tmp_path / "tenures.json"
    saved(path, holding("plain", granted_at=80.0), holding("small", granted_at=90.0, is_backfilled=True))
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert Tenures(path, Clock(), LOG).of("plain") is None
    path.write_bytes(whole)
    assert Tenures(path, Clock(), LOG).of("plain") == Tenure(980.0)


@pytest.mark.parametrize("granted_at", ["NaN", "1e999", '"x"', "null", "[]"])
def test_a_time_that_cannot_be_is_not_taken(tmp_path: Path, granted_at: str) -> None:
    path = tmp_path / "tenures.json"
    path.write_text(f'{{"grants": {{"k": {{"granted_at": {granted_at}, "passed": [], "left_for": ""}}}}}}')
    assert Tenures(path, Clock(), LOG).of("k") is None


@pytest.mark.parametrize("tenure", [Tenure(4600.0, ("large",)), None])
def test_no_moment_of_a_grant_is_later_than_now_after_the_clock_was_set_back(tenure: Tenure | None) -> None:
    clock = Clock(100.0)
    saved_by_a_fast_clock = replace(holding("small"), since=4500.0)
    found = resumed(saved_by_a_fast_clock, tenure, clock.now(), clock.wall() - clock.now())
    assert (found.queued_at, found.granted_at) == (100.0, 100.0)


def test_a_restarted_gateway_knows_what_teams_borrowed(tmp_path: Path) -> None:
    quotas = read_quotas("queue: {usageHalfLife: 1h}\nteams:\n  a: {users: [ann]}\n", "aliquot.yaml")
    nothing = (GpuShare(0), Bytes(0))
    node = Node(
        "node", "stub", (Device("GPU-0", 0, "Stub", Bytes(8), *nothing), Device("GPU-1", 1, "Stub", Bytes(8), *nothing))
    )
    grant = replace(holding("k").grant, quotas=(quota_of(Part("GPU-0", 0, 100, 8)),))
    held = LedgerSnapshot(node=node, holdings={"k": replace(holding("k"), grant=grant)}, quotas=quotas)

    async def run() -> None:
        clock = Clock()
        before = QueueMemory(tmp_path / "usage.json", clock, LOG)
        before.note(held)
        clock.at += 3600.0
        assert before.now().usage == {"a": pytest.approx(0.25)}, "half of the GPUs, for one half-life"
        await before.flush()
        after = QueueMemory(tmp_path / "usage.json", clock, LOG)
        assert after.now().usage == {}, "until it has seen the file's half-life"
        after.note(replace(held, holdings={}))
        assert after.now().usage == {"a": pytest.approx(0.25)}
        clock.at += 3600.0
        assert after.now().usage == {"a": pytest.approx(0.125)}
        await after.flush()

    asyncio.run(run())


def test_a_restarted_gateway_knows_for_how_long_kernels_had_their_gpu(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    first, failed = holding("first", granted_at=40.0), holding("failed", granted_at=98.0)
    runs = holding("runs", granted_at=70.0)

    async def run() -> None:
        before = QueueMemory(path, Clock(), LOG)
        before.note(LedgerSnapshot(holdings={"first": first, "failed": failed, "runs": runs}))
        before.note(LedgerSnapshot(holdings={"runs": runs}))
        await before.flush()

    asyncio.run(run())
    after = QueueMemory(path, Clock(), LOG)
    assert after.tenures() == [60.0], "one that had it for two seconds did not start"
    assert after.now().services is not None
    assert json.loads(path.read_text())["ended"] == [[60.0, 92.0]], "its owner's kernels had 60, 2 and 30 GPU-seconds"
    path.write_text(path.read_text().replace("60.0", "NaN"))
    assert QueueMemory(path, Clock(), LOG).tenures() == []


def test_a_queue_memory_that_was_cut_off_at_any_byte_is_read_as_none(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    quotas = read_quotas("queue: {usageHalfLife: 1h}\nteams:\n  a: {users: [ann]}\n", "aliquot.yaml")

    async def run() -> None:
        before = QueueMemory(path, Clock(), LOG)
        before.note(LedgerSnapshot(holdings={"k": holding("k", granted_at=40.0)}, quotas=quotas))
        before.note(LedgerSnapshot(quotas=quotas))
        await before.flush()

    asyncio.run(run())
    whole = path.read_bytes()
    assert QueueMemory(path, Clock(), LOG).tenures() == [60.0]
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        read = QueueMemory(path, Clock(), LOG)
        assert (read.tenures(), read.now().services) == ([], None)


def test_what_is_kept_follows_grants_that_come_change_and_end(tmp_path: Path) -> None:
    path = tmp_path / "tenures.json"
    stays, moved, gone = (holding(name, granted_at=80.0) for name in ("stays", "moved", "gone"))
    looks = [
        {"stays": stays, "moved": moved, "gone": gone},
        {"stays": stays, "moved": replace(moved, granted_at=90.0)},
        {"stays": stays, "moved": replace(moved, granted_at=90.0), "new": holding("new", granted_at=95.0)},
    ]

    async def write() -> None:
        tenures = Tenures(path, Clock(), LOG)
        for holdings in looks:
            tenures.note(LedgerSnapshot(holdings=holdings))
            await tenures.flush()

    asyncio.run(write())
    kept = {name: one["granted_at"] for name, one in json.loads(path.read_text())["grants"].items()}
    assert kept == {"stays": 980.0, "moved": 990.0, "new": 995.0}

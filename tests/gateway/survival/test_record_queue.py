"""Records on a slow disk.

The loop goes on, each kernel's records keep their order, and callers wait for those that must be
on disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from slow_disk import PATIENCE_SECONDS, SlowDisk

from jupyter_aliquot.gateway.state.record_queue import RecordQueue
from jupyter_aliquot.gateway.state.records import KernelRecord, KernelRecords, KernelState

LOG = logging.getLogger("test")
PENDING = KernelRecord("k1", "alice", "python3.gpu-0.25", KernelState.PENDING, 12.5, "b")
RUNNING = replace(PENDING, state=KernelState.RUNNING)
ENDING = replace(PENDING, state=KernelState.ENDING)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    disk = SlowDisk(tmp_path, monkeypatch)
    yield disk
    disk.gate.set()


def on(folder: Path) -> tuple[KernelState, ...]:
    """Return the states that a gateway that begins now would read."""
    return tuple(record.state for record in KernelRecords(folder, LOG).read())


def test_a_write_that_hangs_does_not_stop_the_loop(disk: SlowDisk, tmp_path: Path) -> None:
    async def scene() -> None:
        queue = RecordQueue(KernelRecords(tmp_path, LOG), LOG)
        disk.stop()
        queue.write(PENDING)
        waits = asyncio.ensure_future(queue.written("k1"))
        assert await asyncio.to_thread(disk.reached.wait, PATIENCE_SECONDS)
        await asyncio.sleep(0)
        assert not waits.done(), "it is not on the disk"
        assert on(tmp_path) == ()
        disk.gate.set()
        await waits
        assert on(tmp_path) == (KernelState.PENDING,)
        await queue.written("k1")
        await queue.written("another")

    asyncio.run(scene())


def test_the_last_word_of_a_kernel_stands_and_few_wait(disk: SlowDisk, tmp_path: Path) -> None:
    async def scene() -> None:
        queue = RecordQueue(KernelRecords(tmp_path, LOG), LOG)
        disk.stop()
        queue.write(PENDING)
        assert await asyncio.to_thread(disk.reached.wait, PATIENCE_SECONDS)
        for state in (KernelState.RUNNING, KernelState.RESTARTING) * 50:
            queue.write(replace(PENDING, state=state))
        queue.write(replace(RUNNING, kernel_id="k2"))
        queue.write(ENDING)
        disk.gate.set()
        await queue.close()
        assert on(tmp_path) == (KernelState.ENDING, KernelState.RUNNING)
        assert disk.replaced == ["k1.json", "k1.json", "k2.json"], "what was replaced while it waited is not written"

    asyncio.run(scene())


def test_a_kernel_that_is_forgotten_stays_forgotten(disk: SlowDisk, tmp_path: Path) -> None:
    async def scene() -> None:
        queue = RecordQueue(KernelRecords(tmp_path, LOG), LOG)
        disk.stop()
        queue.write(PENDING)
        assert await asyncio.to_thread(disk.reached.wait, PATIENCE_SECONDS)
        queue.write(RUNNING)
        queue.remove("k1")
        queue.remove("k1")
        disk.gate.set()
        await queue.written("k1")
        assert on(tmp_path) == ()
        queue.write(ENDING)
        await queue.written("k1")
        assert on(tmp_path) == (KernelState.ENDING,)

    asyncio.run(scene())


def test_a_crash_in_the_middle_of_a_write_leaves_the_record_before_it(disk: SlowDisk, tmp_path: Path) -> None:
    async def scene() -> None:
        queue = RecordQueue(KernelRecords(tmp_path, LOG), LOG)
        queue.write(PENDING)
        await queue.written("k1")
        disk.stop()
        queue.write(RUNNING)
        assert await asyncio.to_thread(disk.reached.wait, PATIENCE_SECONDS)
        assert on(tmp_path) == (KernelState.PENDING,), "what a crash at this moment leaves"
        disk.gate.set()
        await queue.close()

    asyncio.run(scene())


def test_what_was_said_before_the_stop_is_written_and_nothing_after_it(disk: SlowDisk, tmp_path: Path) -> None:
    async def scene() -> None:
        queue = RecordQueue(KernelRecords(tmp_path, LOG), LOG)
        disk.stop()
        queue.write(PENDING)
        queue.write(RUNNING)
        queue.freeze()
        queue.write(ENDING)
        queue.remove("k1")
        disk.gate.set()
        await queue.close()
        assert on(tmp_path) == (KernelState.RUNNING,)

    asyncio.run(scene())


def test_a_disk_that_takes_too_long_is_told_and_keeps_nothing(
    disk: SlowDisk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        queue = RecordQueue(KernelRecords(tmp_path, LOG), LOG, patience_seconds=0.05)
        disk.stop()
        queue.write(PENDING)
        await queue.written("k1")
        assert "record of kernel k1 could not be written within 0.05 s" in queue.problem
        assert "records=late" in caplog.text
        disk.gate.set()
        while queue.problem:
            await queue.written("k1")
        assert on(tmp_path) == (KernelState.PENDING,)
        await queue.close()

    asyncio.run(scene())


def test_a_caller_that_gives_up_takes_no_write_along(disk: SlowDisk, tmp_path: Path) -> None:
    async def scene() -> None:
        queue = RecordQueue(KernelRecords(tmp_path, LOG), LOG)
        disk.stop()
        queue.write(PENDING)
        assert await asyncio.to_thread(disk.reached.wait, PATIENCE_SECONDS)
        queue.write(RUNNING)
        waits = asyncio.ensure_future(queue.written("k1"))
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.wait({waits})
        disk.gate.set()
        await queue.written("k1")
        assert on(tmp_path) == (KernelState.RUNNING,)

    asyncio.run(scene())

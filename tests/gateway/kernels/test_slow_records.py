"""Starts, restarts and ends with a slow disk.

The server goes on serving, and does nothing before its record is on disk.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from slow_disk import PATIENCE_SECONDS, SlowDisk

from jupyter_aliquot.gateway.kernels.services import KernelServices
from jupyter_aliquot.gateway.state.persistence import KernelMemory
from jupyter_aliquot.gateway.state.record_queue import RecordQueue
from jupyter_aliquot.gateway.state.records import KernelRecords, KernelState
from jupyter_aliquot.gpu_hook.paths import RuntimeDir

LOG = logging.getLogger("test")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    folder = tmp_path / "records"
    folder.mkdir()
    return folder


@pytest.fixture
def services(services: KernelServices, records: Path, a_node: Any) -> KernelServices:
    queue = RecordQueue(KernelRecords(records, LOG), LOG, PATIENCE_SECONDS)
    memory = KernelMemory(queue, RuntimeDir(a_node.folder), "", "boot", 60.0)
    return replace(services, memory=memory)


@pytest.fixture
def disk(a_gateway: Any, records: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    disk = SlowDisk(records, monkeypatch)
    yield disk
    disk.gate.set()


def on(disk: SlowDisk) -> list[KernelState]:
    """Return the states that a gateway that begins now would read."""
    return [record.state for record in KernelRecords(disk.folder, LOG).read()]


async def held_up(disk: SlowDisk, fetch: Any, *path: str, **more: Any) -> asyncio.Future[Any]:
    """Ask while the disk hangs, and return the pending answer.

    Before that, the server has answered other requests.
    """
    disk.stop()
    asked = asyncio.ensure_future(fetch("api", "kernels", *path, request_timeout=120, **more))
    assert await asyncio.to_thread(disk.reached.wait, PATIENCE_SECONDS)
    await fetch("api", "kernels")
    await fetch("api", "status")
    assert not asked.done(), "it was answered before it was noted"
    return asked


async def test_nothing_is_done_before_it_is_noted_and_other_requests_go_on(
    a_gateway: Any, jp_fetch: Any, until: Any, disk: SlowDisk
) -> None:
    body = json.dumps({"name": "light.gpu-0.25"})
    starting = await held_up(disk, jp_fetch, method="POST", body=body)
    assert on(disk) == []
    assert a_gateway.held() == set(), "nothing is reserved for a start that could be lost"
    disk.gate.set()
    kernel_id = json.loads((await starting).body)["id"]
    assert on(disk) in ([KernelState.PENDING], [KernelState.RUNNING])
    await until(lambda: on(disk) == [KernelState.RUNNING])
    kernel = a_gateway.kernels.get_kernel(kernel_id)
    await asyncio.shield(kernel.ready)

    first_pid = kernel.provisioner.pid
    more = {"method": "POST", "allow_nonstandard_methods": True}
    restarting = await held_up(disk, jp_fetch, kernel_id, "restart", **more)
    assert on(disk) == [KernelState.RUNNING]
    assert await kernel.is_alive()
    assert kernel.provisioner.pid == first_pid
    disk.gate.set()
    await restarting
    assert kernel.provisioner.pid != first_pid
    await until(lambda: on(disk) == [KernelState.RUNNING])

    ending = await held_up(disk, jp_fetch, kernel_id, method="DELETE")
    assert on(disk) == [KernelState.RUNNING]
    assert await kernel.is_alive()
    disk.gate.set()
    await ending
    await until(lambda: on(disk) == [])

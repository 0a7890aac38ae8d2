"""The agent's readings of a driver.

Memory comes from one record, MIG slices are refused, and the agent does not wait for a hanging
driver.
"""

from __future__ import annotations

import asyncio
import os
import threading
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from jupyter_aliquot.gpu_hook.agent.devices import libraries, nvml
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceMonitor, DeviceReading
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts

GIB = 1 << 30
FACTS = DeviceFacts(uuid="GPU-a", index=0, name="H", memory_bytes=GIB)


@pytest.mark.parametrize(("has_newer", "want"), [(True, (139 * GIB, 10 * GIB)), (False, (140 * GIB, 11 * GIB))])
def test_reserved_memory_is_subtracted_once(
    has_newer: bool, want: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's older record counts the reserved GiB as used, the newer one does not."""

    def ask(handle: object, version: int | None = None) -> Any:
        if version is None:
            return SimpleNamespace(total=140 * GIB, used=11 * GIB)
        if not has_newer:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(total=140 * GIB, used=10 * GIB, reserved=GIB)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", ask)
    assert nvml._read_memory(object()) == want


@pytest.mark.parametrize(("modes", "want"), [((1, 0), (1,)), ((0, 1), (0,)), ((0, 0), (0, 1))])
def test_a_device_in_slices_is_left_out(
    modes: tuple[int, ...], want: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory = SimpleNamespace(total=GIB, used=0, reserved=0)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", lambda handle: (modes[handle], modes[handle]))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: f"GPU-{handle}")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: "H")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda handle, version=None: memory)
    source = object.__new__(nvml.NvmlSource)
    source._absent, source._handles, source._last_look, source._domains = [0, 1], [], {}, {}
    monkeypatch.setattr(nvml, "domains", lambda handles: [0] * len(handles))
    problem = source._find_absent()
    assert tuple(facts.index for facts, _ in source._handles) == want
    assert ("turn it off (nvidia-smi -i" in problem) is (1 in modes)
    assert ("has MIG on" in caplog.text) is (1 in modes)


class HangingSource:
    """A source whose second look lasts until the test releases it."""

    def __init__(self) -> None:
        self.looks = 0
        self.goes_on = threading.Event()

    def read(self) -> tuple[DeviceReading, ...]:
        self.looks += 1
        if self.looks == 2:
            self.goes_on.wait(10)
        return (DeviceReading(FACTS),)

    def close(self) -> None: ...


def test_the_first_look_has_a_deadline_too_and_its_answer_is_taken_when_it_comes() -> None:
    async def scenario() -> None:
        source = HangingSource()
        source.looks = 1
        monitor = DeviceMonitor(source, lambda: None, deadline_seconds=0.01)
        await monitor.look()
        assert (monitor.readings, monitor.is_silent) == ((), True)
        assert monitor.problem == "the driver has not answered for 0.01 s"
        source.goes_on.set()
        while not monitor.readings:
            await monitor.look()
        assert [reading.is_lost for reading in monitor.readings] == [False]
        assert (monitor.problem, source.looks) == ("", 2)

    asyncio.run(scenario())


def test_a_driver_that_hangs_loses_its_devices_until_it_answers() -> None:
    async def scenario() -> None:
        source, seen = HangingSource(), []
        monitor = DeviceMonitor(source, lambda: seen.append(monitor.readings[0].is_lost), deadline_seconds=0.05)
        await monitor.look()
        await monitor.look()
        await monitor.look()
        assert (seen, source.looks) == ([False, True, True], 2)
        source.goes_on.set()
        while seen[-1]:
            await monitor.look()
        assert source.looks == 2

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("version", "want"),
    [("glibc 2.28", False), ("glibc 2.34", False), ("glibc 2.35", True), ("glibc 2.41.9000", True), ("", False)],
)
def test_an_audit_library_is_used_where_it_costs_nothing(
    version: str, want: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "confstr", lambda name: version)
    assert libraries.audit_is_cheap() is want

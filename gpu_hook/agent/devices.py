"""The devices of this node as last seen, and the GPU time of processes. Reads a source in a thread, every second.

The source (NVML, or a test's) may block; the loop never does. A device that cannot be read is lost until it can.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from .ledger import DeviceFacts

log = logging.getLogger(__name__)


class DriverError(Exception):
    """The driver below does not start. The message is for the user."""


@dataclass(frozen=True)
class DeviceReading:
    """One look at one device. ``busy`` is GPU time in seconds by pid, since the look before."""

    facts: DeviceFacts
    used_bytes: int = 0
    utilization_percent: int = 0
    temperature_celsius: int | None = None
    power_watts: float | None = None
    is_lost: bool = False
    busy: Mapping[int, float] = field(default_factory=dict)


class DeviceSource(Protocol):
    """Where readings come from. Called from one thread at a time, and may block."""

    def read(self) -> tuple[DeviceReading, ...]: ...

    def close(self) -> None: ...


class DeviceMonitor:
    """Owns the thread that reads the source. ``saw`` is called on the loop after each look."""

    def __init__(self, source: DeviceSource, saw: Callable[[], None]) -> None:
        self._source = source
        self._saw = saw
        self._thread = ThreadPoolExecutor(1, "aliquot-devices")
        self._wanted = asyncio.Event()
        self.readings: tuple[DeviceReading, ...] = ()

    async def look(self) -> None:
        """Read the source once. A source that fails as a whole loses all devices, not the agent."""
        loop = asyncio.get_running_loop()
        try:
            self.readings = await loop.run_in_executor(self._thread, self._source.read)
        except DriverError as error:
            log.warning("event=devices_unreadable reason=%r", str(error))
            self.readings = tuple(DeviceReading(reading.facts, is_lost=True) for reading in self.readings)
        self._saw()

    def hurry(self) -> None:
        """Look soon: a process left, and its last GPU time is still to be had."""
        self._wanted.set()

    async def run(self, period_seconds: float) -> None:
        """Look every period, and when hurried, until cancelled."""
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), period_seconds)
            self._wanted.clear()
            try:
                await self.look()
            except Exception:
                log.exception("event=look_failed")

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._source.close)
        self._thread.shutdown(wait=False)

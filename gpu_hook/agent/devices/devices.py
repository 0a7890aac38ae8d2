"""The devices of this node as last seen, and the GPU time of processes.

The monitor reads a source in a thread, every second. The source (NVML, or a test's) may block; the
loop never does. A device that cannot be read is lost until it can.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, cast

from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts
from jupyter_aliquot.gpu_hook.waiting import within

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")
_CLOSE_SECONDS = 5.0
DEADLINE_SECONDS = 5.0  # for one look: after it the devices count as lost, until the driver answers


class DriverError(Exception):
    """The driver does not start. The message is for the user."""


@dataclass(frozen=True)
class DeviceReading:
    """One look at one device.

    ``busy`` is GPU time in seconds by pid, of the last ``covered_seconds``, and ``moving`` the part of
    them in which the device's memory was read or written for it; the software GPU tells none.
    ``processes`` are those
    that the driver sees on the device, with their bytes there (None: the driver does not report
    them). ``compute_mode`` (``default``, ``exclusive``, ``prohibited``) and ``is_persistent`` are
    the driver's settings; empty and None where it does not tell them.
    """

    facts: DeviceFacts
    used_bytes: int = 0
    utilization_percent: int = 0
    temperature_celsius: int | None = None
    power_watts: float | None = None
    is_lost: bool = False
    busy: Mapping[int, float] = field(default_factory=dict)
    moving: Mapping[int, float] = field(default_factory=dict)
    covered_seconds: float = 0.0
    processes: Mapping[int, int | None] = field(default_factory=dict)
    driver_version: str = ""
    compute_mode: str = ""
    is_persistent: bool | None = None
    domain: int | None = None  # the number of its NVLink or PCIe domain; None: not known


class DeviceSource(Protocol):
    """A source of readings. It is called from one thread at a time, and may block."""

    def read(self) -> tuple[DeviceReading, ...]: ...

    def close(self) -> None: ...


class LateSource:
    """Opens a source at its first read, since opening it takes as long as the driver's start.

    Implements DeviceSource.
    """

    def __init__(self, open_source: Callable[[], DeviceSource]) -> None:
        self._open_source = open_source
        self._source: DeviceSource | None = None

    def read(self) -> tuple[DeviceReading, ...]:
        if self._source is None:
            self._source = self._open_source()
        return self._source.read()

    def close(self) -> None:
        if self._source is not None:
            self._source.close()


class DeviceMonitor:
    """Reads the source, one look at a time.

    It calls ``saw`` on the loop after each look. ``problem`` says why the last look failed; it is
    empty where it did not.
    """

    def __init__(
        self, source: DeviceSource, saw: Callable[[], None], deadline_seconds: float = DEADLINE_SECONDS
    ) -> None:
        self._source = source
        self._deadline_seconds = deadline_seconds
        self._saw = saw
        self._look: asyncio.Future[tuple[DeviceReading, ...]] | None = None
        # two looks with the same answer would book its GPU time twice
        self._one_at_a_time = asyncio.Lock()
        self._wanted = asyncio.Event()
        # the timer of the look that was requested last
        self._next: asyncio.TimerHandle | None = None
        self.began = 0.0  # when the last look began, on the monotonic clock
        self.readings: tuple[DeviceReading, ...] = ()
        self.problem = ""

    @property
    def is_silent(self) -> bool:
        """Return whether the driver still owes the answer to a look."""
        return self._look is not None and not self._look.done()

    async def look(self) -> None:
        """Read the source once.

        A source that fails as a whole, or hangs, loses all devices, not the agent. A driver that
        hangs (a GPU that fell off its bus) keeps its thread; the next look waits for the same
        answer.
        """
        async with self._one_at_a_time:
            await self._look_alone()

    async def _look_alone(self) -> None:
        began = time.monotonic()
        if self._look is None or self._look.done():
            self._look = call_in_thread(self._source.read)
        await asyncio.wait([self._look], timeout=self._deadline_seconds)
        try:
            if not self._look.done():
                raise DriverError(f"the driver has not answered for {self._deadline_seconds:g} s")
            self.readings, self.problem = self._look.result(), ""
        except DriverError as error:
            self.problem = str(error)
            log.warning("event=devices_unreadable reason=%r", self.problem)
            self.readings = tuple(DeviceReading(reading.facts, is_lost=True) for reading in self.readings)
        self.began = began
        self._saw()

    def notify(self) -> None:
        """Sample the devices soon: a process left, and its last GPU time can still be read."""
        self._wanted.set()

    def look_within(self, seconds: float) -> None:
        """Look in so many seconds, instead of at the time that was requested last.

        So looks that request looks do not multiply.
        """
        if self._next is not None:
            self._next.cancel()
        self._next = asyncio.get_running_loop().call_later(seconds, self.notify)

    async def run(self, period_seconds: float) -> None:
        """Look every period, and when notified, until cancelled."""
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await within(self._wanted.wait(), period_seconds)
            self._wanted.clear()
            try:
                await self.look()
            except Exception:
                log.exception("event=look_failed")

    async def close(self) -> None:
        """End the source, unless the driver hangs: then it ends with the process."""
        if self._next is not None:
            self._next.cancel()
        try:
            if self._look is not None:
                await asyncio.wait([self._look], timeout=_CLOSE_SECONDS)
            if self._look is None or self._look.done():
                await within(call_in_thread(self._source.close), _CLOSE_SECONDS)
            else:
                log.error("event=driver_hangs seconds=%g", _CLOSE_SECONDS)
        except (DriverError, asyncio.TimeoutError) as error:
            log.warning("event=driver_not_ended reason=%r", str(error))


def call_in_thread(call: Callable[[], _Result]) -> asyncio.Future[_Result]:
    """Run the call in a daemon thread of its own.

    A hanging driver must not keep the agent from ending.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[_Result] = loop.create_future()

    def deliver(result: _Result | None, error: Exception | None) -> None:
        if outcome.done():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(cast(_Result, result))

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except Exception as problem:
            error = problem
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits for the result
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=run, name="aliquot-devices", daemon=True).start()
    return outcome

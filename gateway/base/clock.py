"""Time as an argument: what the queue waits by. Tests pass a clock that they turn by hand."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timezone
from typing import Protocol


class Clock(Protocol):
    """Seconds that only go forward, seconds that people read, and waiting."""

    def now(self) -> float:
        """Monotonic seconds: deadlines and durations."""

    def wall(self) -> float:
        """Seconds since the epoch: what is shown."""

    async def sleep(self, seconds: float) -> None:
        """Wait for this long."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def iso(seconds: float | None) -> str | None:
    """Seconds since the epoch, as the REST API tells moments."""
    return None if seconds is None else iso_moment(seconds)


def iso_moment(seconds: float) -> str:
    """The same for a moment that is known."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")

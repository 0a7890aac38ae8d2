"""The clock as an argument. Tests pass one that they turn by hand."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timezone
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock, the time of day, and a way to wait."""

    def now(self) -> float:
        """Return monotonic seconds, for deadlines and durations."""

    def wall(self) -> float:
        """Return seconds since the epoch, for users."""

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
    """Return seconds since the epoch as the REST API writes them."""
    return None if seconds is None else iso_moment(seconds)


def iso_moment(seconds: float) -> str:
    """The same for a moment that is known."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""A token bucket: how many messages of one kernel the agent reads in a second. Pure; the clock is passed in."""

from __future__ import annotations

from collections.abc import Callable


class TokenBucket:
    """``burst`` tokens at most, and ``rate`` new ones each second. ``clock`` tells seconds."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._filled_at = clock()

    def take(self, tokens: float = 1.0) -> None:
        """Take tokens that the bucket may not have: the debt is at most a burst."""
        self._fill()
        self._tokens = max(-self._burst, self._tokens - tokens)

    def seconds_until(self, tokens: float = 1.0) -> float:
        """How long it takes until the bucket has so many; 0: it has them."""
        self._fill()
        return max(0.0, (tokens - self._tokens) / self._rate)

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now

"""Rate limits: token buckets, a throttle, and waits that double. Pure; the caller passes the time.

All times are seconds on a clock that only goes forward.
"""

from __future__ import annotations

from collections.abc import Hashable

_MOST_KEYS = 10_000
# The key for all callers that come when there is no space for more keys.
_OTHERS = ""
_MOST_DOUBLINGS = 30


class TokenBucket:
    """A bucket of at most *burst* tokens, full at first, that gets *rate* new ones each second."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = now

    def take(self, now: float) -> float:
        """Take a token and return 0; without taking one, return the seconds until there is one."""
        wait = self.seconds_until(now)
        if not wait:
            self._tokens -= 1
        return wait

    def charge(self, tokens: float, now: float) -> None:
        """Take tokens that the bucket may not have. The debt is at most a burst."""
        self._fill(now)
        self._tokens = max(-self._burst, self._tokens - tokens)

    def seconds_until(self, now: float, tokens: float = 1.0) -> float:
        """Return how long it takes until the bucket has so many tokens; 0 where it has them."""
        self._fill(now)
        return max(0.0, (tokens - self._tokens) / self._rate)

    def is_full(self, now: float) -> bool:
        """Return whether it is as a new bucket would be."""
        self._fill(now)
        return self._tokens >= self._burst

    def _fill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = max(now, self._at)


class TokenBuckets:
    """One bucket for each key.

    Full buckets are dropped: a new one would answer the same.
    """

    def __init__(self, rate: float, burst: float, most_keys: int = _MOST_KEYS) -> None:
        self._rate = rate
        self._burst = max(1.0, burst)
        self._most_keys = most_keys
        self._buckets: dict[str, TokenBucket] = {}
        self._swept_at = 0.0

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, now: float) -> float:
        """Take a token as TokenBucket.take does.

        When there is no space for more keys, all new ones share a bucket.
        """
        if now - self._swept_at > self._burst / self._rate:
            self._swept_at = now
            self._buckets = {key: one for key, one in self._buckets.items() if not one.is_full(now)}
        if key not in self._buckets and len(self._buckets) >= self._most_keys:
            key = _OTHERS
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self._rate, self._burst, now)
        return bucket.take(now)


class Throttle:
    """Lets one call pass in *seconds* for each key.

    A key for which there is no space does not pass.
    """

    def __init__(self, seconds: float, most_keys: int = _MOST_KEYS) -> None:
        self._seconds = seconds
        self._most_keys = most_keys
        self._passed: dict[Hashable, float] = {}

    def passes(self, key: Hashable, now: float) -> bool:
        """Return whether the call passes now, and remember that it did."""
        last = self._passed.get(key)
        if last is not None and now - last < self._seconds:
            return False
        if len(self._passed) >= self._most_keys:
            self._passed = {one: at for one, at in self._passed.items() if now - at < self._seconds}
        if len(self._passed) >= self._most_keys:
            return False
        self._passed[key] = now
        return True


class Backoff:
    """Waits between the tries of a failing call.

    They begin at *first_seconds*, and double up to *longest_seconds*.
    """

    def __init__(self, first_seconds: float, longest_seconds: float) -> None:
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._failures = 0

    def next_seconds(self) -> float:
        """Return how long to wait after one more failure."""
        self._failures += 1
        return backoff_seconds(self._first_seconds, self._longest_seconds, self._failures)

    def reset(self) -> None:
        """Begin anew after a success."""
        self._failures = 0


def backoff_seconds(first_seconds: float, longest_seconds: float, failures: int) -> float:
    """Return the wait after so many failures in a row. There was at least one."""
    return min(longest_seconds, first_seconds * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))

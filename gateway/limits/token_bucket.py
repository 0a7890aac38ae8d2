"""How fast somebody may go on: so many at once, and then so many a second. Bounded memory; time is an argument."""

from __future__ import annotations

_MOST_KEYS = 10_000
# All who come when there is no room to tell more of them apart.
_OTHERS = ""


class TokenBucket:
    """Full at first. ``rate`` tokens a second, never more than ``burst``."""

    __slots__ = ("_at", "_level")

    def __init__(self, burst: float, now: float) -> None:
        self._level = burst
        self._at = now

    def take(self, rate: float, burst: float, now: float) -> float:
        """0 and one token less; or, without taking any, the seconds until there is one."""
        self._level, self._at = self.level(rate, burst, now), max(now, self._at)
        if self._level >= 1:
            self._level -= 1
            return 0.0
        return (1 - self._level) / rate

    def level(self, rate: float, burst: float, now: float) -> float:
        """How many tokens there are."""
        return min(burst, self._level + max(0.0, now - self._at) * rate)


class TokenBuckets:
    """One bucket for each key. A full one says nothing that a new one would not: those are dropped."""

    def __init__(self, rate: float, burst: float, most_keys: int = _MOST_KEYS) -> None:
        self._rate = rate
        self._burst = max(1.0, burst)
        self._most_keys = most_keys
        self._buckets: dict[str, TokenBucket] = {}
        self._swept_at = 0.0

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, now: float) -> float:
        """As TokenBucket.take. Where nobody new can be told apart any more, all new ones share a bucket."""
        if now - self._swept_at > self._burst / self._rate:
            self._sweep(now)
        if key not in self._buckets and len(self._buckets) >= self._most_keys:
            key = _OTHERS
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self._burst, now)
        return bucket.take(self._rate, self._burst, now)

    def _sweep(self, now: float) -> None:
        self._swept_at = now
        rate, burst = self._rate, self._burst
        self._buckets = {key: one for key, one in self._buckets.items() if one.level(rate, burst, now) < burst}

"""The decision whether a request is sent again, and when. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

# RFC 9110: sent twice, these have the effect of once.
IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_NOT_NOW = frozenset({429, 503})
_OF_A_PROXY = frozenset({502, 503, 504})


@dataclass(frozen=True)
class Outcome:
    """The end of one attempt. A status of None: no answer came."""

    status: int | None = None
    # Whether the answer has the form of the API: a proxy's error page has not.
    is_api_answer: bool = False
    retry_after_seconds: float | None = None


@dataclass(frozen=True)
class Retries:
    """The rules of repeated requests.

    Only GET, PUT and DELETE are repeated: where no answer came, where the server asked for it with
    `Retry-After` (429, 503), and where a proxy answered in the gateway's place (502, 503, 504).

    Attributes:
        attempts: The most attempts for one call, the first included; 1 repeats nothing.
        first_wait_seconds: The wait before the second attempt; it doubles with each further one.
        longest_wait_seconds: The longest wait. A server that asks for a longer one gets no repeat.
    """

    attempts: int = 3
    first_wait_seconds: float = 0.5
    longest_wait_seconds: float = 30.0

    def wait_before_next(self, method: str, attempt: int, outcome: Outcome, chance: float) -> float | None:
        """Return the seconds to wait before the next attempt; None if there is none.

        Args:
            method: The HTTP method.
            attempt: The number of the attempt that ended, from 1.
            outcome: Its end.
            chance: From 0 to 1; it spreads clients that failed together.
        """
        if method not in IDEMPOTENT or attempt >= self.attempts or not _is_passing(outcome):
            return None
        if outcome.retry_after_seconds is not None:
            asked = outcome.retry_after_seconds
            return asked if asked <= self.longest_wait_seconds else None
        return self.backoff(attempt, chance)

    def backoff(self, attempt: int, chance: float) -> float:
        """Return the wait after so many failures in a row: doubled each time, and spread by half."""
        doubled = self.first_wait_seconds * 2.0 ** min(attempt - 1, 30)
        return min(doubled, self.longest_wait_seconds) * (0.5 + chance / 2)


def _is_passing(outcome: Outcome) -> bool:
    if outcome.status is None:
        return True
    if outcome.status in _NOT_NOW and outcome.retry_after_seconds is not None:
        return True
    return outcome.status in _OF_A_PROXY and not outcome.is_api_answer


def read_retry_after(text: str | None, now: datetime) -> float | None:
    """Return the seconds that a `Retry-After` header asks for; None for none, or an unreadable one.

    The header has seconds or a date (RFC 9110).
    """
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdigit():
        return float(text.strip()[:9])
    try:
        until = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    known = until if until.tzinfo is not None else until.replace(tzinfo=timezone.utc)
    return max((known - now).total_seconds(), 0.0)

"""Requests that come again because their client does not know whether they arrived: whether one may go to the kernel.

Pure; knows no sockets. One that was seen is dropped elsewhere: here is decided about those that were not, and what
cannot be known to be new is not run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .messages import CONTENT, HEADER, METADATA, read_object

# In the metadata of such a request. From a client to its gateway: {"age": seconds since it was sent first, "runs":
# whether it is still wanted}; from there on "sent", seconds since the epoch by the clock of this machine, for "age".
MARK = "aliquot_again"
NOT_RUN = "NotRun"
_MARK_BYTES = MARK.encode()
# What this relay says of itself in its hello; relays of before would run again what says that it comes again.
CAPABILITY = "takes_again"
# How much later than it was a request may seem to have been sent: clocks are set, and kernels begin before they say so.
_DOUBT_SECONDS = 5.0
# The same where ids were forgotten: it may have waited for its turn before it was seen.
_TURN_SECONDS = 60.0
# Of replies that are larger nobody reads how they ended.
_LONGEST_READ = 1 << 16

NOBODY_KNOWS = (
    "The connection to the kernel was lost when this was sent, and nobody knows whether it ran: it was not sent to the "
    "kernel again, because {why}. Look, and run it again if you want it."
)
LATE = "it came late, was lost twice, or an interrupt or a restart was asked meanwhile"
BEGAN = "the kernel, or its relay, was started since, or just before"
FAILED = "something else failed, was interrupted or was lost since"
FORGOT = "so much was sent since that it cannot be told from what came before"
NO_RELAY = "no relay is there that could tell whether it came before"


@dataclass(frozen=True)
class Again:
    """``sent``: first, in seconds since the epoch; ``forgot_at``: when a request was seen whose id is known no more."""

    sent: float
    runs: bool
    forgot_at: float = -math.inf


def read_again(message: Sequence[Any], forgot_at: float = -math.inf) -> Again | None:
    """Of a message from its delimiter on. None: it does not say that it comes again."""
    if len(message) <= METADATA or _MARK_BYTES not in bytes(message[METADATA]):
        return None
    told = read_object(message[METADATA]).get(MARK)
    if not isinstance(told, dict):
        return None
    sent = seconds_of(told.get("sent"))
    return Again(-math.inf if sent is None else sent, told.get("runs") is True, forgot_at)


def comes_again(message: Sequence[Any]) -> bool:
    """Whether it says so, of a message from its delimiter on."""
    return read_again(message) is not None


def seconds_of(told: Any) -> float | None:
    """What a client says is a number of seconds; None for what is none."""
    if isinstance(told, bool) or not isinstance(told, int | float):
        return None
    try:
        seconds = float(told)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) else None


class Doubts:
    """What has happened since a request was sent, so that it may not be what its user wants now, or not be new.

    A relay before this one may have handed it on. Times are seconds since the epoch.
    """

    def __init__(self, began_at: float) -> None:
        self._began_at = began_at
        self._failed_at = -math.inf

    def why_not(self, again: Again, started_at: float, now: float) -> str:
        """Why one that was not seen must not go to the kernel; empty: it may.

        ``started_at``: this run of the kernel, 0 for none. What came behind one that may not must not, either.
        """
        why = self._reason(again, started_at)
        if why:
            self._failed_at = now
        return why and NOBODY_KNOWS.format(why=why)

    def _reason(self, again: Again, started_at: float) -> str:
        if not again.runs:
            return LATE
        if not started_at or again.sent < max(started_at, self._began_at) + _DOUBT_SECONDS:
            return BEGAN
        if again.sent <= self._failed_at:
            return FAILED
        return FORGOT if again.sent < again.forgot_at + _TURN_SECONDS else ""

    def failed(self, now: float) -> None:
        """A cell failed, or an interrupt was asked: what waited behind it is not run."""
        self._failed_at = now

    def saw_reply(self, message: Sequence[Any], now: float) -> None:
        """From the kernel, from its delimiter on."""
        if len(message) <= CONTENT or b'"execute_reply"' not in bytes(message[HEADER]):
            return
        content = message[CONTENT]
        if len(content) > _LONGEST_READ or read_object(content).get("status") != "ok":
            self.failed(now)

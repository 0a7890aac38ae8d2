"""What a kernel's relay says of its open requests. Kept, shown, and judged by `idleness`; it holds no reservation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Activity:
    """``open`` requests, ``work`` of which may use the device; ``since`` when, in seconds since the epoch.

    ``input``: since when all of that work waits for its user's input(), as far as the relay tells that.
    """

    open: int
    work: int
    since: float | None
    input: float | None = None

"""What a kernel's relay says of its open requests. Kept and shown, without effect; it holds no reservation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Activity:
    """``open`` requests, ``work`` of which may use the device; ``since`` when, in seconds since the epoch."""

    open: int
    work: int
    since: float | None

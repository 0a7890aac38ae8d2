"""An event of GET /aliquot/api/v1/events, and its parts.

events/kernel_event.yaml says what each field means. An event describes one change of one kernel;
figures that change all the time are in the status alone.
"""

from __future__ import annotations

from typing import TypedDict

from .kernel import MemoryQueue


class EventResize(TypedDict):
    """A change of size that is queued, was granted, or was withdrawn."""

    state: str
    gpus: float
    requested_memory_bytes: int | None
    priority: str
    reason: str | None
    position: int | None


class Eviction(TypedDict):
    """An eviction: memory or a size taken from a kernel, for another kernel or by another user."""

    code: str
    by: str
    is_quiet: bool


class KernelEvent(TypedDict):
    """One change of one kernel. The message that carries it also has a `schema_id`."""

    kernel_id: str
    owner: str
    label: str
    kind: str
    state: str
    was: str | None
    reason: str | None
    gpus: float
    memory_limit_bytes: int
    used_bytes: int
    over_limit_bytes: int
    swapped_bytes: int
    paused: bool
    queued: MemoryQueue | None
    resize: EventResize | None
    evicted: Eviction | None

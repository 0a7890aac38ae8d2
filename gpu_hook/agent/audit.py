"""Looks for memory on the devices that no hook charged: processes that escaped, and what contexts take for themselves.

Compares what the driver sees with what the hooks said. It tells; it ends nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .devices import DeviceReading
from .process_facts import Families, read_facts

log = logging.getLogger(__name__)

_CONFIRM_SECONDS = (
    0.9  # one look may fall between an allocation and its charge on the page; two, a second apart, may not
)
_SETTLE_SECONDS = 2.0  # hooks of kernels that are older than this agent come back to it within a second
NOT_REGISTERED = "not registered"
PAST_ITS_CHARGE = "past its charge"


@dataclass(frozen=True)
class Sighting:
    """A process on a device with memory that no hook charged. ``used_bytes`` None: the driver does not tell."""

    pid: int
    name: str
    uuid: str
    index: int
    used_bytes: int | None
    charged_bytes: int
    why: str


@dataclass(frozen=True)
class KernelProcesses:
    """What the agent knows of one kernel's processes. ``charged``: by pid and UUID, of those that registered."""

    kernel_id: str
    folder: str
    members: frozenset[int]
    registered: frozenset[int]
    awaited: frozenset[int]  # were registered, and are about to end or to come back
    charged: Mapping[tuple[int, str], int]


@dataclass(frozen=True)
class Findings:
    """Of one look. ``contexts``: bytes by kernel and UUID that contexts took beside what was charged."""

    unhooked: Mapping[str, tuple[Sighting, ...]] = field(default_factory=dict)
    foreign: tuple[Sighting, ...] = ()
    contexts: Mapping[tuple[str, str], int] = field(default_factory=dict)


class Audit:
    """Remembers from look to look what was seen before. ``slack_bytes``: of each process on each device."""

    def __init__(self, slack_bytes: int) -> None:
        self._slack_bytes = slack_bytes
        self._first_look: float | None = None
        self._past_since: dict[tuple[int, str], float] = {}
        self._told: frozenset[tuple[str, int, str]] = frozenset()
        self.findings = Findings()

    def look(self, readings: Iterable[DeviceReading], kernels: Sequence[KernelProcesses], now: float) -> None:
        """Called after each look at the devices, with the time of an injected clock."""
        self._first_look = now if self._first_look is None else self._first_look
        members = {pid: kernel.kernel_id for kernel in kernels for pid in kernel.members}
        families = Families(members, {kernel.folder: kernel.kernel_id for kernel in kernels})
        by_id = {kernel.kernel_id: kernel for kernel in kernels}
        awaited = frozenset(pid for kernel in kernels for pid in kernel.awaited)
        found = _Found()
        for reading in readings:
            for pid, used_bytes in sorted(reading.processes.items()):
                facts = read_facts(pid)
                if facts is None or pid in awaited:
                    continue  # it ended since the driver was asked, or will say itself what it has
                kernel = by_id.get(families.kernel_of(pid) or "")
                charged = kernel.charged.get((pid, reading.facts.uuid), 0) if kernel else 0
                device = reading.facts
                seen = Sighting(pid, facts.name, device.uuid, device.index, used_bytes, charged, NOT_REGISTERED)
                self._judge(found, kernel, seen, now)
        self._past_since = found.past_since
        unhooked = {kernel_id: tuple(sightings) for kernel_id, sightings in found.unhooked.items()}
        self.findings = Findings(unhooked, tuple(found.foreign), found.contexts)
        self._tell()

    def _judge(self, found: _Found, kernel: KernelProcesses | None, seen: Sighting, now: float) -> None:
        if kernel is None:
            found.foreign.append(seen)
        elif seen.pid not in kernel.registered:
            if self._first_look is not None and now - self._first_look >= _SETTLE_SECONDS:
                found.add(kernel, seen)
        elif seen.used_bytes is not None:
            footprint = max(0, seen.used_bytes - seen.charged_bytes)
            key = (kernel.kernel_id, seen.uuid)
            found.contexts[key] = found.contexts.get(key, 0) + footprint
            if footprint > self._slack_bytes:
                since = self._past_since.get((seen.pid, seen.uuid), now)
                found.past_since[(seen.pid, seen.uuid)] = since
                if now - since >= _CONFIRM_SECONDS:
                    found.add(kernel, replace(seen, why=PAST_ITS_CHARGE))

    def _tell(self) -> None:
        """Log what is new, once."""
        seen = {(k, s.pid, s.uuid): s for k, sightings in self.findings.unhooked.items() for s in sightings}
        for key, sighting in seen.items():
            if key not in self._told:
                log.warning(
                    "event=unhooked_process kernel=%s pid=%d name=%r device=%d used_bytes=%s charged_bytes=%d why=%r",
                    key[0],
                    sighting.pid,
                    sighting.name,
                    sighting.index,
                    sighting.used_bytes,
                    sighting.charged_bytes,
                    sighting.why,
                )
        self._told = frozenset(seen)


@dataclass
class _Found:
    """What one look finds, while it looks."""

    unhooked: dict[str, list[Sighting]] = field(default_factory=dict)
    foreign: list[Sighting] = field(default_factory=list)
    contexts: dict[tuple[str, str], int] = field(default_factory=dict)
    past_since: dict[tuple[int, str], float] = field(default_factory=dict)

    def add(self, kernel: KernelProcesses, sighting: Sighting) -> None:
        self.unhooked.setdefault(kernel.kernel_id, []).append(sighting)

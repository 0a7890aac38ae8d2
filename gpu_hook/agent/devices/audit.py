"""Find memory on the devices that no hook charged: untracked processes, and the memory of contexts.

The audit compares the driver's list with the hooks' charges. It reports, and ends no process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jupyter_aliquot.gpu_hook.agent.base.process_facts import Families
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts

from .devices import DeviceReading, call_in_thread

log = logging.getLogger(__name__)

# One look may fall between an allocation and its charge on the page; two looks a second apart do
# not.
_CONFIRM_SECONDS = 0.9
_SETTLE_SECONDS = 2.0  # hooks of kernels that are older than this agent come back to it within a second
_SLOW_SECONDS = 10.0
NOT_REGISTERED = "not registered"
PAST_ITS_CHARGE = "past its charge"


@dataclass(frozen=True)
class Finding:
    """A process with memory on a device that no hook charged.

    ``used_bytes`` None: the driver does not report it.
    """

    pid: int
    name: str
    uuid: str
    index: int
    used_bytes: int | None
    charged_bytes: int
    why: str


@dataclass(frozen=True)
class Holding:
    """One process's bytes on one device, as its hook reports.

    ``most_bytes`` is the most that it may have held since the last look: the driver's figure is a
    moment old, and may include bytes that the process has freed since.
    """

    charged_bytes: int = 0
    most_bytes: int = 0


@dataclass(frozen=True)
class KernelProcesses:
    """The agent's record of one kernel's processes.

    ``holdings`` are by pid and UUID, for the processes that registered.
    """

    kernel_id: str
    folder: str
    members: frozenset[int]
    registered: frozenset[int]
    # processes that were registered with the earlier agent, and are expected back
    awaited: frozenset[int]
    # processes whose sessions ended a moment ago: they are about to end, or pretend to be
    departed: frozenset[int]
    holdings: Mapping[tuple[int, str], Holding]


@dataclass(frozen=True)
class Findings:
    """The findings of one look.

    ``contexts`` are the bytes by kernel and UUID that contexts took beside charged memory, with
    their processes. ``least_contexts`` are those of them that cannot be memory which the processes
    freed since the driver's figure.
    """

    unhooked: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    foreign: tuple[Finding, ...] = ()
    contexts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    least_contexts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    context_pids: Mapping[tuple[str, str], frozenset[int]] = field(default_factory=dict)


class Audit:
    """The audit remembers earlier findings from look to look.

    ``slack_bytes`` is for each process on each device.
    """

    def __init__(self, slack_bytes: int) -> None:
        self._slack_bytes = slack_bytes
        self._first_look: float | None = None
        self._suspected_since: dict[tuple[int, str], float] = {}
        self._told: frozenset[tuple[str, int, str]] = frozenset()
        self.findings = Findings()

    def look(self, readings: Iterable[DeviceReading], kernels: Sequence[KernelProcesses], now: float) -> None:
        """Judge one look at the devices, with the time of an injected clock.

        This reads /proc, so it may block.
        """
        self._first_look = now if self._first_look is None else self._first_look
        members = {pid: kernel.kernel_id for kernel in kernels for pid in kernel.members}
        found = _Found(Families(members, {kernel.folder: kernel.kernel_id for kernel in kernels}))
        by_id = {kernel.kernel_id: kernel for kernel in kernels}
        awaited = frozenset(pid for kernel in kernels for pid in kernel.awaited)
        for reading in readings:
            for pid, used_bytes in sorted(reading.processes.items()):
                if pid not in awaited:
                    kernel = by_id.get(found.families.kernel_of(pid) or "")
                    self._judge(found, kernel, _Seen(pid, reading.facts, used_bytes), now)
        self._suspected_since = found.suspected_since
        unhooked = {kernel_id: tuple(findings) for kernel_id, findings in found.unhooked.items()}
        self.findings = Findings(
            unhooked, tuple(found.foreign), found.contexts, found.least_contexts, found.context_pids
        )
        self._tell()

    def _judge(self, found: _Found, kernel: KernelProcesses | None, seen: _Seen, now: float) -> None:
        is_settled = self._first_look is not None and now - self._first_look >= _SETTLE_SECONDS
        if kernel is None:
            # A restarted agent does not know yet the kernels whose relays and holders are about to
            # report.
            if is_settled:
                found.foreign += found.describe(seen, NOT_REGISTERED)
            return
        holding = kernel.holdings.get((seen.pid, seen.device.uuid), Holding())
        if seen.pid not in kernel.registered:
            # A process whose session just ended has a moment to end; coming and going again does
            # not extend it.
            is_due = seen.pid not in kernel.departed or self._is_confirmed(found, seen, now)
            if is_settled and is_due:
                found.add(kernel, seen, NOT_REGISTERED)
        elif seen.used_bytes is not None:
            key = (kernel.kernel_id, seen.device.uuid)
            found.note_context(key, seen.pid, seen.used_bytes, holding)
            if seen.used_bytes > holding.most_bytes + self._slack_bytes and self._is_confirmed(found, seen, now):
                found.add(kernel, seen, PAST_ITS_CHARGE, holding.charged_bytes)

    def _is_confirmed(self, found: _Found, seen: _Seen, now: float) -> bool:
        """Return whether the same process was suspected a second ago."""
        key = (seen.pid, seen.device.uuid)
        found.suspected_since[key] = self._suspected_since.get(key, now)
        return now - found.suspected_since[key] >= _CONFIRM_SECONDS

    def _tell(self) -> None:
        """Log new findings, once."""
        seen = {(k, s.pid, s.uuid): s for k, findings in self.findings.unhooked.items() for s in findings}
        for key, finding in seen.items():
            if key not in self._told:
                log.warning(
                    "event=unhooked_process kernel=%s pid=%d name=%r device=%d used_bytes=%s charged_bytes=%d why=%r",
                    key[0],
                    finding.pid,
                    finding.name,
                    finding.index,
                    finding.used_bytes,
                    finding.charged_bytes,
                    finding.why,
                )
        self._told = frozenset(seen)


class Auditor:
    """Runs each audit in a thread.

    A process can make its /proc files slow, and the loop must not wait for it.
    """

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._look: asyncio.Future[None] | None = None
        self._began = 0.0
        self._is_told_slow = False

    @property
    def findings(self) -> Findings:
        """Return the findings of the last audited look."""
        return self._audit.findings

    def look(self, readings: Sequence[DeviceReading], kernels: Sequence[KernelProcesses], now: float) -> None:
        """Audit a look at the devices. Called on the loop after each look.

        A look is skipped while the one before is being audited.
        """
        if self._look is not None and not self._look.done():
            if now - self._began > _SLOW_SECONDS and not self._is_told_slow:
                log.error(
                    "event=audit_slow seconds=%.0f reason='a process in /proc does not answer'", now - self._began
                )
                self._is_told_slow = True
            return
        self._began, self._is_told_slow = now, False
        self._look = call_in_thread(lambda: self._audit.look(readings, kernels, now))
        self._look.add_done_callback(_log_failure)


def _log_failure(look: asyncio.Future[None]) -> None:
    if not look.cancelled() and look.exception() is not None:
        log.error("event=audit_failed", exc_info=look.exception())


@dataclass(frozen=True)
class _Seen:
    """The driver's report of one process on one device."""

    pid: int
    device: DeviceFacts
    used_bytes: int | None


@dataclass
class _Found:
    """The findings of an audit under way."""

    families: Families
    unhooked: dict[str, list[Finding]] = field(default_factory=dict)
    foreign: list[Finding] = field(default_factory=list)
    contexts: dict[tuple[str, str], int] = field(default_factory=dict)
    least_contexts: dict[tuple[str, str], int] = field(default_factory=dict)
    context_pids: dict[tuple[str, str], frozenset[int]] = field(default_factory=dict)
    suspected_since: dict[tuple[int, str], float] = field(default_factory=dict)

    def note_context(self, key: tuple[str, str], pid: int, used_bytes: int, holding: Holding) -> None:
        self.contexts[key] = self.contexts.get(key, 0) + max(0, used_bytes - holding.charged_bytes)
        self.least_contexts[key] = self.least_contexts.get(key, 0) + max(0, used_bytes - holding.most_bytes)
        self.context_pids[key] = self.context_pids.get(key, frozenset()) | {pid}

    def add(self, kernel: KernelProcesses, seen: _Seen, why: str, charged_bytes: int = 0) -> None:
        described = self.describe(seen, why, charged_bytes)
        if described:
            self.unhooked.setdefault(kernel.kernel_id, []).extend(described)

    def describe(self, seen: _Seen, why: str, charged_bytes: int = 0) -> tuple[Finding, ...]:
        """Describe a finding, with the process's name.

        Return nothing when it ended since the driver's figure.
        """
        facts, device = self.families.facts(seen.pid), seen.device
        if facts is None:
            return ()
        return (Finding(seen.pid, facts.name, device.uuid, device.index, seen.used_bytes, charged_bytes, why),)

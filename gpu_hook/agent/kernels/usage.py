"""The use of one kernel: bytes by its hooks, bounded by their loans, and GPU time by NVML.

It reads the hooks' pages, writes the measured words of the agent's pages, and keeps the tallies of
ended processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jupyter_aliquot.gpu_hook.agent.devices.audit import Holding
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Tally
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Account, DeviceAccount
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import ProcessEntry, pack_processes
from jupyter_aliquot.gpu_hook.agent.pages.hook_page import NeedWords
from jupyter_aliquot.gpu_hook.agent.sessions.session import HookSession
from jupyter_aliquot.gpu_hook.protocol.codec import HOST_MEMORY, Role

from .load import Load, LoadMeter

_MAX_REFUSALS = 1 << 53  # an untrusted counter must still fit into JSON's numbers
_MAX_NEEDED_BYTES = 1 << 53
# For so long after a refusal its process may still manage: a framework returns its cache and tries
# again.
_UNDECIDED_SECONDS = 1.0


@dataclass(frozen=True)
class DeviceUse:
    """One kernel's use of one device, or of host memory, for the status.

    ``there_bytes`` is on the device or in host copies, where a page reports less than it has.
    """

    charged_bytes: int
    peak_bytes: int
    busy_seconds: float
    refusals: int
    there_bytes: int = 0
    load: Load | None = None

    def describe(self) -> dict[str, Any]:
        """Return what the status says of it; ``client/reports.py`` reads these names."""
        return {"charged_bytes": self.charged_bytes, "peak_bytes": self.peak_bytes, "refusals": self.refusals}


class KernelUsage:
    """The tallies of one kernel, by the index of the device in its grant.

    Host memory's is under HOST_MEMORY.
    """

    def __init__(self, tallies: Sequence[Tally], host_tally: Tally, wall_offset: float = 0.0) -> None:
        """Make the tallies of a kernel.

        ``wall_offset`` is how far the wall clock is ahead of the monotonic one.
        """
        self._wall_offset = wall_offset
        self._tallies = {**dict(enumerate(tallies)), HOST_MEMORY: host_tally}
        self._utilization = dict.fromkeys(range(len(tallies)), 0)
        self._meters = {device: LoadMeter() for device in range(len(tallies))}
        self._residents: dict[int, frozenset[int]] = {}  # device -> pids that the driver saw there, in the last look
        # device -> pid -> bytes there, as far as the driver reports them
        self._seen: dict[int, Mapping[int, int | None]] = {}
        self._short_at: dict[int, float] = {}  # device -> time of the last known refusal that stood
        # device -> the values from which its words on our pages were made
        self._written: dict[int, object] = {}
        self._shown_residents: dict[int, frozenset[int]] = {}

    @property
    def tallies(self) -> tuple[Tally, ...]:
        return tuple(tally for device, tally in self._tallies.items() if device != HOST_MEMORY)

    @property
    def host_tally(self) -> Tally:
        return self._tallies[HOST_MEMORY]

    def add_look(
        self, device: int, busy_seconds: float, covered_seconds: float, residents: Mapping[int, int | None]
    ) -> None:
        """Take one look at a device.

        The look shows the kernel's GPU time, the time that it covers, and the kernel's processes
        there. ``residents`` maps pids to their bytes there (None: the driver does not report them).
        """
        if busy_seconds:
            tally = self._tallies[device]
            self._tallies[device] = replace(tally, busy_seconds=tally.busy_seconds + busy_seconds)
        share = busy_seconds / covered_seconds if covered_seconds > 0 else 0.0
        self._utilization[device] = round(100 * min(1.0, share))
        self._residents[device] = frozenset(residents)
        self._seen[device] = residents

    def add_load(self, device: int, busy: float, moving: float, covered: float, *, is_alone: bool) -> None:
        """Take the seconds of the same look in which it worked, moved memory, and that the look covers."""
        self._meters[device].add(busy, moving, covered, is_alone=is_alone)

    def sample(self, sessions: Iterable[HookSession], accounts: Mapping[int, Account]) -> bool:
        """Read what each process charged, and tell it what the others did.

        Return True when something changed.
        """
        seen = [s for s in sessions if s.hook_side and s.agent_side]
        numbers = [session.number for session in seen]
        charged = {device: [charged_bytes(s, account, device) for s in seen] for device, account in accounts.items()}
        sample: dict[int, object] = {
            device: (
                *(numbers, column, self._tallies[device].busy_seconds, self._utilization.get(device)),
                accounts[device].context_bytes,
            )
            for device, column in charged.items()
        }
        changed = [device for device in sample if self._written.get(device) != sample[device]]
        if not changed and self._residents == self._shown_residents:
            return False
        self._written, self._shown_residents = sample, dict(self._residents)
        for device in changed:
            self._write_device(device, seen, charged[device], accounts[device].context_bytes)
        table = pack_processes(self._process_table(seen, charged))
        for session in seen:
            assert session.agent_side is not None  # see the condition above
            session.agent_side.write_processes(table)
        return True

    def retire(self, session: HookSession, accounts: Mapping[int, Account]) -> None:
        """Keep the last values of an ending process's page, before the ledger forgets its loans."""
        if session.hook_side is None:
            return
        for device, account in accounts.items():
            words = session.hook_side.read(device)
            loan = account.loans.get(session.number)
            tally = self._tallies[device]
            need = NeedWords() if device == HOST_MEMORY else session.hook_side.need(device)
            needed = min(_MAX_NEEDED_BYTES, max(need.stands_bytes, need.open_bytes))
            if needed:
                self._was_short(device, need)
            self._tallies[device] = replace(
                tally,
                needed_bytes=max(tally.needed_bytes, needed),
                peak_bytes=max(tally.peak_bytes, min(words.peak_bytes, loan.most if loan else 0)),
                refusals=min(_MAX_REFUSALS, tally.refusals + words.refusals),
            )

    def joining(self, *, is_first: bool) -> None:
        """Note that a process comes.

        ``is_first``: no other process is here, so failures of earlier ones are over.
        """
        if is_first:
            self._short_at.clear()
            fresh = {device: replace(tally, refusals=0, needed_bytes=0) for device, tally in self._tallies.items()}
            self._tallies = fresh

    def keep_peaks(self, sessions: Sequence[HookSession], accounts: Mapping[int, Account]) -> None:
        """Keep the peaks in the tallies.

        A later agent bounds a page only by what it lent itself.
        """
        for device, account in accounts.items():
            peak = self.report(sessions, device, account).peak_bytes
            if peak > self._tallies[device].peak_bytes:
                self._tallies[device] = replace(self._tallies[device], peak_bytes=peak)

    def report(self, sessions: Sequence[HookSession], device: int, account: Account) -> DeviceUse:
        """Return the use of one device, or of host memory."""
        tally = self._tallies[device]
        charged, peak, refusals = 0, tally.peak_bytes, tally.refusals
        for session in sessions:
            loan = account.loans.get(session.number)
            if session.hook_side is not None and loan is not None:
                words = session.hook_side.read(device)
                charged += min(words.charged_bytes, loan.bytes)
                peak = max(peak, min(words.peak_bytes, loan.most))
                refusals += words.refusals
            elif session.hook_side is not None:
                refusals += session.hook_side.read(device).refusals
        there = self._there_bytes(sessions, device, account)
        meter, refused = self._meters.get(device), min(_MAX_REFUSALS, refusals)
        load = None if meter is None else meter.load
        return DeviceUse(charged, max(peak, charged), tally.busy_seconds, refused, there, load)

    def _there_bytes(self, sessions: Sequence[HookSession], device: int, account: Account) -> int:
        """Return the bytes that the kernel's processes have on a device.

        For each process, this is the larger of two figures: the bytes that it charged or can take
        from the device, and the bytes that the driver last saw there. The driver also reports
        contexts, which no process was lent. The measured size of a context is subtracted; the rest
        is believed up to what a process was lent. A context that a process's page shows does not
        count: it could be any allocation that the page hides.
        """
        said, lent = Counter[int](), Counter[int]()
        for session in sessions:
            loan = account.loans.get(session.number)
            if session.hook_side is not None and loan is not None:
                swappable = 0 if device == HOST_MEMORY else session.hook_side.swappable(device)
                said[session.pid] += min(loan.bytes, max(session.hook_side.charged(device), swappable))
                lent[session.pid] += loan.bytes
        seen = self._seen.get(device, {})
        believed = {pid: (seen.get(pid) or 0) - account.measured_bytes for pid in lent}
        return sum(max(said[pid], min(amount, believed[pid])) for pid, amount in lent.items())

    def needed_bytes(self, sessions: Iterable[HookSession], device: int, now: float) -> int | None:
        """Return the most that the kernel would have used of a device without its quota.

        None: nothing was refused. ``now`` is on the monotonic clock, which hooks use, too. A moment
        in the future counts as long ago.
        """
        most = self._tallies[device].needed_bytes
        for session in sessions:
            if session.hook_side is not None:
                words = session.hook_side.need(device)
                is_undecided = 0.0 <= now - words.refused_at < _UNDECIDED_SECONDS
                most = max(most, words.stands_bytes, 0 if is_undecided else words.open_bytes)
        return min(_MAX_NEEDED_BYTES, most) or None

    def need(self, sessions: Sequence[HookSession], device: int, now: float) -> tuple[int | None, int | None]:
        """Return ``needed_bytes`` and ``short_at``."""
        return self.needed_bytes(sessions, device, now), self.short_at(sessions, device, now)

    def short_at(self, sessions: Iterable[HookSession], device: int, now: float) -> int | None:
        """Return when a process last went on without memory that a quota refused; None: none did.

        The value is in whole seconds since the epoch, by a clock that is read once: it stays until
        the next such refusal.
        """
        for session in sessions:
            if session.hook_side is not None:
                words = session.hook_side.need(device)
                is_undecided = 0.0 <= now - words.refused_at < _UNDECIDED_SECONDS
                if (words.stands_bytes and not words.open_bytes) or (words.open_bytes and not is_undecided):
                    self._was_short(device, words)
        found = self._short_at.get(device)
        return None if found is None else int(self._wall_offset + found)

    def _was_short(self, device: int, words: NeedWords) -> None:
        self._short_at[device] = max(self._short_at.get(device, 0.0), words.refused_at)

    @staticmethod
    def holdings(
        sessions: Iterable[HookSession], accounts: Sequence[DeviceAccount]
    ) -> Mapping[tuple[int, str], Holding]:
        """Return the bytes that each process holds of each device, by pid and UUID.

        They are bounded by the quota: a process may have several sessions (a hook in each of its
        link-map namespaces), and may claim anything in HELLO.
        """
        held: dict[tuple[int, str], Holding] = {}
        for session in sessions:
            for device, account in enumerate(accounts):
                loan, key = account.loans.get(session.number), (session.pid, account.part.uuid)
                if loan is not None:
                    before, charged = held.get(key, Holding()), charged_bytes(session, account, device)
                    most = max(charged, loan.recent_most) if loan.recent_most > loan.bytes else charged
                    held[key] = Holding(
                        min(account.most_bytes, before.charged_bytes + charged),
                        min(account.most_bytes, before.most_bytes + most),
                    )
        return held

    def _write_device(
        self, device: int, sessions: Sequence[HookSession], charged: Sequence[int], context_bytes: int
    ) -> None:
        total = sum(charged)
        tally = self._tallies[device]
        if total > tally.peak_bytes:
            self._tallies[device] = replace(tally, peak_bytes=total)
        for session, own in zip(sessions, charged, strict=True):
            page = session.agent_side
            assert page is not None  # sample() checked it
            page.write(device, total + context_bytes, total - own + context_bytes)
            if device != HOST_MEMORY:
                page.write_busy(device, int(tally.busy_seconds * 1e9), self._utilization[device])

    def _process_table(
        self, sessions: Sequence[HookSession], charged: Mapping[int, Sequence[int]]
    ) -> Iterator[ProcessEntry]:
        """Yield the processes that charged on each device, or that the driver saw there.

        Contexts count, too.
        """
        return (
            ProcessEntry(session.pid, session.own_pid, device, charged[device][position])
            for position, session in enumerate(sessions)
            if session.role is Role.PROCESS
            for device in self._utilization
            if charged[device][position] or session.pid in self._residents.get(device, ())
        )


def charged_bytes(session: HookSession, account: Account, device: int) -> int:
    """Return the bytes that a process reports as charged, bounded by its loan."""
    loan = account.loans.get(session.number)
    if loan is None or session.hook_side is None:
        return 0
    return min(session.hook_side.charged(device), loan.bytes)


def processes_in(sessions: Iterable[HookSession]) -> int:
    """Count the processes that may have contexts. One process may have several sessions."""
    return len({session.pid for session in sessions if session.role is Role.PROCESS})

"""The use of one kernel: bytes by its hooks, bounded by their loans, and GPU time by NVML.

It samples the hooks' pages, writes the sampled words of the agent's pages, and keeps the tallies of ended processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jupyter_aliquot.gpu_hook.agent.devices.audit import Holding
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Tally
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Account, DeviceAccount
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import ProcessEntry, pack_processes
from jupyter_aliquot.gpu_hook.agent.pages.hook_page import NeedWords
from jupyter_aliquot.gpu_hook.agent.sessions.session import HookSession
from jupyter_aliquot.gpu_hook.protocol.codec import HOST_MEMORY, Role

_MAX_REFUSALS = 1 << 53  # an untrusted counter must still fit into JSON's numbers
_MAX_NEEDED_BYTES = 1 << 53
# So long after a refusal its process may still make do: a framework returns its cache and asks again.
_UNDECIDED_SECONDS = 1.0


@dataclass(frozen=True)
class DeviceUse:
    """One kernel on one device, or of host memory, for the status.

    ``there_bytes``: what is on the device or in host copies, where a page says less than it has.
    """

    charged_bytes: int
    peak_bytes: int
    busy_seconds: float
    refusals: int
    there_bytes: int = 0


class KernelUsage:
    """The tallies of one kernel, by the index of the device in its grant; host memory's is under HOST_MEMORY."""

    def __init__(self, tallies: Sequence[Tally], host_tally: Tally, wall_offset: float = 0.0) -> None:
        """``wall_offset``: what the clock of the wall is ahead of the monotonic one."""
        self._wall_offset = wall_offset
        self._tallies = {**dict(enumerate(tallies)), HOST_MEMORY: host_tally}
        self._utilization = dict.fromkeys(range(len(tallies)), 0)
        self._residents: dict[int, frozenset[int]] = {}  # device -> pids that the driver saw there, in the last look
        self._seen: dict[int, Mapping[int, int | None]] = {}  # the same with their bytes, as far as the driver tells
        self._short_at: dict[int, float] = {}  # device -> when a refusal stood that was the last, as far as was seen
        self._written: dict[int, object] = {}  # device -> what its words on our pages were made of
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
        """What one look at a device said of the kernel: its GPU time, of how much time, and who was there.

        ``residents``: pids, with their bytes there (None: the driver does not tell).
        """
        tally = self._tallies[device]
        self._tallies[device] = replace(tally, busy_seconds=tally.busy_seconds + busy_seconds)
        share = busy_seconds / covered_seconds if covered_seconds > 0 else 0.0
        self._utilization[device] = round(100 * min(1.0, share))
        self._residents[device] = frozenset(residents)
        self._seen[device] = residents

    def sample(self, sessions: Iterable[HookSession], accounts: Mapping[int, Account]) -> bool:
        """Read what each process charged, and tell it what the others did. True when something changed."""
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
            assert session.agent_side is not None  # as asked above
            session.agent_side.write_processes(table)
        return True

    def retire(self, session: HookSession, accounts: Mapping[int, Account]) -> None:
        """A process ends: keep what its page says for the last time. Before the ledger forgets its loans."""
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
        """A process comes. ``is_first``: no other is here, so that what failed in those before it is over."""
        if is_first:
            self._short_at.clear()
            fresh = {device: replace(tally, refusals=0, needed_bytes=0) for device, tally in self._tallies.items()}
            self._tallies = fresh

    def keep_peaks(self, sessions: Sequence[HookSession], accounts: Mapping[int, Account]) -> None:
        """Into the tallies: an agent after us bounds what a page says by what it lent itself."""
        for device, account in accounts.items():
            peak = self.report(sessions, device, account).peak_bytes
            if peak > self._tallies[device].peak_bytes:
                self._tallies[device] = replace(self._tallies[device], peak_bytes=peak)

    def report(self, sessions: Sequence[HookSession], device: int, account: Account) -> DeviceUse:
        """One device's, or host memory's."""
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
        return DeviceUse(charged, max(peak, charged), tally.busy_seconds, min(_MAX_REFUSALS, refusals), there)

    def _there_bytes(self, sessions: Sequence[HookSession], device: int, account: Account) -> int:
        """What its processes charged, or can take from the device, or what the driver last saw there if that is more.

        The driver tells of contexts, too, which no process was lent: what the agent measured of one is left out, and
        the rest is believed as far as a process was lent something. A context that its process's page shows could be
        any allocation that the page hides.
        """
        said, lent = Counter[int](), Counter[int]()
        for session in sessions:
            loan = account.loans.get(session.number)
            if session.hook_side is not None and loan is not None:
                elastic = 0 if device == HOST_MEMORY else session.hook_side.elastic(device)
                said[session.pid] += min(loan.bytes, max(session.hook_side.charged(device), elastic))
                lent[session.pid] += loan.bytes
        seen = self._seen.get(device, {})
        believed = {pid: (seen.get(pid) or 0) - account.measured_bytes for pid in lent}
        return sum(max(said[pid], min(amount, believed[pid])) for pid, amount in lent.items())

    def needed_bytes(self, sessions: Iterable[HookSession], device: int, now: float) -> int | None:
        """The most that it would have used of a device had no quota refused it; None: nothing was refused.

        ``now``: on the monotonic clock, which hooks tell of, too. A moment in the future counts as long ago.
        """
        most = self._tallies[device].needed_bytes
        for session in sessions:
            if session.hook_side is not None:
                words = session.hook_side.need(device)
                is_undecided = 0.0 <= now - words.refused_at < _UNDECIDED_SECONDS
                most = max(most, words.stands_bytes, 0 if is_undecided else words.open_bytes)
        return min(_MAX_NEEDED_BYTES, most) or None

    def need(self, sessions: Sequence[HookSession], device: int, now: float) -> tuple[int | None, int | None]:
        """``needed_bytes`` and ``short_at``."""
        return self.needed_bytes(sessions, device, now), self.short_at(sessions, device, now)

    def short_at(self, sessions: Iterable[HookSession], device: int, now: float) -> int | None:
        """When a process last went on without what a quota refused it, in seconds since the epoch; None: none did.

        Whole seconds, by a clock that is read once: the figure stays until it happens again.
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
        """Return the bytes that each process holds of each device, by pid and UUID, bounded by the quota.

        A process may have several sessions (a hook in each of its link-map namespaces), and may claim in HELLO
        whatever it likes.
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
            assert page is not None  # as sample() asked
            page.write(device, total + context_bytes, total - own + context_bytes)
            if device != HOST_MEMORY:
                page.write_busy(device, int(tally.busy_seconds * 1e9), self._utilization[device])

    def _process_table(
        self, sessions: Sequence[HookSession], charged: Mapping[int, Sequence[int]]
    ) -> Iterator[ProcessEntry]:
        """Yield the processes that charged on each device, or that the driver saw there: contexts count too."""
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
    """Count the processes that may have contexts: one may have several sessions."""
    return len({session.pid for session in sessions if session.role is Role.PROCESS})

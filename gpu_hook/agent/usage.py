"""What one kernel uses: bytes as its hooks say (bounded by what they were lent), GPU time as NVML says.

Samples the hooks' pages and writes the sampled words of ours; keeps what ended processes leave behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .journal import Tally
from .ledger import Account
from .session import HookSession

_MAX_REFUSALS = 1 << 53  # an untrusted counter must still fit into JSON's numbers


@dataclass(frozen=True)
class DeviceUse:
    """One kernel on one device, for the status."""

    charged_bytes: int
    peak_bytes: int
    busy_seconds: float
    refusals: int


class KernelUsage:
    """The tallies of one kernel, in the order of its grant."""

    def __init__(self, tallies: Sequence[Tally]) -> None:
        self._tallies = list(tallies)
        self._last_sample: object = None

    @property
    def tallies(self) -> tuple[Tally, ...]:
        return tuple(self._tallies)

    def add_busy(self, device: int, seconds: float) -> None:
        tally = self._tallies[device]
        self._tallies[device] = replace(tally, busy_seconds=tally.busy_seconds + seconds)

    def sample(self, sessions: Iterable[HookSession], accounts: Sequence[Account]) -> bool:
        """Read what each process charged, and tell it what the others did. True when something changed."""
        pages = [(s, s.hook_side, s.agent_side) for s in sessions if s.hook_side and s.agent_side]
        charged = [[_charged(s, a, device) for device, a in enumerate(accounts)] for s, _, _ in pages]
        sample = (charged, [s.number for s, _, _ in pages], [t.busy_seconds for t in self._tallies])
        if sample == self._last_sample:
            return False
        self._last_sample = sample
        for device in range(len(accounts)):
            total = sum(column[device] for column in charged)
            tally = self._tallies[device]
            if total > tally.peak_bytes:
                self._tallies[device] = replace(tally, peak_bytes=total)
            for (_, _, page), column in zip(pages, charged, strict=True):
                page.write(device, total, total - column[device], int(tally.busy_seconds * 1e9))
        return True

    def retire(self, session: HookSession, accounts: Sequence[Account]) -> None:
        """A process ends: keep what its page says for the last time. Before the ledger forgets its loans."""
        if session.hook_side is None:
            return
        for device, account in enumerate(accounts):
            words = session.hook_side.read(device)
            loan = account.loans.get(session.number)
            tally = self._tallies[device]
            self._tallies[device] = replace(
                tally,
                peak_bytes=max(tally.peak_bytes, min(words.peak_bytes, loan.most if loan else 0)),
                refusals=min(_MAX_REFUSALS, tally.refusals + words.refusals),
            )

    def report(self, sessions: Sequence[HookSession], accounts: Sequence[Account]) -> tuple[DeviceUse, ...]:
        return tuple(self._report_device(device, account, sessions) for device, account in enumerate(accounts))

    def _report_device(self, device: int, account: Account, sessions: Sequence[HookSession]) -> DeviceUse:
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
        return DeviceUse(charged, max(peak, charged), tally.busy_seconds, min(_MAX_REFUSALS, refusals))


def _charged(session: HookSession, account: Account, device: int) -> int:
    loan = account.loans.get(session.number)
    if loan is None or session.hook_side is None:
        return 0
    return min(session.hook_side.charged(device), loan.bytes)

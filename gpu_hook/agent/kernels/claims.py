"""The claims that processes of one kernel may make in HELLO, and their entry into the ledger.

A claim enters whole, or not at all. A process that was connected before, to this agent or the one
before it, may claim what it was lent. Any further claim is bounded like a new request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jupyter_aliquot.gpu_hook.agent.base.descriptors import OF_A_WATCH, Descriptors
from jupyter_aliquot.gpu_hook.agent.base.processes import Process, WatchedProcesses
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Entry, LentBefore, Reservation
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Account, Ledger, LedgerError
from jupyter_aliquot.gpu_hook.agent.sessions.session import HookSession
from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import Hello, MalformedError, Role

_MOST_REMEMBERED = 256  # processes that left and live: as many as may be connected


class Claims:
    """The claims of one kernel.

    It remembers what disconnected processes were lent, as long as they live.
    """

    def __init__(
        self, ledger: Ledger, kernel_id: str, write_journal: Callable[[], None], descriptors: Descriptors
    ) -> None:
        self._ledger = ledger
        self._kernel_id = kernel_id
        self._descriptors = descriptors
        self._write_journal = write_journal
        self._lent: dict[int, tuple[int, ...]] = {}  # pid -> bytes by device, host memory last
        self._living = WatchedProcesses(self._forget)
        self._journaled: dict[tuple[int, int], int] = {}  # session, device -> bytes in the last journal

    def restore(self, entry: Entry) -> None:
        """Remember what the earlier agent lent."""
        for one in entry.lent:
            self._remember(Process(one.pid, one.start_time_ticks), one.amounts)
        if entry.lent:
            totals = tuple(sum(amounts) for amounts in zip(*(one.amounts for one in entry.lent), strict=True))
            self._ledger.keep(self._kernel_id, totals)

    def enter(self, reservation: Reservation, session: HookSession, hello: Hello) -> None:
        """Enter the claims of a HELLO into the ledger. Raises MalformedError, LedgerError."""
        if hello.devices and hello.role is Role.OBSERVER:
            raise MalformedError("an observer has no bytes")
        index = {protocol.device_uuid_bytes(part.uuid): i for i, part in enumerate(reservation.parts)}
        index[protocol.HOST_UUID] = protocol.HOST_MEMORY
        if any(device.uuid not in index for device in hello.devices):
            raise MalformedError("got bytes on a device that the kernel does not have")
        try:
            for device in hello.devices:
                self._enter_one(session, index[device.uuid], device.charged_bytes + device.credit_bytes)
        except LedgerError:
            self._ledger.end_process(self._kernel_id, session.number)
            raise
        self._note_said(session)

    def leave(self, session: HookSession) -> int:
        """Take back what the process was lent, and remember it while the process lives.

        Return how many bytes of the devices it was.
        """
        amounts = tuple(_loan(account, session.number) for account in self._accounts)
        if any(amounts) and len(self._lent) < _MOST_REMEMBERED:
            self._remember(Process(session.pid, session.start_time_ticks), amounts)
        return self._ledger.end_process(self._kernel_id, session.number)

    def has_bytes(self, session: HookSession) -> bool:
        return any(_loan(account, session.number) for account in self._accounts)

    def journal(self, sessions: Iterable[HookSession]) -> tuple[LentBefore, ...]:
        """Return the lines of the connected and the remembered processes for the record.

        From here on they count as written.
        """
        amounts, ticks = self._claimable(), {one.pid: one.start_time_ticks for one in self._living.all}
        self._journaled = {}
        for session in sessions:
            own = tuple(_loan(account, session.number) for account in self._accounts)
            self._journaled |= {(session.number, device): amount for device, amount in enumerate(own)}
            amounts[session.pid] = _sum(amounts.get(session.pid, ()), own)
            ticks[session.pid] = session.start_time_ticks
        return tuple(LentBefore(pid, ticks[pid], lent) for pid, lent in amounts.items() if any(lent))

    def _claimable(self) -> dict[int, tuple[int, ...]]:
        """Return what each remembered process may still claim: its loan, and no more than its kernel's limit leaves."""
        left = [account.most_bytes - account.lent for account in self._accounts]
        amounts = {}
        for pid, lent in self._lent.items():
            amounts[pid] = tuple(max(0, min(pair)) for pair in zip(lent, left, strict=True))
            left = [before - amount for before, amount in zip(left, amounts[pid], strict=True)]
        return amounts

    def note_growth(self) -> int:
        """Have the journal written where a later agent would not believe a process's claim.

        The kernel calls this before a process learns that it was lent something. Guaranteed memory
        needs no journal. Return the number of processes in the written journal; 0: none was
        written.
        """
        if any(
            account.lent > account.part.reserved_bytes
            and any(loan.bytes > self._journaled.get((number, device), 0) for number, loan in account.loans.items())
            for device, account in enumerate(self._ledger.accounts(self._kernel_id))
        ):
            self._write_journal()
            return len(self._lent) + len({number for number, _ in self._journaled})
        return 0

    def close(self) -> None:
        """Close: the kernel ended, or the agent ends."""
        for pid in tuple(self._lent):
            self._drop(pid)

    @property
    def _accounts(self) -> tuple[Account, ...]:
        return (*self._ledger.accounts(self._kernel_id), self._ledger.host_account(self._kernel_id))

    def _enter_one(self, session: HookSession, device: int, amount: int) -> None:
        lent = self._lent.get(session.pid, ()) if self._is_same(session) else ()
        place = len(lent) - 1 if device == protocol.HOST_MEMORY else device
        known = lent[place] if lent else 0
        self._ledger.adopt(self._kernel_id, device, session.number, amount, known)

    def _note_said(self, session: HookSession) -> None:
        """Drop the claim of a process, so that another connection of it does not repeat it."""
        lent = self._lent.get(session.pid, ()) if self._is_same(session) else ()
        left = tuple(
            max(0, before - _loan(account, session.number))
            for before, account in zip(lent, self._accounts, strict=False)
        )
        if any(left):
            self._lent[session.pid] = left
        elif lent:
            self._drop(session.pid)

    def _is_same(self, session: HookSession) -> bool:
        return Process(session.pid, session.start_time_ticks) in self._living.all

    def _remember(self, process: Process, amounts: tuple[int, ...]) -> None:
        if process in self._living.all:
            amounts = tuple(max(pair) for pair in zip(self._lent[process.pid], amounts, strict=True))
        elif not self._watch(process):
            return
        self._lent[process.pid] = amounts

    def _watch(self, process: Process) -> bool:
        """Watch one more process.

        Return False if it ended, or its kernel has its part of the descriptors.
        """
        if process.pid in self._lent:
            self._drop(process.pid)
        if not self._descriptors.take(self._kernel_id, OF_A_WATCH):
            return False
        if not self._living.add(process):
            self._descriptors.give_back(self._kernel_id, OF_A_WATCH)
            return False
        return True

    def _drop(self, pid: int) -> None:
        self._living.discard(pid)
        self._forget(pid)

    def _forget(self, pid: int) -> None:
        """Forget a process that ended, or need not be known any more."""
        del self._lent[pid]
        self._descriptors.give_back(self._kernel_id, OF_A_WATCH)


def _loan(account: Account, number: int) -> int:
    loan = account.loans.get(number)
    return 0 if loan is None else loan.bytes


def _sum(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True)) if one else other

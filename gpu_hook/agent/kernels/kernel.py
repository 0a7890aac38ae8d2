"""One kernel on this node: its reservation, its holders, its processes and their credit.

It joins listener, sessions, ledger and credit queues. It does not know other kernels, and does not
decide when it ends.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Activity
from jupyter_aliquot.gpu_hook.agent.base.coalesced import Coalesced
from jupyter_aliquot.gpu_hook.agent.base.descriptors import OF_A_SESSION, Descriptors
from jupyter_aliquot.gpu_hook.agent.base.processes import Process, WatchedProcesses, read_boot_id
from jupyter_aliquot.gpu_hook.agent.compute.facts import Unwatched, Watch
from jupyter_aliquot.gpu_hook.agent.devices.audit import KernelProcesses
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading
from jupyter_aliquot.gpu_hook.agent.kernels.credit_queues import KernelCreditQueues
from jupyter_aliquot.gpu_hook.agent.kernels.usage import DeviceUse, KernelUsage, processes_in
from jupyter_aliquot.gpu_hook.agent.ledger.credit import HasRoom, always
from jupyter_aliquot.gpu_hook.agent.ledger.journal import (
    Entry,
    Record,
    Reservation,
    remove_folder,
    show_devices,
    shows_devices,
)
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Account, DeviceAccount, Ledger
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import AgentSide
from jupyter_aliquot.gpu_hook.agent.sessions.acceptor import Acceptor
from jupyter_aliquot.gpu_hook.agent.sessions.session import FromHook, HookSession
from jupyter_aliquot.gpu_hook.agent.swap.facts import ResidencyFacts, swapped_by_device
from jupyter_aliquot.gpu_hook.agent.swap.residency import KernelResidency, SwapTools
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import (
    Hello,
    MessageType,
    Moved,
    RefusalReason,
    Role,
    SelfCheck,
    SelfCheckResult,
    Wake,
)

from .claims import Claims
from .entrance import Entrance

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KernelReading:
    """One kernel, read once: its parts of devices, their use in the same order, and its residency."""

    parts: tuple[Part, ...]
    uses: tuple[DeviceUse, ...]
    facts: ResidencyFacts

    @property
    def charged(self) -> dict[str, int]:
        """Return the bytes by device that its processes charged: their own claims."""
        return {part.uuid: use.charged_bytes for part, use in zip(self.parts, self.uses, strict=True)}

    @property
    def on_devices(self) -> dict[str, int]:
        """Return the bytes by device that are there now. They do not depend on the processes' claims."""
        away = swapped_by_device(self.facts)
        uses = zip(self.parts, self.uses, strict=True)
        return {part.uuid: max(0, use.there_bytes - away.get(part.uuid, 0)) for part, use in uses}


class Kernel:
    """One kernel.

    It is made when its reservation is in the ledger already. It calls ``left`` with the pid of a
    process that left.
    """

    def __init__(
        self,
        entry: Entry,
        folder: Path,
        ledger: Ledger,
        recall_seconds: float,
        left: Callable[[Kernel, int], None],
        host_quota_bytes: int | None,
        swap: SwapTools,
        descriptors: Descriptors,
    ) -> None:
        """Make the kernel's folder and socket. Raises OSError."""
        self.reservation = entry.reservation
        self.interception = entry.interception
        self.absolute_paths, self.libraries = entry.absolute_paths, entry.libraries
        self.folder = folder
        self.connections: set[int] = set()
        self.is_ending = self.has_pod = False  # has_pod: the kubelet of this node runs its pod
        self.is_evicted = entry.is_evicted
        self.activity: Activity | None = None  # None: no report since this agent runs
        self.worked_at: float | None = None  # when a device was last seen working for it
        self.has_room: HasRoom = always  # set by the lease keeper
        self.made_room: Callable[[int, int, int], None] = lambda *_: None  # likewise: for a context
        self.compute: Watch = Unwatched()  # set by the compute keeper
        self.usage = KernelUsage(entry.tallies, entry.host_tally, round(time.time() - time.monotonic()))
        self._ledger, self._left, self._descriptors = ledger, left, descriptors
        self._record = Record(folder, self._describe, (entry.tallies, entry.host_tally))
        self.write_journal = self._record.write
        self._claims = Claims(ledger, self.kernel_id, self.write_journal, descriptors)
        self._recall_seconds, self.host_quota_bytes = recall_seconds, host_quota_bytes  # None: no limit
        self._enforcer = protocol.Enforcer.HOOK
        self._sampling, self._is_closed = Coalesced(self.sample), False
        self._sessions: dict[int, HookSession] = {}  # joined
        self._bound = WatchedProcesses(self._bound_ended)
        # processes that were connected to the earlier agent, not yet to this one
        self._expected = WatchedProcesses(self._expected_ended)
        self._unlisted: set[int] = set()  # those that the last look at the devices lacked
        self._swap, self.entrance, self.was_moved = swap, Entrance(folder), shows_devices(folder)
        self.residency = self._make_residency(entry)
        self._open()

    def _make_residency(self, entry: Entry) -> KernelResidency:
        mode = protocol.ResidencyMode[entry.reservation.residency.upper()]
        crossing = None if entry.moves_to is None else (entry.reservation.parts[0].uuid, entry.moves_to.uuid)
        found = (entry.is_swapped, entry.saved_bytes, crossing, self.arrive)
        return KernelResidency(self.kernel_id, mode, self._swap, lambda: self.accounts, self.write_journal, *found)

    @property
    def kernel_id(self) -> str:
        return self.reservation.kernel_id

    @property
    def is_swapped_out(self) -> bool:
        return self.residency.is_lease_ended

    @property
    def is_held(self) -> bool:
        return bool(self.connections or self._bound or self._sessions or self._expected or self.has_pod)

    @property
    def is_expecting(self) -> bool:
        """Return whether processes from before the agent's restart are still to come back."""
        return bool(self._expected)

    @property
    def is_in_use(self) -> bool:  # whether one of its processes is connected
        return bool(self._sessions)

    @property
    def keeps_memory(self) -> bool:
        """Return whether a process of a released kernel is connected, or was to an earlier agent, and keeps bytes."""
        return bool(self._sessions or self._expected)

    @property
    def is_shared(self) -> bool:
        """Return whether several of its processes share its quota.

        Each of them then needs to see what the others took.
        """
        return len(self._sessions) > 1

    @property
    def processes_on_devices(self) -> tuple[HookSession, ...]:
        """Return its connected processes that use its devices, observers left out."""
        return tuple(session for session in self._sessions.values() if session.role is not Role.OBSERVER)

    @property
    def pids(self) -> list[int]:
        """Return the pids of all its known processes, the bound one too."""
        return sorted({process.pid for process in self._bound.all} | {s.pid for s in self._sessions.values()})

    @property
    def accounts(self) -> tuple[DeviceAccount, ...]:
        return self._ledger.accounts(self.kernel_id)

    @property
    def host_account(self) -> Account:
        return self._ledger.host_account(self.kernel_id)

    @property
    def _class_word(self) -> protocol.WorkloadClass:
        return protocol.WorkloadClass[self.reservation.workload_class.upper()]

    @property
    def _host_quota_word(self) -> int:
        return protocol.NO_LIMIT if self.host_quota_bytes is None else self.host_quota_bytes

    @property
    def _all_accounts(self) -> dict[int, Account]:
        return {**dict(enumerate(self.accounts)), protocol.HOST_MEMORY: self.host_account}

    def accept(self, connection: socket.socket) -> None:
        """Take a connection of one of its processes that came by another socket. Raises OSError."""
        self._acceptor.accept(connection)

    def bind(self, pid: int, start_time_ticks: int) -> bool:
        """Watch the kernel's process; return whether it is there."""
        process = Process(pid, start_time_ticks)
        is_new = process not in self._bound.all
        is_there = self._bound.add(process)
        if is_there:
            if is_new and not self._sessions and not self._expected:
                self.usage.joining(is_first=True)  # a restart: what failed in the process before is over
            self.write_journal()
        return is_there

    def restore(self, entry: Entry) -> None:
        """Watch the bound process and expect the connected ones, after a restart of the agent.

        Until they have reported their loans, no process gets credit that may be theirs.
        """
        for process in entry.bound:
            self._bound.add(process)
        for process in entry.sessions:
            self._expected.add(process)
        self._claims.restore(entry)
        if self.was_moved and self.residency.crossing is None:
            # An agent that was killed between the link and the journal wrote the one alone.
            show_devices(self.folder, [part.uuid for part in self.reservation.parts])
        self.write_journal()  # for a later agent, which knows no holders but those in the journal
        self._hold_for_expected()

    def _hold_for_expected(self) -> None:
        if self._expected:
            self.credit_queues.hold()
            self.compute.awaits(self, True)

    def stop_expecting(self) -> None:
        """Stop waiting for processes to come back: the grace period is over."""
        if self._expected:
            self._expected.clear()
            self.write_journal()
        self._resume()
        if not self._sessions:
            self.residency.emptied()

    def end(self) -> bool:
        """Let go of all holders; return whether the devices hold nothing of it any more.

        The agent cannot make a process give up its bytes without killing it. The process gets no
        more, and its session keeps the reservation until it ends: bytes on a device stay in the
        ledger. So does a process that was connected to an earlier agent, until the driver does not list it.
        """
        self.is_ending = True
        self.connections.clear()
        self.compute.awaits(self, False)
        if not self.keeps_memory:
            self.residency.emptied()
        self._bound.clear()
        self._acceptor.close()
        self.credit_queues.close()
        for session in list(self._sessions.values()):
            if not session.is_alive:
                session.close()
            else:
                self._drop_without_bytes(session)
        if self.keeps_memory:
            self.write_journal()  # for a later agent, which counts it too
        return not self.keeps_memory

    def expect_listed(self, listed: Collection[int]) -> None:
        """Expect of an ending kernel's processes only those that the driver lists on its devices.

        A process leaves with the second look that lacks it. Any program of the kernel's account can write the record
        that names them.
        """
        pids = {process.pid for process in self._expected.all}
        for pid in (pids & self._unlisted) - set(listed):
            self._expected.discard(pid)
        self._unlisted = pids - set(listed)

    def revive(self) -> None:
        """Revive a kernel that was ending: it was requested again."""
        self.is_ending = False
        self._open()
        self._hold_for_expected()
        self.write_journal()

    def close(self, keep: bool) -> None:
        """Stop serving the kernel: it ended, or the agent leaves it to the next one (``keep``)."""
        if keep:
            self.keep_record()
        self._is_closed = True
        self._sampling.close()
        self._record.close()
        self.residency.close()
        self._acceptor.close()
        self._bound.clear()
        self._expected.clear()
        for session in list(self._sessions.values()):
            session.close()
        self._claims.close()
        if not keep:
            remove_folder(self.folder)

    def _describe(self) -> Entry:
        """Describe the kernel for the record. Observers are not in it."""
        joined = [s for s in self._sessions.values() if s.role is not Role.OBSERVER]
        return Entry(
            reservation=self.reservation,
            interception=self.interception,
            absolute_paths=self.absolute_paths,
            libraries=self.libraries,
            boot_id=read_boot_id(),
            bound=self._bound.all,
            sessions=(*self._expected.all, *(Process(s.pid, s.start_time_ticks) for s in joined)),
            tallies=self.usage.tallies,
            host_tally=self.usage.host_tally,
            is_swapped=self.residency.is_lease_ended,
            saved_bytes=self.residency.saved_bytes,
            lent=self._claims.journal(joined),
            is_evicted=self.is_evicted,
            is_aside=self.kernel_id in self._ledger.aside,
            is_ending=self.is_ending,
            moves_to=self.accounts[0].part if self.residency.crossing is not None else None,
        )

    def note_libraries(self, name: str) -> None:
        """Keep these libraries as long as the kernel: its processes may use them from now on."""
        if name and name not in self.libraries:
            self.libraries = (*self.libraries, name)
            self.write_journal()

    def keep_record(self) -> None:
        """Write down the kernel's use that a killed agent would lose."""
        if self._sessions:  # a page that is gone has no new peak
            self.usage.keep_peaks(tuple(self._sessions.values()), self._all_accounts)
        self._record.keep((self.usage.tallies, self.usage.host_tally))

    def sample(self) -> bool:
        """Read the hooks' pages and write ours; return whether something changed."""
        self._ledger.count_contexts(self.kernel_id, processes_in(self._sessions.values()))
        self._ledger.count_guarantees(self.kernel_id, self._guaranteed_parts())
        return self.usage.sample(self._sessions.values(), self._all_accounts)

    def _guaranteed_parts(self) -> tuple[Part, ...]:
        """Return its parts; all of its limit is guaranteed where its memory turned out to stay."""
        parts = self.reservation.parts
        stays = self.residency.is_pinned
        return tuple(replace(part, guarantee_bytes=None, is_kept=True) for part in parts) if stays else parts

    def add_looks(self, readings: Mapping[str, DeviceReading], own: Collection[int]) -> None:
        """Take the readings of its devices: the GPU time of its ``own`` processes, and their bytes there."""
        for device, part in enumerate(self.reservation.parts):
            if (reading := readings.get(part.uuid)) is not None:
                busy_seconds = sum(reading.busy.get(pid, 0.0) for pid in own)
                seen = {pid: reading.processes[pid] for pid in own if pid in reading.processes}
                self.usage.add_look(device, busy_seconds, reading.covered_seconds, seen)
                if busy_seconds > 0:
                    moving = sum(reading.moving.get(pid, 0.0) for pid in own)
                    is_alone = sum(pid in reading.busy for pid in own) == len(reading.busy)
                    self.usage.add_load(device, busy_seconds, moving, reading.covered_seconds, is_alone=is_alone)

    def resize(self, reservation: Reservation, host_quota_bytes: int | None) -> None:
        """Tell its processes about another size or class, which is in the ledger already."""
        self.reservation, self.host_quota_bytes = reservation, host_quota_bytes
        for session in self._sessions.values():
            if session.agent_side is not None:
                session.agent_side.set_grant(
                    reservation.parts, reservation.generation, self._class_word, self._host_quota_word
                )
        self.compute.resized(self)
        self.write_journal()

    def arrive(self) -> None:
        """Take the devices of its accounts for its own: its contexts are there, and no call of it is under way.

        The hook holds its limits until the enforcer has set them there. Called by its residency, which writes the
        journal.
        """
        parts, before = tuple(account.part for account in self.accounts), self.reservation
        self.reservation = replace(before, parts=parts, generation=before.generation + 1)
        words = (self.reservation.generation, self._class_word, self._host_quota_word)
        for session in self._sessions.values():
            if session.agent_side is not None:
                session.agent_side.move(parts, *words)
        self.set_enforcer(protocol.Enforcer.HOOK)
        show_devices(self.folder, [part.uuid for part in parts])
        self.was_moved = True
        self._ledger.drop_beside(self.kernel_id)
        self.compute.relocated(self)
        log.info("event=moved kernel=%s to=%s generation=%d", self.kernel_id, parts[0].uuid, words[0])

    def set_enforcer(self, enforcer: protocol.Enforcer) -> None:
        """Tell its processes which enforcer holds their limits."""
        self._enforcer = enforcer
        for session in self._sessions.values():
            if session.agent_side is not None:
                session.agent_side.set_enforcer(enforcer)

    def processes(self, departed: Iterable[int]) -> KernelProcesses:
        """Return the kernel's processes for the audit.

        ``departed``: its pids whose sessions ended a moment ago.
        """
        ours = [session for session in self._sessions.values() if session.role is Role.PROCESS]
        return KernelProcesses(
            kernel_id=self.kernel_id,
            folder=os.fspath(self.folder),
            members=frozenset(self.pids),
            registered=frozenset(session.pid for session in ours),
            awaited=frozenset(process.pid for process in self._expected.all),
            departed=frozenset(departed),
            holdings=self.usage.holdings(ours, self.accounts),
        )

    def read(self) -> KernelReading:
        """Read its processes' pages once."""
        is_crossing = self.residency.crossing is not None
        parts = tuple(account.part for account in self.accounts) if is_crossing else self.reservation.parts
        return KernelReading(parts, self.report(), self.residency.facts())

    def report(self) -> tuple[DeviceUse, ...]:
        sessions = tuple(self._sessions.values())
        return tuple(self.usage.report(sessions, device, account) for device, account in enumerate(self.accounts))

    def needs(self) -> tuple[tuple[int | None, int | None], ...]:
        """Return the needs on each of its devices.

        A need is the bytes with which no quota would have refused a request, and the time of the
        last refusal; None without a refusal.
        """
        own, now = tuple(self._sessions.values()), time.monotonic()
        return tuple(self.usage.need(own, device, now) for device in range(len(self.accounts)))

    def report_host(self) -> DeviceUse:
        return self.usage.report(tuple(self._sessions.values()), protocol.HOST_MEMORY, self.host_account)

    # Called by sessions (SessionOwner).

    def join(self, session: HookSession, hello: Hello) -> None:
        self._acceptor.discard(session)
        if self.is_ending:
            return session.refuse(RefusalReason.KERNEL, "the kernel's grant ended")
        self._claims.enter(self.reservation, session, hello)
        if why := self._acceptor.why_full(len(self._sessions)):
            self._claims.leave(session)
            return session.refuse(RefusalReason.FULL, why)
        is_first = not (self._sessions or self._expected or hello.role is Role.OBSERVER)
        self.usage.joining(is_first=is_first)
        self._sessions[session.number] = session
        own = self.reservation
        try:
            plan = self._swap.settings.plan(self.residency.mode)
            side = AgentSide(own.parts, own.generation, self._class_word, self._host_quota_word, plan)
            side.set_enforcer(self._enforcer)
            side.set_lease(self.residency.lease)
            session.agent_side = side
            session.open_pages()
        except OSError as error:
            log.error("event=pages_failed kernel=%s error=%r", self.kernel_id, str(error))
            return session.close()
        self.compute.joining(self, session)
        self.sample()  # before the welcome: a process may read its page at once
        self._claims.note_growth()
        if is_first:
            self.write_journal()  # a later agent makes others wait for a kernel that it knows to be in use
        session.welcome()
        self.compute.joined(self, session)
        self.residency.joined(session)
        log.info("event=joined kernel=%s pid=%d role=%s", self.kernel_id, session.pid, hello.role.name)
        if session.role is not Role.OBSERVER and self._expected.discard(session.pid):
            self._resume()
        elif session.role is Role.PROCESS:
            self._expect_contexts(session)
        if not is_first:
            self._note_member(session)

    def _expect_contexts(self, session: HookSession) -> None:
        """Keep room for the contexts that a new process is about to make: the next looks do not show them yet."""
        for device, account in enumerate(self.accounts):
            if measured := self._ledger.contexts.measured(account.part.uuid):
                self.made_room(session.number, device, measured)

    def take(self, session: HookSession, message: FromHook) -> None:
        if isinstance(message, SelfCheckResult):
            is_whole = SelfCheck.ALL in message.passed
            found = message.text or f"only {message.passed!r} passed"
            self.interception = "holds" if is_whole else f"failed: {found}"
            self.absolute_paths = "covered" if SelfCheck.ABSOLUTE_PATH in message.passed else "not covered"
            return self._record.write_soon()
        if isinstance(message, Wake):
            return self.residency.woken() if message.waiting_calls else self.residency.given_up()
        if isinstance(message, Moved):
            return self.residency.moved(session, message)
        self.credit_queues.take(session, message)
        if self.is_ending and message.type is MessageType.CREDIT_RETURN:
            return self._drop_without_bytes(session)
        self._sampling.soon()  # not now: reading all its pages costs more than a message

    def leave(self, session: HookSession) -> None:
        if self._acceptor.discard(session):
            return
        if self._sessions.pop(session.number, None) is None:
            return
        self._descriptors.give_back(self.kernel_id, OF_A_SESSION)
        self.compute.left(session)
        self.usage.retire(session, self._all_accounts)
        self.residency.leaving(session)
        returned = self._claims.leave(session)
        log.info("event=left kernel=%s pid=%d returned_bytes=%d", self.kernel_id, session.pid, returned)
        if self._is_closed:
            return
        self.credit_queues.left(session.number)
        self.residency.left(session, is_expecting=self.is_expecting)
        self.sample()
        self._note_member(session)
        self._left(self, session.pid)

    def _note_member(self, session: HookSession) -> None:
        """Have a process that came or left written to the journal."""
        if session.role is not Role.OBSERVER:
            self._record.write_soon()

    def _open(self) -> None:
        self._acceptor = Acceptor(self.kernel_id, self.folder, self, self._descriptors, self.reservation.uid)
        self.credit_queues = KernelCreditQueues(
            self._ledger,
            self.kernel_id,
            self._all_accounts,
            self._sessions,
            self._recall_seconds,
            lambda device, amount: self.has_room(device, amount),
            lambda: self._acceptor.charge_journal(self._claims.note_growth()),
            lambda process, device, amount: self.made_room(process, device, amount),
        )

    def _drop_without_bytes(self, session: HookSession) -> None:
        if not self._claims.has_bytes(session):
            session.refuse(RefusalReason.KERNEL, "the kernel's grant ended")

    def _bound_ended(self, pid: int) -> None:
        self._record.write_soon()
        self._left(self, pid)

    def _expected_ended(self, pid: int) -> None:
        self._resume()
        self._left(self, pid)

    def _resume(self) -> None:
        if not self._expected:
            self.credit_queues.resume()
            self.compute.awaits(self, False)

"""The ledger of bytes: the reservations on each device, and the loans of each process.

It also has the loans of host memory. It is pure data: no clock, no socket, no page. Only the
agent's event loop writes it. Invariants, after every call:

    for each device:  sum of the reserved bytes and hundredths <= what it has, times the ratio of overcommit
    for each kernel and device:  sum of the lent bytes <= its quota, save what was adopted

The ledger lends room beyond what is reserved, up to a kernel's quota; room.py says whether the
device has it now. Page-locked host memory is lent like a device's and not reserved: the quotas of
all kernels may exceed the machine.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from jupyter_aliquot.gpu_hook.placement.host_memory import HostRoom, HostShortage, host_room
from jupyter_aliquot.gpu_hook.placement.overcommit import MOST_RATIO, Oversubscription, Reserved, device_state
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE, DeviceState, Part
from jupyter_aliquot.gpu_hook.protocol import codec as protocol

from .contexts import ContextCosts


class LedgerError(Exception):
    """A broken invariant: a defect of the agent, or a hook that claims what it was never lent."""


@dataclass(frozen=True)
class DeviceFacts:
    """The facts of a device that do not change."""

    uuid: str
    index: int
    name: str
    memory_bytes: int


@dataclass
class Loan:
    """The bytes that one process was lent of one device.

    ``most`` is the most ever; ``recent_most`` is the most since the last look.
    """

    bytes: int = 0
    most: int = 0
    recent_most: int = 0


@dataclass
class Account:
    """One kernel's memory of one kind.

    ``lent`` is the sum over ``loans``, kept with them. ``kept_bytes`` were lent before a quota in
    force now, which may be smaller, or before this agent. ``context_bytes`` are the bytes of its
    processes' contexts, which no process is lent. ``measured_bytes`` is the agent's own measurement
    of one context, without any report of the kernel's processes.
    """

    quota_bytes: int
    lent: int = 0
    kept_bytes: int = 0
    context_bytes: int = 0
    measured_bytes: int = 0
    loans: dict[int, Loan] = field(default_factory=dict)

    @property
    def most_bytes(self) -> int:
        """Return the most that processes may hold, whatever they report."""
        return max(self.quota_bytes, self.kept_bytes)

    @property
    def room(self) -> int:
        """Return the bytes that may still be lent.

        The figure is never negative, even when adoption passed the quota.
        """
        return max(0, self.lendable_bytes - self.lent)

    @property
    def lendable_bytes(self) -> int:
        """Return the bytes that processes may be lent in all: the quota without contexts."""
        return max(0, self.quota_bytes - self.context_bytes)


@dataclass(kw_only=True)
class DeviceAccount(Account):
    """One kernel's memory on one device."""

    part: Part
    is_production: bool = True


_DeviceWords = tuple[int, int, bool, int]  # index, bytes of memory, whether it is lost, bytes of a context
_NOTHING = Reserved()


class Ledger:
    """Devices, reservations of kernels, and loans of processes.

    ``host_memory_bytes`` is the machine's memory.
    """

    def __init__(
        self,
        host_memory_bytes: int = protocol.MAX_AMOUNT,
        oversubscription: Oversubscription | None = None,
        contexts: ContextCosts | None = None,
    ) -> None:
        self.contexts = contexts or ContextCosts()
        self.host_memory_bytes = host_memory_bytes
        self.oversubscription = oversubscription or Oversubscription()
        self._devices: dict[str, DeviceFacts] = {}
        self._lost: set[str] = set()
        self._kernels: dict[str, tuple[DeviceAccount, ...]] = {}
        self._host: dict[str, Account] = {}
        self._reserved: dict[str, Reserved] = {}
        # Sums, so that a grant costs the same however many kernels there are.
        self._lent: Counter[str] = Counter()  # bytes by device
        self._sizes: Counter[int] = Counter()  # how many kernels reserved so many bytes in all
        # Kernels whose memory is out, and whose parts others may reserve meanwhile.
        self._aside: set[str] = set()
        # The second part of a kernel that moves to another device: the new one, then the old one, until it is there.
        self._beside: dict[str, Part] = {}
        # Each device's last state, by class, with what it was made of: a grant changes one device of many.
        self._states: dict[tuple[str, str], tuple[Reserved, Oversubscription, _DeviceWords, DeviceState]] = {}

    def set_devices(self, devices: Iterable[DeviceFacts], lost: Iterable[str] = ()) -> None:
        """Set the devices.

        A device that is gone stays known as lost while a kernel is on it.
        """
        found = {device.uuid: device for device in devices}
        missing = {uuid for uuid in self._devices if uuid not in found}
        if missing:
            found.update((uuid, self._devices[uuid]) for uuid in missing if self.is_used(uuid))
        self._devices = dict(sorted(found.items(), key=lambda item: item[1].index))
        self._lost = (set(lost) | missing) & set(found)
        self._states = {key: state for key, state in self._states.items() if key[0] in found}

    def add_lost(self, parts: Iterable[Part]) -> None:
        """Add the devices of kernels of an earlier agent.

        A device that is not visible now is lost, until the agent sees it. Their other devices hold
        their bytes all the same. The memory of a lost device is unknown, and counts as what they
        reserved.
        """
        seen = set(self._devices)
        for part in parts:
            if part.uuid not in seen:
                before = self._devices.get(part.uuid)
                memory = part.reserved_bytes + (before.memory_bytes if before else 0)
                self._devices[part.uuid] = DeviceFacts(part.uuid, part.index, "unknown", memory)
                self._lost.add(part.uuid)

    @property
    def devices(self) -> Sequence[DeviceFacts]:
        return tuple(self._devices.values())

    def is_used(self, uuid: str) -> bool:
        """Return whether a kernel has a part of the device, or moves from or to it.

        A kernel whose memory is out reserves nothing there, and still has its part.
        """
        parts = (account.part for accounts in self._kernels.values() for account in accounts)
        return any(part.uuid == uuid for part in (*parts, *self._beside.values()))

    def is_lost(self, uuid: str) -> bool:
        return uuid in self._lost

    def within_devices(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Return the parts as a driver can limit them: none has more than its device.

        A kernel that pages may have a higher limit, which the hook holds.
        """
        return tuple(
            replace(part, quota_bytes=min(part.quota_bytes, self._devices[part.uuid].memory_bytes))
            if part.uuid in self._devices
            else part
            for part in parts
        )

    def device_states(self, workload_class: str = "production", without: str = "") -> tuple[DeviceState, ...]:
        """Return a snapshot for ``placement.place``: what a request of this class may reserve.

        ``without`` leaves one kernel out.
        """
        own = {a.part.uuid: a for a in self._counted(without)}
        states = (
            self._state(device, self._without(device.uuid, own.get(device.uuid)), workload_class)
            for device in self._devices.values()
        )
        kept = {uuid: a.part for uuid, a in own.items() if a.is_production == (workload_class == "production")}
        return tuple(state.for_owner(kept[state.uuid]) if state.uuid in kept else state for state in states)

    def _state(self, device: DeviceFacts, reserved: Reserved, workload_class: str) -> DeviceState:
        """Return a device's state: the last one, if it was made of the same."""
        rule, key = self.oversubscription, (device.uuid, workload_class)
        context_bytes = self.contexts.measured(device.uuid)
        words = device.index, device.memory_bytes, device.uuid in self._lost, context_bytes
        if (last := self._states.get(key)) is not None and last[0] is reserved and last[1] is rule and last[2] == words:
            return last[3]
        index, memory_bytes, lost, _ = words
        args = (device.uuid, index, memory_bytes, reserved, rule, workload_class)
        state = device_state(*args, lost=lost, context_bytes=context_bytes)
        self._states[key] = reserved, rule, words, state
        return state

    def reserved(self, uuid: str) -> Reserved:
        """Return the reserved part of a device."""
        return self._reserved.get(uuid, _NOTHING)

    def _without(self, uuid: str, account: DeviceAccount | None) -> Reserved:
        """Return the reserved part of a device without one kernel's."""
        reserved = self.reserved(uuid)
        return reserved if account is None else reserved.plus(account.part, account.is_production, -1)

    def host_room(self, without: str = "") -> HostRoom | None:
        """Return the host memory that reservations beyond the devices count on; None: no limit.

        ``without`` leaves one kernel out.
        """
        own = {a.part.uuid: a.part.reserved_bytes for a in self._counted(without)}
        devices = [(d.memory_bytes, self.reserved(d.uuid).bytes - own.get(d.uuid, 0)) for d in self._devices.values()]
        return host_room(self.host_budget_bytes(without), devices, self.largest_kernel_bytes)

    def host_budget_bytes(self, without: str = "") -> int | None:
        """Return the host memory for copies of kernels that reserve something; None: no limit.

        Copies of the kernels that were set aside are taken off it, without that of one kernel.
        """
        budget = self.oversubscription.host_bytes
        if budget is None:
            return None
        aside = (a.part.reserved_bytes for one in self._aside if one != without for a in self._kernels[one])
        return max(0, budget - sum(aside))

    def copy_shortage(self, kernel_id: str) -> HostShortage | None:
        """Return the lack of host memory if this kernel were set aside; None if its copy has room.

        Its copy is taken off the budget, and the copies that the other reservations count on stay in it.
        """
        budget = self.oversubscription.host_bytes
        if budget is None or kernel_id in self._aside:
            return None
        copies = sum(reserved_bytes(self._kernels[one]) for one in (*self._aside, kernel_id))
        others = self.host_room(without=kernel_id)
        needs = copies + (0 if others is None else others.needs())
        return HostShortage(needs, budget) if needs > budget else None

    def _counted(self, kernel_id: str) -> Sequence[DeviceAccount]:
        """Return the accounts of a kernel whose parts are in the sums; none of one that was set aside."""
        return () if kernel_id in self._aside else self._kernels.get(kernel_id, ())

    def set_aside(self, kernel_id: str) -> None:
        """Let others reserve the kernel's parts. It keeps its loans, and its parts for its return."""
        for account in self._counted(kernel_id):
            self._reserved[account.part.uuid] = self._without(account.part.uuid, account)
        if kernel_id in self._kernels:
            self._aside.add(kernel_id)

    def put_back(self, kernel_id: str) -> None:
        """Reserve the parts of a kernel that was set aside. Raises LedgerError if they do not fit."""
        if kernel_id not in self._aside:
            return
        accounts = self._kernels[kernel_id]
        self._check_fit(kernel_id, [a.part for a in accounts], accounts[0].is_production, is_restored=False)
        self._aside.discard(kernel_id)
        for account in accounts:
            self._reserved[account.part.uuid] = self.reserved(account.part.uuid).plus(
                account.part, account.is_production
            )

    def hold_beside(self, kernel_id: str, part: Part) -> None:
        """Reserve a part of another device beside a kernel's only one. Raises LedgerError if it does not fit."""
        self._check_fit(kernel_id, [part], self._kernels[kernel_id][0].is_production, is_restored=False)
        self._hold_beside(kernel_id, part)

    def cross(self, kernel_id: str, part: Part) -> None:
        """Have a kernel be where an earlier agent moved it. Raises LedgerError if that cannot be."""
        self._check_fit(kernel_id, [part], self._kernels[kernel_id][0].is_production, is_restored=True)
        self._hold_beside(kernel_id, part)
        self.change_sides(kernel_id)

    def _hold_beside(self, kernel_id: str, part: Part) -> None:
        (account,) = self._kernels[kernel_id]
        self._beside[kernel_id] = part
        self._reserved[part.uuid] = self.reserved(part.uuid).plus(part, account.is_production)

    def change_sides(self, kernel_id: str) -> None:
        """Have a kernel's loans be on the part that is held beside its own, which is held from now on."""
        (account,) = self._kernels[kernel_id]
        self._lent[account.part.uuid] -= account.lent
        account.part, self._beside[kernel_id] = self._beside[kernel_id], account.part
        self._lent[account.part.uuid] += account.lent

    def drop_beside(self, kernel_id: str) -> None:
        """Give up the part that is held beside a kernel's own; none is no error."""
        part = self._beside.pop(kernel_id, None)
        if part is not None:
            (account,) = self._kernels[kernel_id]
            self._reserved[part.uuid] = self.reserved(part.uuid).plus(part, account.is_production, -1)

    def is_moving(self, kernel_id: str) -> bool:
        """Return whether a part is held beside the kernel's own: it moves to another device."""
        return kernel_id in self._beside

    @property
    def aside(self) -> Sequence[str]:
        """The kernels that were set aside."""
        return sorted(self._aside)

    @property
    def largest_kernel_bytes(self) -> int:
        """Return the bytes that the largest kernel reserved."""
        return max(self._sizes, default=0)

    def reserve(
        self,
        kernel_id: str,
        parts: Sequence[Part],
        host_quota_bytes: int | None = None,
        *,
        is_production: bool = True,
        is_restored: bool = False,
    ) -> None:
        """Enter a reservation whole, or raise LedgerError and enter nothing.

        ``None``: all host memory. A restored reservation may have been made under another rule, but
        never beyond MOST_RATIO.
        """
        if kernel_id in self._kernels:
            raise LedgerError(f"kernel {kernel_id} has a reservation already")
        self._check_fit(kernel_id, parts, is_production, is_restored)
        self._kernels[kernel_id] = tuple(
            DeviceAccount(part.quota_bytes, part=part, is_production=is_production) for part in parts
        )
        self._host[kernel_id] = Account(self.host_memory_bytes if host_quota_bytes is None else host_quota_bytes)
        for part in parts:
            self._reserved[part.uuid] = self.reserved(part.uuid).plus(part, is_production)
        self._sizes[reserved_bytes(self._kernels[kernel_id])] += 1

    def resize(
        self, kernel_id: str, parts: Sequence[Part], host_quota_bytes: int | None, *, is_production: bool
    ) -> None:
        """Replace a reservation on the same devices, with its loans.

        Raises LedgerError and changes nothing if that is impossible.
        """
        accounts = self._kernels[kernel_id]
        if [account.part.uuid for account in accounts] != [part.uuid for part in parts]:
            raise LedgerError(f"kernel {kernel_id} is on other devices")
        self._check_fit(kernel_id, parts, is_production, is_restored=False, without=kernel_id)
        with self._resized(accounts):
            for account, part in zip(accounts, parts, strict=True):
                self._reserved[part.uuid] = self._without(part.uuid, account).plus(part, is_production)
                account.part, account.quota_bytes, account.is_production = part, part.quota_bytes, is_production
                account.kept_bytes = max(account.kept_bytes, account.lent)
        host = self._host[kernel_id]
        host.kept_bytes = max(host.kept_bytes, host.lent)
        host.quota_bytes = self.host_memory_bytes if host_quota_bytes is None else host_quota_bytes

    def release(self, kernel_id: str) -> bool:
        """Take a reservation out, with its loans; return whether it was there."""
        self.drop_beside(kernel_id)
        counted = self._counted(kernel_id)
        accounts = self._kernels.pop(kernel_id, None)
        self._host.pop(kernel_id, None)
        self._aside.discard(kernel_id)
        if accounts is None:
            return False
        for account in counted:
            self._reserved[account.part.uuid] = self._without(account.part.uuid, account)
        for account in accounts:
            self._lent[account.part.uuid] -= account.lent
        self._forget_size(reserved_bytes(accounts))
        return True

    @contextlib.contextmanager
    def _resized(self, accounts: Sequence[DeviceAccount]) -> Iterator[None]:
        """Count a kernel's size anew, whose parts change meanwhile."""
        before = reserved_bytes(accounts)
        yield
        self._forget_size(before)
        self._sizes[reserved_bytes(accounts)] += 1

    def _forget_size(self, size: int) -> None:
        self._sizes[size] -= 1
        if not self._sizes[size]:
            del self._sizes[size]

    def accounts(self, kernel_id: str) -> tuple[DeviceAccount, ...]:
        """Return the kernel's accounts, in the order of its grant. Callers only read them."""
        return self._kernels[kernel_id]

    def host_account(self, kernel_id: str) -> Account:
        """Return the kernel's account of host memory. Callers only read it."""
        return self._host[kernel_id]

    def account(self, kernel_id: str, device: int) -> Account:
        """Return one account, by index into the kernel's grant or HOST_MEMORY. Raises LedgerError.

        Callers only read it.
        """
        if device == protocol.HOST_MEMORY and kernel_id in self._host:
            return self._host[kernel_id]
        accounts = self._kernels.get(kernel_id, ())
        if not 0 <= device < len(accounts):
            raise LedgerError(f"names device {device}; the kernel has {len(accounts)}")
        return accounts[device]

    def count_contexts(self, kernel_id: str, processes: int) -> None:
        """Count the contexts of so many processes against their kernel's memory on each device."""
        for account in self._kernels.get(kernel_id, ()):
            account.measured_bytes = self.contexts.measured(account.part.uuid)
            account.context_bytes = self.contexts.counted(kernel_id, account.part.uuid, processes)

    def count_guarantees(self, kernel_id: str, parts: Sequence[Part]) -> None:
        """Reserve what these parts guarantee, in place of what was reserved, whether it fits or not.

        A kernel whose memory cannot leave its devices takes its limit from others as a fact.
        """
        accounts = self._kernels.get(kernel_id, ())
        changed = [(a, p) for a, p in zip(accounts, parts, strict=False) if a.part != p and a.part.uuid == p.uuid]
        with self._resized(accounts) if changed else contextlib.nullcontext():
            for account, part in changed:
                if kernel_id not in self._aside:
                    self._reserved[part.uuid] = self._without(part.uuid, account).plus(part, account.is_production)
                account.part = part

    def kernels(self) -> Iterator[str]:
        return iter(self._kernels)

    def lend(self, kernel_id: str, device: int, process: int, amount: int) -> bool:
        """Lend all of ``amount``, or nothing.

        ``device`` is an index into the kernel's grant, or HOST_MEMORY.
        """
        account = self.account(kernel_id, device)
        if amount < 0 or amount > account.room:
            return False
        self._add(account, process, amount)
        return True

    def adopt(self, kernel_id: str, device: int, process: int, amount: int, known: int = 0) -> None:
        """Enter the bytes that a process reports after it or the agent was away.

        Raises LedgerError. ``known`` bytes were lent to it before: they are on the device in any
        case, so they may pass a quota that has shrunk since. Then nothing is lent until enough came
        back. A tighter bound holds for further bytes.
        """
        account = self.account(kernel_id, device)
        is_known = amount <= known
        most = max(account.quota_bytes, account.kept_bytes) if is_known else self._claimable(kernel_id, account)
        if amount < 0 or account.lent + amount > most:
            raise LedgerError(
                f"claims {amount} bytes; it was lent {known} before, and of the {account.quota_bytes} of its kernel "
                f"{account.lent} are lent now"
            )
        self._add(account, process, amount)

    def keep(self, kernel_id: str, totals: Sequence[int]) -> None:
        """Keep what an earlier agent lent a kernel's processes: by device, host memory last."""
        for account, total in zip((*self._kernels[kernel_id], self._host[kernel_id]), totals, strict=True):
            account.kept_bytes = total

    def _claimable(self, kernel_id: str, account: Account) -> int:
        """Return the most that a kernel's processes may claim without a known loan.

        This is the kernel's guarantee, and within its quota the memory that no other kernel has or
        is guaranteed.
        """
        if not isinstance(account, DeviceAccount):
            return account.quota_bytes
        uuid = account.part.uuid
        spare = self._devices[uuid].memory_bytes
        for other, accounts in self._kernels.items():
            if other != kernel_id:
                spare -= sum(max(a.lent, a.part.reserved_bytes) for a in accounts if a.part.uuid == uuid)
        return min(account.quota_bytes, max(account.part.reserved_bytes, spare))

    def take_back(self, kernel_id: str, device: int, process: int, amount: int) -> None:
        """Take back credit from a process.

        Raises LedgerError when it returns more than it was lent.
        """
        account = self.account(kernel_id, device)
        loan = account.loans.get(process)
        if amount < 0 or amount > (loan.bytes if loan else 0):
            raise LedgerError(f"returns {amount} bytes, was lent {loan.bytes if loan else 0}")
        if loan is not None:
            loan.bytes -= amount
            self._count(account, -amount)

    def end_process(self, kernel_id: str, process: int) -> int:
        """Take back all that a process was lent; return how many bytes of the devices it was."""
        total = 0
        host = self._host.get(kernel_id)
        if host is not None and process in host.loans:
            host.lent -= host.loans.pop(process).bytes
        for account in self._kernels.get(kernel_id, ()):
            loan = account.loans.pop(process, None)
            if loan is not None:
                self._count(account, -loan.bytes)
                total += loan.bytes
        return total

    def lent(self, uuid: str) -> int:
        """Return the bytes that all kernels were lent of a device, swapped ones included."""
        return self._lent[uuid]

    def begin_look(self) -> None:
        """Start counting ``recent_most`` for the next look at the devices."""
        for accounts in self._kernels.values():
            for account in accounts:
                for loan in account.loans.values():
                    loan.recent_most = loan.bytes

    def _sum_reserved(self, uuid: str) -> Reserved:
        """Return what kernels reserved of a device, part by part."""
        total = Reserved()
        for account in (a for one in self._kernels for a in self._counted(one) if a.part.uuid == uuid):
            total = total.plus(account.part, account.is_production)
        for kernel_id in (one for one, part in self._beside.items() if part.uuid == uuid):
            total = total.plus(self._beside[kernel_id], self._kernels[kernel_id][0].is_production)
        return total

    def check(self) -> None:
        """Raise LedgerError when an invariant is broken.

        For tests, and cheap enough for a sanity check.
        """
        for uuid, device in self._devices.items():
            accounts = [a for accounts in self._kernels.values() for a in accounts if a.part.uuid == uuid]
            total = self._sum_reserved(uuid)
            if total != self.reserved(uuid):
                raise LedgerError(f"device {uuid}: the sums of its reservations are off")
            most = self.oversubscription.most
            if total.bytes > device.memory_bytes * most or total.hundredths > WHOLE * most:
                raise LedgerError(f"device {uuid}: reserved over what it has")
            if any(a.lent != sum(loan.bytes for loan in a.loans.values()) for a in accounts):
                raise LedgerError(f"device {uuid}: the sums of its loans are off")
            if self._lent[uuid] != sum(a.lent for a in accounts):
                raise LedgerError(f"device {uuid}: the sum of what is lent is off")
        if self._sizes != Counter(reserved_bytes(accounts) for accounts in self._kernels.values()):
            raise LedgerError("the sizes of the kernels are off")
        for kernel_id, host in self._host.items():
            if host.lent != sum(loan.bytes for loan in host.loans.values()):
                raise LedgerError(f"kernel {kernel_id}: the sum of its loans of host memory is off")

    def _check_fit(
        self, kernel_id: str, parts: Sequence[Part], is_production: bool, is_restored: bool, without: str = ""
    ) -> None:
        """Raise LedgerError if the parts do not fit."""
        states = {s.uuid: s for s in self.device_states("production" if is_production else "opportunistic", without)}
        for part in parts:
            state = states.get(part.uuid)
            if state is not None and is_restored:
                reserved = self.reserved(part.uuid)
                state = device_state(
                    part.uuid, state.index, state.memory_bytes, reserved, Oversubscription(MOST_RATIO, MOST_RATIO)
                )
            if state is None or part.hundredths > state.free_hundredths or part.reserved_bytes > state.free_bytes:
                raise LedgerError(f"kernel {kernel_id} does not fit on device {part.uuid}")

    def _add(self, account: Account, process: int, amount: int) -> None:
        loan = account.loans.setdefault(process, Loan())
        loan.bytes += amount
        loan.most = max(loan.most, loan.bytes)
        loan.recent_most = max(loan.recent_most, loan.bytes)
        self._count(account, amount)

    def _count(self, account: Account, amount: int) -> None:
        account.lent += amount
        if isinstance(account, DeviceAccount):
            self._lent[account.part.uuid] += amount


def reserved_bytes(accounts: Iterable[DeviceAccount]) -> int:
    """Return the bytes that a kernel reserved, of all its devices."""
    return sum(account.part.reserved_bytes for account in accounts)

"""One process of a kernel: where its memory is, and its orders.

Its loans bound its reports. It knows no other process, and decides nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from jupyter_aliquot.gpu_hook.agent.host_copies.segments import Segment, open_for_process
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceAccount
from jupyter_aliquot.gpu_hook.agent.sessions.session import HookSession
from jupyter_aliquot.gpu_hook.protocol.codec import (
    MalformedError,
    MessageType,
    Moved,
    MoveOutcome,
    PinReason,
    Residency,
    Segment as SegmentMessage,
    Swap,
)

from .facts import DeviceBytes, Move, MoveResult

_NO_PIN_REASONS = PinReason(0)


_RESULTS = {
    MoveOutcome.BUSY: MoveResult.BUSY,
    MoveOutcome.NO_SPACE: MoveResult.HOST_FULL,
    MoveOutcome.NO_ROOM: MoveResult.NO_ROOM,
    MoveOutcome.REFUSED: MoveResult.REFUSED,
    MoveOutcome.FAILED: MoveResult.FAILED,
}


class Absence(Enum):
    """The reason why there is no answer."""

    GONE = "the process ended"
    SILENT = "the process did not answer"


Answer = Moved | Absence


@dataclass(frozen=True)
class Patience:
    """The time that a process has to begin an order, and then to complete it."""

    begin_seconds: float
    move_seconds: float


class ProcessResidency:
    """The residency of one process. ``accounts`` are the kernel's, in the order of its grant."""

    def __init__(self, session: HookSession, residency: Residency) -> None:
        self.session = session
        self.residency = residency
        self.said_pin_reasons = _NO_PIN_REASONS
        self.order: MessageType | None = None  # SWAP_OUT or SWAP_IN without an answer yet
        self._sequence = 0
        self._waiter: asyncio.Future[Answer] | None = None
        self.has_left = False

    @property
    def is_out(self) -> bool:
        """Return whether its bytes, or some of them, are on the host."""
        return self.residency is not Residency.RESIDENT

    @property
    def is_silent(self) -> bool:
        """Return whether an order to move is unanswered after its deadline."""
        return self.order is not None and self._waiter is None

    async def tell(
        self, kind: MessageType, segments: Sequence[Segment], drain_milliseconds: int, patience: Patience
    ) -> Answer:
        """Hand over the segments, order the process to move, and wait for its answer."""
        if self.has_left:
            return Absence.GONE
        for number, segment in enumerate(segments):
            message = SegmentMessage(number, segment.bytes)
            descriptor = open_for_process(segment)
            try:
                was_sent = await self.session.send_segment(message, descriptor, patience.begin_seconds)
            finally:
                os.close(descriptor)
            if not was_sent:
                return Absence.GONE if self.has_left or self.session.is_ending else Absence.SILENT
        self._sequence = self._sequence % 0xFFFFFFFF + 1
        self.order = kind
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        self.session.send(Swap(kind, self._sequence, drain_milliseconds, len(segments)))
        try:
            await asyncio.wait({waiter}, timeout=patience.begin_seconds)
            if not waiter.done() and self._is_moving:
                await asyncio.wait({waiter}, timeout=patience.move_seconds)
            return waiter.result() if waiter.done() else Absence.SILENT
        finally:
            self._waiter = None

    @property
    def _is_moving(self) -> bool:
        """Return whether its page shows that it moves.

        A stopped process does not begin, and the others of its kernel wait for it in vain.
        """
        page = self.session.hook_side
        return page is not None and page.residency() in (Residency.SWAPPING_OUT, Residency.SWAPPING_IN)

    def take(self, moved: Moved) -> bool:
        """Take a MOVED message; return whether an order waited for it. Raises MalformedError."""
        is_answer = self.order is not None and moved.sequence == self._sequence
        if not is_answer and moved.sequence != 0:
            raise MalformedError(f"got MOVED {moved.sequence}, which answers nothing")
        self.residency, self.said_pin_reasons = moved.residency, moved.pin_reasons
        if not is_answer:
            return False
        self.order = None
        if self._waiter is None or self._waiter.done():
            return False
        self._waiter.set_result(moved)
        return True

    def leave(self) -> None:
        """End the waits for it: its connection is closed."""
        self.has_left = True
        self.order = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(Absence.GONE)

    def lent(self, account: DeviceAccount) -> int:
        loan = account.loans.get(self.session.number)
        return loan.bytes if loan is not None else 0

    def swappable(self, device: int, account: DeviceAccount) -> int:
        page = self.session.hook_side
        return 0 if page is None else min(page.swappable(device), self.lent(account))

    def swapped(self, device: int, account: DeviceAccount) -> int:
        page = self.session.hook_side
        return min(page.swapped(device), self.lent(account)) if page is not None and self.is_out else 0

    def copied(self) -> int:
        """Return the bytes that its hook copied in all moves; 0 for a process that left."""
        page = self.session.hook_side
        return 0 if page is None or self.has_left else page.copied()

    def on_device(self, device: int, account: DeviceAccount) -> int:
        """Return its bytes on the device.

        While it moves, all its bytes count: the room is its own.
        """
        is_out = self.residency is Residency.SWAPPED and self.order is None
        return self.lent(account) - (self.swapped(device, account) if is_out else 0)

    def unswappable(self, device: int, account: DeviceAccount) -> int:
        if self.residency is Residency.SWAPPED:
            return self.lent(account) - self.swapped(device, account)
        return self.lent(account) - self.swappable(device, account)


def move_of(answer: Answer, wanted: Residency, accounts: Sequence[DeviceAccount]) -> Move:
    """Return one process's answer as a Move.

    The Move is DONE when the process is where it should be, or gives the reason why not.
    ``accounts`` bound its bytes. A process that was there already refuses, and counts as moved. A
    process that claims to have moved, and is not there, failed.
    """
    if answer is Absence.GONE:
        return Move(MoveResult.DONE)
    if isinstance(answer, Absence):
        return Move(MoveResult.SILENT, answer.value)
    most = sum(account.lent for account in accounts)
    result = MoveResult.DONE if answer.residency is wanted else _RESULTS.get(answer.outcome, MoveResult.FAILED)
    return Move(
        result,
        answer.text or answer.outcome.name.lower().replace("_", " "),
        moved_bytes=min(most, sum(device.swapped_bytes for device in answer.devices)),
        drain_seconds=answer.drain_nanoseconds / 1e9,
        copy_seconds=answer.copy_nanoseconds / 1e9,
        map_seconds=answer.map_nanoseconds / 1e9,
    )


def on_devices(process: ProcessResidency | None, accounts: Sequence[DeviceAccount]) -> dict[str, int]:
    """Return the bytes of one process on each device, by UUID."""
    if process is None:
        return {}
    return {account.part.uuid: process.on_device(device, account) for device, account in enumerate(accounts)}


def bytes_of(device: int, account: DeviceAccount, processes: Iterable[ProcessResidency]) -> DeviceBytes:
    """Return the bytes of a kernel on one device.

    Credit of a process that we cannot move (a self-check) is on the device.
    """
    swappable = swapped = 0
    unswappable = on_device = account.lent
    for process in processes:
        lent = process.lent(account)
        swappable += process.swappable(device, account)
        swapped += process.swapped(device, account)
        unswappable += process.unswappable(device, account) - lent
        on_device += process.on_device(device, account) - lent
    return DeviceBytes(
        uuid=account.part.uuid,
        lent_bytes=account.lent,
        swappable_bytes=swappable,
        swapped_bytes=swapped,
        unswappable_bytes=unswappable,
        on_device_bytes=on_device,
        context_bytes=account.context_bytes,
    )

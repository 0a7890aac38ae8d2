"""The credit queue of one kernel on one device, or of host memory.

It lends bytes to processes and recalls them.
The queue knows no sockets: it sends through a ``Transport``. It answers with all the bytes of a
request, or with 0: a hook requests a chunk first and, refused, exactly what it needs. Requests are
answered in order. A request that the quota allows and the device has no room for waits until the
lease keeper gives room or refuses it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from .ledger import Ledger

_WAIT_SECONDS = 0.5  # between two CREDIT_WAIT messages; the protocol promises one a second
# a process that leaves a recall unanswered for so long is stopped, or does not get a processor
_SILENCE_SECONDS = 2.0

HasRoom = Callable[[int, int], bool]  # whether this many bytes of this device, by index, are there now


def always(device: int, amount: int) -> bool:
    """Report room everywhere: without leases the driver decides."""
    return True


class Timer(Protocol):
    """A timer, as ``call_later`` returns it."""

    def cancel(self) -> None: ...


class Transport(Protocol):
    """Sends messages to the kernel's processes, by the number of their session."""

    def grant(self, process: int, device: int, amount: int, sequence: int) -> None: ...

    def grant_context(self, process: int, device: int, amount: int, sequence: int) -> None:
        """Tell a process that so many bytes are there for its context; 0: they are not. Nothing is lent."""

    def recall(self, process: int, device: int, amount: int, sequence: int) -> None: ...

    def ask_patience(self, process: int, device: int, sequence: int) -> None:
        """Tell a process to wait on."""


@dataclass(frozen=True)
class _Request:
    process: int
    amount: int
    sequence: int
    may_wait: bool  # for room; False: it requests more than it needs
    is_context: bool = False  # for the room of a context, which is not lent


class CreditQueue:
    """The requests for credit of one kernel, for one device or host memory.

    Only the head recalls bytes.
    """

    def __init__(
        self,
        ledger: Ledger,
        kernel_id: str,
        device: int,
        transport: Transport,
        call_later: Callable[[float, Callable[[], None]], Timer],
        recall_seconds: float,
        has_room: HasRoom = always,
    ) -> None:
        self._ledger = ledger
        self._has_room = has_room
        self._room_timer: Timer | None = None  # set while the head waits for room
        self._kernel_id = kernel_id
        self._device = device
        self._transport = transport
        self._call_later = call_later
        self._recall_seconds = recall_seconds
        self._queue: deque[_Request] = deque()
        self._waiting: Counter[int] = Counter()  # process -> number of its requests in the queue
        self._awaited: set[int] = set()  # processes whose answer the head waits for
        # process -> sequence of a recall that it has not answered, late ones too
        self._unanswered: dict[int, int] = {}
        self._silent: set[int] = set()  # the processes of these that no request waits for any more
        self._deadline: Timer | None = None
        self._next_sequence = 1
        self._is_open = True
        self._is_holding = False

    def waiting(self, process: int) -> int:
        """Return how many requests of one process are not answered yet."""
        return self._waiting[process]

    def __len__(self) -> int:
        """Return how many requests are not answered yet."""
        return len(self._queue)

    @property
    def wanted_bytes(self) -> int:
        """The bytes that the head waits for: the quota allows them, and the device has no room."""
        return self._queue[0].amount if self._room_timer is not None else 0

    @property
    def wanted_context_bytes(self) -> int:
        """The part of these that is for a context."""
        return self.wanted_bytes if self._queue and self._queue[0].is_context else 0

    def give_room(self) -> None:
        """Answer the head: the room that it waited for is reserved for it."""
        if self._room_timer is not None:
            self._end_room_wait()
            self._lend()
            self._serve()

    def refuse_room(self) -> None:
        """Refuse the head: the kernels that have the room cannot leave."""
        if self._room_timer is not None:
            self._end_room_wait()
            self._answer(0)
            self._serve()

    def request(self, process: int, amount: int, sequence: int, *, may_wait: bool = True) -> None:
        """Answer a request of a process for ``amount`` bytes.

        The answer comes now, after a recall, or when the device has room.
        """
        self._enter(_Request(process, amount, sequence, may_wait))

    def request_context(self, process: int, amount: int, sequence: int) -> None:
        """Answer a request of a process for room for a context of ``amount`` bytes, when the device has it.

        The account has counted these bytes since the process came.
        """
        self._enter(_Request(process, amount, sequence, may_wait=True, is_context=True))

    def _enter(self, request: _Request) -> None:
        self._queue.append(request)
        self._waiting[request.process] += 1
        if len(self._queue) == 1:
            self._serve()

    def returned(self, process: int, amount: int, sequence: int) -> None:
        """Take back the credit that a process returned, by itself or after a recall.

        Raises LedgerError.
        """
        self._ledger.take_back(self._kernel_id, self._device, process, amount)
        if self._unanswered.get(process) == sequence:
            del self._unanswered[process]
            self._silent.discard(process)
            self._awaited.discard(process)
        self._go_on()

    def withdrawn(self, process: int, sequence: int) -> None:
        """Drop a request whose wait an interrupt ended.

        One that was answered already is no error.
        """
        self._drop(process, lambda request: request.sequence == sequence)

    def left(self, process: int) -> None:
        """Forget a process that ended; the ledger has its loans back already."""
        self._unanswered.pop(process, None)
        self._silent.discard(process)
        self._awaited.discard(process)
        self._drop(process, lambda _: True)
        self._waiting.pop(process, None)

    def _drop(self, process: int, is_dropped: Callable[[_Request], bool]) -> None:
        """Drop requests of a process, and serve the next one if the head was among them."""
        head = self._queue[0] if self._queue else None
        if self._waiting[process]:
            self._queue = deque(r for r in self._queue if r.process != process or not is_dropped(r))
            self._waiting[process] = sum(r.process == process for r in self._queue)
        is_left = head is not None and not (self._queue and self._queue[0] is head)
        if is_left and not self._is_holding:
            self._end_room_wait()
            self._end_recall()
            self._serve()
        else:
            self._go_on()

    def hold(self) -> None:
        """Lend nothing until ``resume``.

        After an agent's restart, processes still have to report their loans.
        """
        self._is_holding = True

    def resume(self) -> None:
        """Lend again: all known processes reported their loans, or their time is over."""
        if self._is_holding:
            self._is_holding = False
            self._serve()

    def close(self) -> None:
        """Answer every request with 0 from now on: the kernel's grant ends."""
        self._is_open = False
        self._is_holding = False
        self._end_room_wait()
        self._end_recall()
        self._serve()

    def _serve(self) -> None:
        """Answer the queue until it is empty, or until the first request has to wait."""
        while self._queue and not self._is_holding and self._room_timer is None:
            request = self._queue[0]
            if not self._is_open or self._is_beyond_quota(request):
                self._answer(0)
            elif request.is_context or request.amount <= self._ledger.account(self._kernel_id, self._device).room:
                if self._has_room(self._device, request.amount):
                    self._lend()
                elif request.may_wait:
                    return self._wait_for_room()
                else:
                    self._answer(0)
            elif not self._recall(request):
                self._answer(0)
            else:
                return

    def _lend(self) -> None:
        """Lend the head its bytes, which are there. The kernel's limit may have shrunk in the meantime: then none."""
        request = self._queue[0]
        is_lent = request.is_context or self._ledger.lend(
            self._kernel_id, self._device, request.process, request.amount
        )
        self._answer(request.amount if is_lent else 0)

    def _wait_for_room(self) -> None:
        """Tell the process to wait on, now and every half second, for as long as it takes."""
        request = self._queue[0]
        self._transport.ask_patience(request.process, self._device, request.sequence)
        self._room_timer = self._call_later(_WAIT_SECONDS, self._wait_for_room)

    def _end_room_wait(self) -> None:
        if self._room_timer is not None:
            self._room_timer.cancel()
            self._room_timer = None

    def _is_beyond_quota(self, request: _Request) -> bool:
        account = self._ledger.account(self._kernel_id, self._device)
        is_beyond = not request.is_context and request.amount > account.lendable_bytes
        return request.amount == 0 or is_beyond

    def _recall(self, request: _Request) -> bool:
        """Recall the missing bytes from the other processes.

        Return whether there is one to wait for. A process that has not answered an earlier recall
        is not asked again, and the head waits for it only until it counts as silent. Otherwise
        every allocation beside a stopped process would take that long.
        """
        account = self._ledger.account(self._kernel_id, self._device)
        short = request.amount - account.room
        holders = [p for p, loan in account.loans.items() if p != request.process and loan.bytes > 0]
        self._awaited.update(p for p in holders if p not in self._silent)
        for process in sorted(self._awaited - self._unanswered.keys()):
            self._unanswered[process] = self._next_sequence
            self._transport.recall(process, self._device, min(short, account.loans[process].bytes), self._next_sequence)
            self._call_later(_SILENCE_SECONDS, partial(self._note_silence, process, self._next_sequence))
        self._next_sequence = self._next_sequence % 0xFFFFFFFF + 1
        if self._awaited:
            self._deadline = self._call_later(self._recall_seconds, self._settle)
        return bool(self._awaited)

    def _note_silence(self, process: int, sequence: int) -> None:
        """Stop waiting for a process that has not answered this recall."""
        if self._unanswered.get(process) == sequence:
            self._silent.add(process)
            self._awaited.discard(process)
            self._go_on()

    def _go_on(self) -> None:
        """Answer the head if the bytes that came back are enough."""
        if self._deadline is None or self._is_holding:
            return
        request = self._queue[0]
        account = self._ledger.account(self._kernel_id, self._device)
        if account.room >= request.amount or not self._awaited:
            self._settle()

    def _settle(self) -> None:
        """End the recall if there are enough bytes, or no more will come.

        Otherwise tell the process to wait on. A request for more than its process needs is refused
        at once: a request for what it needs follows.
        """
        request = self._queue[0]
        is_short = request.amount > self._ledger.account(self._kernel_id, self._device).room
        if is_short and self._awaited and request.may_wait:
            self._transport.ask_patience(request.process, self._device, request.sequence)
            self._deadline = self._call_later(_WAIT_SECONDS, self._settle)
            return
        self._end_recall()
        if is_short:
            self._answer(0)
        self._serve()

    def _answer(self, amount: int) -> None:
        request = self._queue.popleft()
        self._waiting[request.process] -= 1
        grant = self._transport.grant_context if request.is_context else self._transport.grant
        grant(request.process, self._device, amount, request.sequence)

    def _end_recall(self) -> None:
        self._awaited.clear()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

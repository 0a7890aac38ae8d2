"""The credit queues of one kernel: one for each device and one for host memory."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from jupyter_aliquot.gpu_hook.agent.ledger.credit import CreditQueue, HasRoom, always
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Ledger
from jupyter_aliquot.gpu_hook.agent.sessions.session import HookSession
from jupyter_aliquot.gpu_hook.protocol.codec import HOST_MEMORY, Credit, MalformedError, MessageType, Request

# Requests that wait in all queues: a hook has one for each of its threads that allocate.
MOST_OF_A_PROCESS = 1024
MOST_OF_A_KERNEL = 4096
_CONTEXT_SECONDS = 60.0  # in which a process asks for room for contexts as often as its program may need
_ALWAYS_OF_A_PROCESS = 16  # even when its siblings fill the kernel's limit


class KernelCreditQueues:
    """The queues of one kernel, and the transport that they send through.

    ``sessions`` are the kernel's, by number; the kernel changes them. The queues call ``lent``
    before they grant credit to a process, and ``made_room`` with a process, a device and the bytes
    that are there for a context from then on.
    """

    def __init__(
        self,
        ledger: Ledger,
        kernel_id: str,
        devices: Iterable[int],
        sessions: Mapping[int, HookSession],
        recall_seconds: float,
        has_room: HasRoom,
        lent: Callable[[], None],
        made_room: Callable[[int, int, int], None],
    ) -> None:
        self._ledger, self._kernel_id = ledger, kernel_id
        self._sessions = sessions
        self._lent, self._made_room = lent, made_room
        self._contexts: dict[int, deque[float]] = {}  # process -> when it last requested room for contexts
        self._recall_seconds = recall_seconds
        call_later = asyncio.get_running_loop().call_later
        self._queues = {
            device: CreditQueue(
                ledger,
                kernel_id,
                device,
                self,
                call_later,
                recall_seconds,
                always if device == HOST_MEMORY else has_room,
            )
            for device in devices
        }

    @property
    def wanted_bytes(self) -> Mapping[int, int]:
        """Return the bytes that requests wait for, by device.

        The quota allows them, and the device has no room.
        """
        return {device: queue.wanted_bytes for device, queue in self._queues.items() if queue.wanted_bytes}

    @property
    def wanted_context_bytes(self) -> Mapping[int, int]:
        """Return the part of these that is for contexts."""
        return {
            device: queue.wanted_context_bytes for device, queue in self._queues.items() if queue.wanted_context_bytes
        }

    def give_room(self) -> None:
        """Answer all heads: their room is there."""
        for queue in self._queues.values():
            queue.give_room()

    def refuse_room(self) -> None:
        """Refuse all heads that wait for room."""
        for queue in self._queues.values():
            queue.refuse_room()

    def take(self, session: HookSession, message: Credit) -> None:
        """Handle a request for credit, or its return, of a process.

        Raises MalformedError, LedgerError.
        """
        queue = self._queues.get(message.device)
        if queue is None:
            raise MalformedError(f"got device {message.device}; the kernel has {len(self._queues) - 1}")
        if message.type is MessageType.CREDIT_REQUEST:
            self._check_crowd(session.number)
            self._request(session.number, queue, message)
        elif message.deadline_milliseconds:
            queue.withdrawn(session.number, message.sequence)
        else:
            queue.returned(session.number, message.bytes, message.sequence)

    def _request(self, process: int, queue: CreditQueue, message: Credit) -> None:
        purpose = message.deadline_milliseconds
        if purpose != Request.CONTEXT:
            return queue.request(process, message.bytes, message.sequence, may_wait=purpose == Request.NEEDED)
        if message.device == HOST_MEMORY:
            raise MalformedError("requested host memory for a context; a context is on a device")
        uuid = self._ledger.accounts(self._kernel_id)[message.device].part.uuid
        amount = self._ledger.contexts.room_for_one(uuid, message.bytes) if self._may_make_one(process) else 0
        queue.request_context(process, amount, message.sequence)

    def _may_make_one(self, process: int) -> bool:
        """Return whether a process may make others leave for a context: it could ask without end, and make none."""
        most = 2 * len(self._queues)  # a context on each device, asked for twice
        times, now = self._contexts.setdefault(process, deque(maxlen=most)), time.monotonic()
        may_ask = len(times) < most or now - times[0] >= _CONTEXT_SECONDS
        if may_ask:
            times.append(now)
        return may_ask

    def _check_crowd(self, process: int) -> None:
        """Raise MalformedError when too many requests wait."""
        own = sum(queue.waiting(process) for queue in self._queues.values())
        if own < _ALWAYS_OF_A_PROCESS:
            return
        total = sum(len(queue) for queue in self._queues.values())
        if own >= MOST_OF_A_PROCESS or total >= MOST_OF_A_KERNEL:
            raise MalformedError(
                f"requested credit while {own} requests of this process and {total} of its kernel wait for an answer; "
                f"a process may have {MOST_OF_A_PROCESS}, a kernel {MOST_OF_A_KERNEL}: wait for answers"
            )

    def left(self, process: int) -> None:
        """Forget a process that ended; the ledger has its loans back already."""
        self._contexts.pop(process, None)
        for queue in self._queues.values():
            queue.left(process)

    def interrupt(self) -> None:
        """Report an interrupt to the kernel's processes, so that their waiting calls give up."""
        for session in self._sessions.values():
            if session.agent_side is not None:
                session.agent_side.count_interrupt()

    def hold(self) -> None:
        """Lend nothing until the processes that an earlier agent knew have reported their loans."""
        for queue in self._queues.values():
            queue.hold()

    def resume(self) -> None:
        for queue in self._queues.values():
            queue.resume()

    def close(self) -> None:
        """Answer every request with 0 from now on: the kernel's grant ends."""
        for queue in self._queues.values():
            queue.close()

    # Transport, called by the queues.

    def grant(self, process: int, device: int, amount: int, sequence: int) -> None:
        if amount:
            self._lent()
        self._sessions[process].send(Credit(MessageType.CREDIT_GRANT, device, amount, sequence))

    def grant_context(self, process: int, device: int, amount: int, sequence: int) -> None:
        if amount:
            self._made_room(process, device, amount)
        self._sessions[process].send(Credit(MessageType.CREDIT_GRANT, device, amount, sequence, Request.CONTEXT))

    def recall(self, process: int, device: int, amount: int, sequence: int) -> None:
        deadline = int(self._recall_seconds * 1000)
        self._sessions[process].send(Credit(MessageType.CREDIT_RECALL, device, amount, sequence, deadline))

    def ask_patience(self, process: int, device: int, sequence: int) -> None:
        self._sessions[process].send(Credit(MessageType.CREDIT_WAIT, device, 0, sequence))

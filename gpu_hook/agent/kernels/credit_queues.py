"""The credit desks of one kernel, one for each device and one for host memory, and their way to its processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from jupyter_aliquot.gpu_hook.agent.ledger.credit import CreditDesk, HasRoom, always
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Ledger
from jupyter_aliquot.gpu_hook.agent.sessions.session import HookSession
from jupyter_aliquot.gpu_hook.protocol.codec import HOST_MEMORY, Credit, MalformedError, MessageType

# Requests that wait, over all desks: a hook has one for each of its threads that allocates.
MOST_OF_A_PROCESS = 1024
MOST_OF_A_KERNEL = 4096
_ALWAYS_OF_A_PROCESS = 16  # though its siblings fill what the kernel may have


class KernelDesks:
    """``sessions`` is the kernel's own, by number: read here, changed there. A Courier to its desks.

    ``lent`` is called before a process hears that it was lent something.
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
    ) -> None:
        self._sessions = sessions
        self._lent = lent
        self._recall_seconds = recall_seconds
        call_later = asyncio.get_running_loop().call_later
        self._desks = {
            device: CreditDesk(
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
        """What requests wait for, by device: the kernel may have it, and the device has no room."""
        return {device: desk.wanted_bytes for device, desk in self._desks.items() if desk.wanted_bytes}

    def give_room(self) -> None:
        """All that requests wait for is there."""
        for desk in self._desks.values():
            desk.give_room()

    def refuse_room(self) -> None:
        """What they wait for will not be there."""
        for desk in self._desks.values():
            desk.refuse_room()

    def take(self, session: HookSession, message: Credit) -> None:
        """A process asks for credit, or returns some. Raises MalformedError, LedgerError."""
        desk = self._desks.get(message.device)
        if desk is None:
            raise MalformedError(f"got device {message.device}; the kernel has {len(self._desks) - 1}")
        if message.type is MessageType.CREDIT_REQUEST:
            self._check_crowd(session.number)
            desk.request(session.number, message.bytes, message.sequence, may_wait=not message.deadline_milliseconds)
        elif message.deadline_milliseconds:
            desk.withdrawn(session.number, message.sequence)
        else:
            desk.returned(session.number, message.bytes, message.sequence)

    def _check_crowd(self, process: int) -> None:
        """Raises MalformedError."""
        own = sum(desk.waiting(process) for desk in self._desks.values())
        if own < _ALWAYS_OF_A_PROCESS:
            return
        total = sum(len(desk) for desk in self._desks.values())
        if own >= MOST_OF_A_PROCESS or total >= MOST_OF_A_KERNEL:
            raise MalformedError(
                f"requested credit while {own} requests of this process and {total} of its kernel wait for an answer; "
                f"a process may have {MOST_OF_A_PROCESS}, a kernel {MOST_OF_A_KERNEL}: wait for answers"
            )

    def left(self, process: int) -> None:
        """A process ended; the ledger has its loans back already."""
        for desk in self._desks.values():
            desk.left(process)

    def interrupt(self) -> None:
        """Tell its processes that their user interrupts it: what waits there gives up."""
        for session in self._sessions.values():
            if session.agent_side is not None:
                session.agent_side.count_interrupt()

    def hold(self) -> None:
        """Lend nothing until the processes of before the agent's restart have told what they have."""
        for desk in self._desks.values():
            desk.hold()

    def resume(self) -> None:
        for desk in self._desks.values():
            desk.resume()

    def close(self) -> None:
        """The kernel's grant ends: answer everybody with 0, now and from now on."""
        for desk in self._desks.values():
            desk.close()

    # Called by the desks (Courier).

    def grant(self, process: int, device: int, amount: int, sequence: int) -> None:
        if amount:
            self._lent()
        self._sessions[process].send(Credit(MessageType.CREDIT_GRANT, device, amount, sequence))

    def recall(self, process: int, device: int, amount: int, sequence: int) -> None:
        deadline = int(self._recall_seconds * 1000)
        self._sessions[process].send(Credit(MessageType.CREDIT_RECALL, device, amount, sequence, deadline))

    def ask_patience(self, process: int, device: int, sequence: int) -> None:
        self._sessions[process].send(Credit(MessageType.CREDIT_WAIT, device, 0, sequence))

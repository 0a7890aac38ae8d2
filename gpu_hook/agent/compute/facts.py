"""What the compute keeper knows of processes and devices, and what it uses of the rest of the agent. No decisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from jupyter_aliquot.gpu_hook.agent.compute.measurement.boards import NeighbourBook
from jupyter_aliquot.gpu_hook.agent.compute.measurement.reading import Reader, Who
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Reservation
from jupyter_aliquot.gpu_hook.agent.pages.activity_page import BoardPage
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import OPEN, AgentSide, Order
from jupyter_aliquot.gpu_hook.agent.pages.hook_page import HookSide
from jupyter_aliquot.gpu_hook.protocol.codec import BoardNotice, Role


class Session(Protocol):
    """A process of a kernel, as the keeper uses it."""

    number: int
    role: Role
    agent_side: AgentSide | None
    hook_side: HookSide | None
    board: BoardPage | None

    @property
    def pid(self) -> int: ...

    def notify(self, notice: BoardNotice, descriptor: int | None = None) -> bool: ...


class Owner(Protocol):
    """The kernel of a process."""

    @property
    def kernel_id(self) -> str: ...

    @property
    def reservation(self) -> Reservation: ...


class Watch(Protocol):
    """Is told by kernels of their processes; the keeper is one."""

    def joining(self, kernel: Owner, session: Session) -> None:
        """Its page is not handed over yet."""
        ...

    def joined(self, kernel: Owner, session: Session) -> None:
        """It was welcomed."""
        ...

    def left(self, session: Session) -> None:
        """Its pages are about to go. Also for a session that never joined."""
        ...

    def resized(self, kernel: Owner) -> None: ...

    def awaits(self, kernel: Owner, is_awaited: bool) -> None:
        """Whether processes of before this agent are still to come back to it."""
        ...


class Unwatched:
    """Implements Watch, and does nothing: a kernel before anybody keeps its compute."""

    def joining(self, kernel: Owner, session: Session) -> None: ...

    def joined(self, kernel: Owner, session: Session) -> None: ...

    def left(self, session: Session) -> None: ...

    def resized(self, kernel: Owner) -> None: ...

    def awaits(self, kernel: Owner, is_awaited: bool) -> None: ...


class Leases(Protocol):
    """Who keeps the leases: a kernel that nothing else holds stays swapped out."""

    def keep_out(self, kernel_id: str) -> None: ...

    def let_in(self, kernel_id: str) -> None: ...

    def is_kept_out(self, kernel_id: str) -> bool:
        """Not one that cannot be swapped: it stays where it is."""
        ...


@dataclass(eq=False)
class Member:
    """One process on one device, which is number ``device`` to it. Written by the keeper alone.

    ``own``: its GPU time as NVML says it, nanoseconds. ``silent_seconds``: how long NVML has seen no work of it, while
    its board shows some and nothing moves.
    """

    process: ProcessRecord
    device: int
    uuid: str
    who: Who
    reader: Reader
    order: Order = OPEN  # as its controller wants it
    own: int | None = None
    shown: object = None
    silent_seconds: float = 0.0
    withdrawn_since: int | None = None  # its board counts no longer: it shows work that is not there


@dataclass(eq=False)
class ProcessRecord:
    """One process of a kernel, on all the kernel's devices."""

    session: Session
    owner: Owner
    members: tuple[Member, ...] = ()
    book: NeighbourBook = field(default_factory=NeighbourBook)

    @property
    def board(self) -> BoardPage:
        """The board that the agent made with the process's pages."""
        assert self.session.board is not None  # as long as there is a record
        return self.session.board

    @property
    def is_production(self) -> bool:
        return self.owner.reservation.is_production


def kernels_of(members: Iterable[Member]) -> set[str]:
    return {member.who.kernel_id for member in members}

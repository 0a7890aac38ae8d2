"""The compute keeper's records of processes, and its Protocols for other parts of the agent.

It makes no decisions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from jupyter_aliquot.gpu_hook.agent.compute.measurement.reading import Reader, Who
from jupyter_aliquot.gpu_hook.agent.compute.measurement.subscriptions import Subscriptions
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Reservation
from jupyter_aliquot.gpu_hook.agent.pages.activity_page import ActivitySide
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import OPEN, AgentSide, Order
from jupyter_aliquot.gpu_hook.agent.pages.hook_page import HookSide
from jupyter_aliquot.gpu_hook.protocol.codec import ActivityPageNotice, Role


class Session(Protocol):
    """A process of a kernel, as far as the keeper uses it."""

    number: int
    role: Role
    agent_side: AgentSide | None
    hook_side: HookSide | None
    activity_page: ActivitySide | None

    @property
    def pid(self) -> int: ...

    def notify(self, notice: ActivityPageNotice, descriptor: int | None = None) -> bool: ...


class Owner(Protocol):
    """The kernel of a process."""

    @property
    def kernel_id(self) -> str: ...

    @property
    def reservation(self) -> Reservation: ...

    @property
    def is_swapped_out(self) -> bool:
        """Return whether its calls wait for the lease."""
        ...


class Watch(Protocol):
    """The receiver of a kernel's news about its processes.

    The keeper implements it.
    """

    def joining(self, kernel: Owner, session: Session) -> None:
        """Note that a process registers; its page is not handed over yet."""
        ...

    def joined(self, kernel: Owner, session: Session) -> None:
        """Note that the process was welcomed."""
        ...

    def left(self, session: Session) -> None:
        """Note that the process left, and its pages are about to close.

        Also called for a session that never joined.
        """
        ...

    def resized(self, kernel: Owner) -> None: ...

    def relocated(self, kernel: Owner) -> None:
        """Note that the kernel has other devices, of which its reservation tells."""
        ...

    def awaits(self, kernel: Owner, is_awaited: bool) -> None:
        """Set whether the kernel has processes of an earlier agent that have not come back."""
        ...


class Unwatched:
    """A Watch that does nothing, for a kernel before a keeper has it."""

    def joining(self, kernel: Owner, session: Session) -> None: ...

    def joined(self, kernel: Owner, session: Session) -> None: ...

    def left(self, session: Session) -> None: ...

    def resized(self, kernel: Owner) -> None: ...

    def relocated(self, kernel: Owner) -> None: ...

    def awaits(self, kernel: Owner, is_awaited: bool) -> None: ...


class Leases(Protocol):
    """The lease keeper, as the compute keeper uses it.

    It keeps a kernel swapped out that cannot be held back otherwise.
    """

    def keep_out(self, kernel_id: str) -> None: ...

    def let_in(self, kernel_id: str) -> None: ...

    def is_kept_out(self, kernel_id: str) -> bool:
        """Return whether the kernel is kept out. One that cannot be swapped stays on its device."""
        ...


@dataclass(eq=False)
class Member:
    """One process on one device, which is number ``device`` to it. Written by the keeper alone.

    ``own`` is its GPU time by NVML, in nanoseconds. ``silent_seconds`` is how long NVML has seen no
    work of it while its activity page shows work and does not change.
    """

    process: ProcessRecord
    device: int
    uuid: str
    who: Who
    reader: Reader
    order: Order = OPEN  # its controller's order
    own: int | None = None
    shown: object = None
    silent_seconds: float = 0.0
    # since when its activity page does not count, since it shows work that is not there
    withdrawn_since: int | None = None


@dataclass(eq=False)
class ProcessRecord:
    """One process of a kernel, on all the kernel's devices."""

    session: Session
    owner: Owner
    members: tuple[Member, ...] = ()
    subscriptions: Subscriptions = field(default_factory=Subscriptions)

    @property
    def activity_page(self) -> ActivitySide:
        """The activity page that the agent made with the process's pages."""
        assert self.session.activity_page is not None  # holds as long as there is a record
        return self.session.activity_page

    @property
    def is_production(self) -> bool:
        return self.owner.reservation.is_production


def kernels_of(members: Iterable[Member]) -> set[str]:
    return {member.who.kernel_id for member in members}

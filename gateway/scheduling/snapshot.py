"""What admission takes and shows: its settings, its snapshot, and the part of the node agent that it speaks to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from jupyter_aliquot.provisioner.resources import Grant, Request

from .ledger import Asker, Holding, LedgerSnapshot, Node
from .planner import Pending
from .queue import QueueEntry
from .quotas import GpuCaps


class Agent(Protocol):
    """The node agent, as agent_link.AgentLink gives it."""

    # Counts the connections made: a new number means that reservations must be renewed.
    connections: int
    unavailable_since: float | None
    message: str

    def listen(self, listener: Callable[[], None]) -> None: ...

    async def status(self) -> Node: ...

    async def reserve(self, asker: Asker, request: Request, placement: Mapping[str, int]) -> Grant: ...

    async def renew(self, asker: Asker, grant: Grant) -> Grant: ...

    async def resize(self, kernel_id: str, request: Request) -> Grant: ...

    async def release(self, kernel_id: str) -> None: ...


# Raises LimitError where this owner may not have the class that this kernelspec asks for.
ClassCheck = Callable[[str, Request, str], None]


def allow_all_classes(owner: str, request: Request, kernelspec: str) -> None:
    """Without a policy everybody may have every class."""


# Raises LimitError where no more of this asker may wait beside what waits.
QueueCheck = Callable[[Asker, Sequence[Pending]], None]


def allow_any_queue(asker: Asker, pending: Sequence[Pending]) -> None:
    """Without limits everybody may wait."""


@dataclass(frozen=True)
class AdmissionSettings:
    """``caps``: what users and teams may hold and wait for in all. Times in seconds; None: no limit."""

    caps: GpuCaps = field(default_factory=GpuCaps)
    check_class: ClassCheck = allow_all_classes
    check_queue: QueueCheck = allow_any_queue
    queue_timeout_seconds: float | None = None
    agent_loss_seconds: float = 30.0
    # The agent tells when room returns; this bounds the harm of an event that was missed.
    recheck_seconds: float = 5.0


@dataclass(frozen=True)
class AdmissionSnapshot:
    """What handlers and metrics show of admission. ``agent_state``: ok or unavailable; ``counts`` by outcome.

    ``ledger`` and ``pending`` are what the next cycle would plan with. ``releasing``: kernels that have ended, of which
    the node agent has not heard.
    """

    agent_state: str
    agent_message: str
    queue: tuple[QueueEntry, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    ledger: LedgerSnapshot = field(default_factory=LedgerSnapshot)
    pending: tuple[Pending, ...] = ()
    releasing: frozenset[str] = frozenset()

    @property
    def node(self) -> Node:
        """As the agent last said it is."""
        return self.ledger.node

    @property
    def holdings(self) -> tuple[Holding, ...]:
        """What was granted here."""
        return tuple(self.ledger.holdings.values())

    @property
    def resizes(self) -> dict[str, QueueEntry]:
        """Kernel id to the change of its size that waits for room."""
        return {entry.kernel_id: entry for entry in self.queue if entry.is_growth}

    @cached_property
    def starts(self) -> tuple[QueueEntry, ...]:
        """Kernels that wait to start, in their order."""
        return tuple(entry for entry in self.queue if not entry.is_growth)

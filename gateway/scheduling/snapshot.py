"""Values of admission: its settings, its snapshot, and the part of the node agent that it calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from jupyter_aliquot.gateway.base.lead import ALONE, Lead
from jupyter_aliquot.gateway.planning.colocation import NO_LOADS, Loads
from jupyter_aliquot.gateway.teams.values import Quotas
from jupyter_aliquot.provisioner.resources import Grant, Request

from .cordons import Cordon
from .ledger import Holding, KernelRef, LedgerSnapshot, Node
from .lending.tenure import Tenure
from .planner import Pending
from .queue import QueueEntry
from .queue_policy import PastUse
from .quotas import GpuCaps
from .wait_reason import WaitCode


class Agent(Protocol):
    """The node agent, as node.connection.AgentLink gives it."""

    # Counts the connections made: a new number means that reservations must be renewed.
    connections: int
    unavailable_since: float | None
    message: str

    def listen(self, listener: Callable[[], None]) -> None: ...

    async def status(self) -> Node: ...

    async def reserve(self, requester: KernelRef, request: Request, placement: Mapping[str, int]) -> Grant: ...

    async def renew(self, requester: KernelRef, grant: Grant) -> Grant: ...

    async def resize(self, kernel_id: str, request: Request) -> Grant: ...

    async def release(self, kernel_id: str) -> None: ...

    async def evict(self, kernel_id: str) -> None: ...

    async def readmit(self, kernel_id: str) -> None: ...


# Raises LimitError if this owner may not have the class that this kernelspec requests.
ClassCheck = Callable[[str, Request, str], None]


def allow_all_classes(owner: str, request: Request, kernelspec: str) -> None:
    """Allow every class to every user: there is no policy."""


# Raises LimitError if a budget of this owner, or of the owner's teams, has nothing left for the request.
# The last argument is what the kernel has now; None for a kernel that starts.
BudgetCheck = Callable[[str, Iterable[str], Request, "Request | None"], None]


def allow_all_budgets(owner: str, teams: Iterable[str], request: Request, before: Request | None) -> None:
    """Allow every request: there are no budgets."""


# Raises LimitError if no more kernels of this owner may wait.
QueueCheck = Callable[[KernelRef, Sequence[Pending]], None]


def allow_any_queue(requester: KernelRef, pending: Sequence[Pending]) -> None:
    """Allow every request to wait: there are no limits."""


@dataclass(frozen=True)
class AdmissionSettings:
    """The settings of admission. Times are in seconds; None: no limit.

    ``caps`` are the GPU limits of users and teams, for what they hold and wait for. ``quotas`` returns
    the teams' quotas in force; None without a quota file.
    """

    caps: GpuCaps = field(default_factory=GpuCaps)
    quotas: Callable[[], Quotas | None] = lambda: None
    # Returns the queue's memory.
    past: Callable[[], PastUse] = PastUse
    # Returns what kernels were measured to use of their devices.
    loads: Callable[[], Loads] = lambda: NO_LOADS
    # Returns what an earlier gateway knew of a kernel's grant; None for nothing.
    tenure_of: Callable[[str], Tenure | None] = lambda kernel_id: None
    # Returns the cordon of a node; None for one that is not cordoned.
    cordon_of: Callable[[str], Cordon | None] = lambda node: None
    # Returns the devices that go soon, by UUID: their kernels leave them, and none starts there.
    leaving_devices: Callable[[], frozenset[str]] = frozenset
    # Without it, grants and evictions wait, and no request is refused.
    lead: Lead = ALONE
    check_class: ClassCheck = allow_all_classes
    check_queue: QueueCheck = allow_any_queue
    check_budget: BudgetCheck = allow_all_budgets
    queue_timeout_seconds: float | None = None
    agent_loss_seconds: float = 30.0
    # The agent reports when capacity returns. This bounds the harm of a report that was missed.
    recheck_seconds: float = 5.0
    # The longest time, from the gateway's start, that starts wait for the agent's first report.
    ready_seconds: float = 10.0


@dataclass(frozen=True)
class AdmissionSnapshot:
    """The state of admission for handlers and metrics.

    ``agent_state`` is ok or unavailable, ``counts`` are by outcome.

    The next cycle would plan with ``ledger`` and ``pending``. ``releasing`` are kernels that have
    ended, of which the node agent has not been told.
    """

    agent_state: str
    agent_message: str
    queue: tuple[QueueEntry, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    ledger: LedgerSnapshot = field(default_factory=LedgerSnapshot)
    pending: tuple[Pending, ...] = ()
    releasing: frozenset[str] = frozenset()

    def labelled(self, labels: Mapping[str, str]) -> AdmissionSnapshot:
        """Return it with the present names of notebooks, by kernel id, in the queue.

        A request has the name that its kernel had at its start.
        """
        if all(labels.get(entry.kernel_id, entry.label) == entry.label for entry in self.queue):
            return self
        queue = tuple(replace(one, label=labels.get(one.kernel_id) or one.label) for one in self.queue)
        return replace(self, queue=queue)

    @property
    def node(self) -> Node:
        """The node as the agent last reported it."""
        return self.ledger.node

    @property
    def holdings(self) -> tuple[Holding, ...]:
        """The grants of this gateway."""
        return tuple(self.ledger.holdings.values())

    @property
    def resizes(self) -> dict[str, QueueEntry]:
        """Kernel id to the change of its size that waits for capacity."""
        return {entry.kernel_id: entry for entry in self.queue if entry.is_growth and not entry.is_return}

    @cached_property
    def waiting(self) -> tuple[QueueEntry, ...]:
        """The requests that a cycle has planned and not granted: a kernel that simply starts is none of them."""
        return tuple(entry for entry in self.queue if entry.why.code is not WaitCode.NOT_PLANNED)

    @cached_property
    def starts(self) -> tuple[QueueEntry, ...]:
        """Kernels that wait to start, in their order."""
        return tuple(entry for entry in self.queue if not entry.is_growth)

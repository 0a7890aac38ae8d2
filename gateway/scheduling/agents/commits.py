"""The commits of a plan: an agent reserves what was planned, and the requester gets its answer.

Admission calls it, for its own node and from the lanes of others. A request that is not delivered
keeps its place in the queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.lead import CUT_OFF
from jupyter_aliquot.gateway.scheduling.checks import check_budget_again
from jupyter_aliquot.gateway.scheduling.ledger import Holding, Ledger
from jupyter_aliquot.gateway.scheduling.planner import Admit
from jupyter_aliquot.gateway.scheduling.queue import RequestQueue, Waiting
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSettings, Agent
from jupyter_aliquot.gateway.scheduling.wait_reason import agent_refused, agent_unavailable
from jupyter_aliquot.provisioner.errors import AgentUnavailableError, AliquotError, DeviceLostError, NoRoomError
from jupyter_aliquot.provisioner.resources import Grant

from .orphans import reserve
from .releases import Releases

# Called with a kernel's change of size that was granted, or was refused after it had waited.
ResizeObserver = Callable[[str, "Grant | AliquotError"], None]


class Place(Protocol):
    """A node, as commits see it: a lane, or `OwnNode`.

    ``orphans`` are kernels that the agent may hold without a known grant. ``refused`` is why it refused
    what the plan had room for. ``seen_connections`` counts those after which its grants were renewed.
    """

    refused: str
    seen_connections: int

    @property
    def agent(self) -> Agent: ...

    @property
    def orphans(self) -> set[str]: ...


@dataclass
class OwnNode:
    """The gateway's own node."""

    agent: Agent
    orphans: set[str] = field(default_factory=set)
    refused: str = ""
    seen_connections: int = 0


class Commits:
    """The answers to requests. It writes granted kernels into admission's ledger, and ends places in its queue.

    ``again`` has the queue looked at again. ``unanswered`` gets a request whose agent is away.
    """

    def __init__(
        self,
        ledger: Ledger,
        queue: RequestQueue,
        releases: Releases,
        settings: AdmissionSettings,
        clock: Clock,
        again: Callable[[], None],
        unanswered: Callable[[Waiting, AliquotError], None],
        log: logging.Logger,
    ) -> None:
        self._ledger = ledger
        self._queue = queue
        self._releases = releases
        self._settings = settings
        self._clock = clock
        self._again = again
        self._unanswered = unanswered
        self._log = log
        self._resize_observers: list[ResizeObserver] = []
        # Kernel id to a future that is done when the agent has answered to its change of size.
        self._committing: dict[str, asyncio.Future[None]] = {}

    def observe_resizes(self, observer: ResizeObserver) -> None:
        """Call *observer* with each change of a size that was granted, or refused after it had waited."""
        self._resize_observers.append(observer)

    def tell_size(self, kernel_id: str, outcome: Grant | AliquotError) -> None:
        """Tell the observers of a kernel's change of size."""
        for observer in self._resize_observers:
            observer(kernel_id, outcome)

    def take_moved(self, grant: Grant) -> None:
        """Note that the agent moved a kernel to another device: its grant is this one now."""
        holding = self._ledger.snapshot().holdings.get(grant.kernel_id)
        if holding is None:  # it ended meanwhile, and the answer that brought this grant reserved it again
            self._releases.add(grant.kernel_id, grant.node)
            return self._again()
        if grant.kernel_id in self._releases:
            return
        grant = replace(grant, request=replace(grant.request, residency=holding.grant.request.residency))
        self._ledger.commit(granted=[holding.resized(grant)])
        self._log.info("kernel=%s moved=%s", grant.kernel_id, ",".join(quota.uuid for quota in grant.quotas))
        self.tell_size(grant.kernel_id, grant)
        self._again()

    async def until_answered(self, kernel_id: str) -> None:
        """Wait until the agent has answered to a change of size of this kernel."""
        while kernel_id in self._committing:
            await asyncio.wait({self._committing[kernel_id]})

    def refuse(self, waiting: Waiting, error: AliquotError) -> None:
        """Take a request out of the queue with an error."""
        self._log.info("kernel=%s refused=%s reason=%s", waiting.requester.kernel_id, type(error).__name__, error)
        self._queue.refuse(waiting, error)
        if waiting.is_growth and not waiting.is_return:
            self.tell_size(waiting.requester.kernel_id, error)

    async def commit(self, waiting: Waiting, admit: Admit, place: Place) -> bool:
        """Reserve what was planned with the agent of a node, and deliver it.

        Return False if the agent disagrees, so that the rest of the plan is void.
        """
        if self._queue.get(admit.kernel_id) is not waiting:
            return True
        if admit.kernel_id in place.orphans:
            return False
        if not self._settings.lead.is_current():
            waiting.why = agent_unavailable(waiting.pending.request, CUT_OFF)
            return False
        if place.agent.connections != place.seen_connections:
            # A new agent, which does not know the grants yet: they are renewed first.
            self._again()
            return False
        try:
            check_budget_again(self._settings, self._ledger.snapshot(), waiting)
            grant = await self._ask(place, waiting, admit)
        except (NoRoomError, DeviceLostError) as error:
            # Another program on this node was faster. The agent's event tells when its reservation
            # ends.
            waiting.why = agent_refused(waiting.pending.request, str(error))
            place.refused = str(error)
            return waiting.is_growth
        except AgentUnavailableError as error:
            self._unanswered(waiting, error)
            return False
        except AliquotError as error:
            self.refuse(waiting, error)
            self._again()  # what was planned for it is for others
            return False
        self._deliver(waiting, grant, admit)
        return True

    async def _ask(self, place: Place, waiting: Waiting, admit: Admit) -> Grant:
        kernel_id, request, agent = admit.kernel_id, waiting.pending.request, place.agent
        if waiting.is_return:
            grant = self._ledger.snapshot().holdings[kernel_id].grant
            await agent.readmit(kernel_id)
            return grant
        if not waiting.is_growth:
            return await reserve(agent, place.orphans, waiting.requester, request, admit.placement())
        self._committing[kernel_id] = asyncio.get_running_loop().create_future()
        try:
            return await agent.resize(kernel_id, request)
        finally:
            self._committing.pop(kernel_id).set_result(None)

    def _deliver(self, waiting: Waiting, grant: Grant, admit: Admit) -> None:
        # The agent knows the residency mode; its grants do not tell it.
        asked = replace(grant.request, residency=waiting.pending.request.residency)
        grant = replace(grant, request=asked)
        if waiting.is_return:
            return self._deliver_return(waiting, grant, admit)
        if waiting.is_growth:
            return self._deliver_size(waiting, grant)
        holding = Holding(grant, waiting.requester, waiting.shown_since, queued_at=waiting.pending.since)
        holding = replace(holding, granted_at=self._clock.now(), is_backfilled=admit.is_backfilled, passed=admit.passed)
        self._ledger.commit(granted=[holding])
        if self._queue.grant(waiting, grant):
            self._log.info("kernel=%s granted=%s owner=%s", grant.kernel_id, grant.request.gpus, grant.owner)
            return
        # The request was withdrawn while the agent reserved it.
        self._releases.add(grant.kernel_id, grant.node)
        self._again()

    def _deliver_return(self, waiting: Waiting, grant: Grant, admit: Admit) -> None:
        holding = self._ledger.snapshot().holdings.get(grant.kernel_id)
        if holding is None:
            return  # it ended while the agent answered
        back = replace(holding, is_evicted=False, leaves_for="", granted_at=self._clock.now())
        back = replace(back, is_backfilled=admit.is_backfilled, passed=admit.passed)
        self._ledger.commit(granted=[back])
        self._queue.grant(waiting, grant)
        self._log.info("kernel=%s returned=%s owner=%s", grant.kernel_id, grant.request.gpus, grant.owner)

    def _deliver_size(self, waiting: Waiting, grant: Grant) -> None:
        holding = self._ledger.snapshot().holdings.get(grant.kernel_id)
        if holding is None or grant.kernel_id in self._releases:
            return  # it ended while the agent answered, and what it holds ends with it
        self._ledger.commit(granted=[holding.resized(grant)])
        self._queue.grant(waiting, grant)
        self._log.info("kernel=%s resized=%s generation=%d", grant.kernel_id, grant.request.gpus, grant.generation)
        self.tell_size(grant.kernel_id, grant)

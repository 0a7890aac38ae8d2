"""Dry runs for handlers: gather the state of queue and node, and run dry_run.py on it.

Changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from jupyter_aliquot.gateway.auth.class_policy import ClassPolicy
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.sizes.wish import NO_WISH, Wish
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus
from jupyter_aliquot.provisioner.errors import AliquotError
from jupyter_aliquot.provisioner.grants.codec import read_request
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request, WorkloadClass

from .dry_run import Candidate, DryRun, QueueState, dry_run
from .ledger import Node
from .quotas import GpuCaps
from .resize import ResizeRequest, no_gpu, quotas_of
from .snapshot import AdmissionSnapshot, BudgetCheck, allow_all_budgets


class NodeAgent(Protocol):
    """The part of the agent's link that reports the node's state."""

    async def status(self) -> Node:
        """Return the node's state. Raises AliquotError."""
        ...


@dataclass(frozen=True)
class DryRunRules:
    """The settings that a dry run depends on.

    ``residency_of``: how memory of a size may leave its devices.
    """

    caps: GpuCaps
    largest: GpuShare
    policy: ClassPolicy
    residency_of: Callable[[Request], str]
    check_budget: BudgetCheck = allow_all_budgets


class DryRunService:
    """Dry runs on the present state. Made by the extension; handlers find it in Sources.

    ``last_status``: the agent's last report, if there is one.
    """

    def __init__(
        self,
        admission: Callable[[], AdmissionSnapshot],
        agent: NodeAgent,
        last_status: Callable[[], NodeStatus | None],
        rules: DryRunRules,
        clock: Clock,
    ) -> None:
        self._admission = admission
        self._agent = agent
        self._last_status = last_status
        self._rules = rules
        self._clock = clock

    async def of_new(
        self, requester: User, requests: Sequence[Request], replaces: frozenset[str], wish: Wish = NO_WISH
    ) -> list[DryRun]:
        """Try each request as a kernel that starts now.

        ``replaces``: the kernels that end for the new one. ``wish``: the GPU models that it takes.
        """
        state = await self._state()
        now, found = self._clock.now(), []
        for request in requests:
            asked = replace(request, residency=self._rules.residency_of(request))
            refusal = self._class_refusal(requester, asked, None)
            refusal = refusal or self._budget_refusal(requester.name, requester.teams, asked, None)
            candidate = Candidate(requester.name, asked, None, refusal, True, requester.teams, replaces, wish)
            found.append(dry_run(state, candidate, now))
        return found

    async def of_kernel(self, requester: User, kernel_id: str, resizes: Sequence[ResizeRequest]) -> list[DryRun]:
        """Try each change of a running kernel. Raises GrantError for a kernel without a GPU."""
        state = await self._state()
        holding = state.ledger.holdings.get(kernel_id)
        before = self._grant_elsewhere(kernel_id) if holding is None else holding.grant
        if before is None:
            raise no_gpu(kernel_id)
        teams = frozenset[str]() if holding is None else holding.requester.teams
        now, found = self._clock.now(), []
        for resize in resizes:
            request = resize.applied_to(before.request)
            refusal = self._class_refusal(requester, request, before.request.workload_class)
            refusal = refusal or self._budget_refusal(before.owner, teams, request, before.request)
            candidate = Candidate(before.owner, request, before, refusal, holding is not None, teams)
            found.append(dry_run(state, candidate, now))
        return found

    async def _state(self) -> QueueState:
        """Ask the agent for the present state, for other programs of this machine reserve, too."""
        node, problem = None, ""
        try:
            node = await self._agent.status()
        except AliquotError as error:
            problem = str(error)
        known = self._admission()
        ledger = known.ledger if node is None else replace(known.ledger, node=node)
        rules = self._rules
        return QueueState(ledger, known.pending, rules.caps, rules.largest, problem, self._last_status())

    def _class_refusal(self, requester: User, request: Request, before: WorkloadClass | None) -> AliquotError | None:
        try:
            self._rules.policy.check(requester, request, before)
        except AliquotError as error:
            return error
        return None

    def _budget_refusal(
        self, owner: str, teams: frozenset[str], request: Request, before: Request | None
    ) -> AliquotError | None:
        try:
            self._rules.check_budget(owner, teams, request, before)
        except AliquotError as error:
            return error
        return None

    def _grant_elsewhere(self, kernel_id: str) -> Grant | None:
        """Return what a kernel of another program has; None where the agent knows none of this id."""
        status = self._last_status()
        kernel = next((one for one in (status.kernels if status else ()) if one.kernel_id == kernel_id), None)
        if kernel is None:
            return None
        record = {"hundredths": kernel.hundredths, "memory_limit": kernel.memory_limit}
        quotas = quotas_of(kernel)
        request = read_request({**record, "workload_class": kernel.workload_class})
        return Grant(kernel.kernel_id, kernel.owner, request, "", quotas, "", ())

"""The source of status snapshots: it gathers the state of all parts at one moment.

It keeps only the server's warnings.
"""

from __future__ import annotations

from functools import partial

from jupyter_aliquot.gateway.accounting.recorder import UsageAccounting
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.steps import in_steps
from jupyter_aliquot.gateway.folders.invitation_report import open_invitations
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.lending.team_quotas import TeamQuotas
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gateway.status.collector import waiting_elsewhere
from jupyter_aliquot.gateway.status.expected_starts import ExpectedStarts, PredictedStarts
from jupyter_aliquot.gateway.status.report import LocalKernel, StatusSnapshot
from jupyter_aliquot.gateway.status.report_cache import ReportMemo
from jupyter_aliquot.gateway.teams.warnings import quota_warnings

from . import __version__
from .local_mode import OwnKernels
from .services import Services

_REFUSED = "The last good quota file is in force, for the present one has errors:"
_ERRORS = "The quota file has errors, and the last good one is in force. An administrator sees them in the status."


class SnapshotSource:
    """The maker of status snapshots.

    *own* are the kernels of this server; None in gateway mode, and with another kernel manager.
    """

    def __init__(
        self,
        services: Services,
        own: OwnKernels | None,
        accounting: UsageAccounting,
        *,
        is_remote: bool,
        remarks: tuple[str, ...],
    ) -> None:
        self._services = services
        self._own = own
        self._accounting = accounting
        self._is_remote = is_remote
        self._remarks = remarks
        self._memo = ReportMemo()
        self._expected = ExpectedStarts(services.clock)
        self._predicted = PredictedStarts(services.clock, services.tenures.queue.tenures)

    def remark(self, remarks: tuple[str, ...]) -> None:
        """Add warnings about the configuration, for all later snapshots."""
        self._remarks = (*self._remarks, *remarks)

    def _problems_of_files(self, ledger: LedgerSnapshot, who: User | None) -> tuple[str, ...]:
        """Return why the quota file is not in force, which sums are beyond the node, and why cordons are missing.

        The accounting's problems are among them.

        They name users, teams and files: to others than administrators they say only that errors are there.
        """
        file, found = self._services.quota_file, TeamQuotas.of(ledger)
        if who is not None and not who.is_admin:
            return (_ERRORS,) if file.problem else ()
        refused = (_REFUSED, *file.problem.splitlines()) if file.problem else ()
        warnings = () if found is None else quota_warnings(found.quotas, found.tree.gpus)
        lost = (f"{self._services.cordons.problem}.",) if self._services.cordons.problem else ()
        return (*refused, *warnings, *lost, *self._stale_cordons(), *self._accounting.problems)

    def _stale_cordons(self) -> tuple[str, ...]:
        """Return the cordons of nodes that are not there: such a node is renamed, or gone for good."""
        status = self._services.watch.view().status
        if status is None:
            return ()  # this node's own name is not known
        there = {status.node, *(node.name for node in self._services.nodes.views())}
        there |= {device.uuid for node in self._services.admission.ledger.nodes for device in node.devices}
        return tuple(
            f"{name} is cordoned, and no node or GPU of this name is known. If it is gone, or has another name "
            f"now, run: aliquot uncordon {name}"
            for name in sorted(self._services.cordons.all.keys() - there)
        )

    def admission(self) -> AdmissionSnapshot:
        """Return the grants and the queue now, with the starts that are expected and the present names."""
        announced = {} if self._own is None else self._own.culler.announced()
        found = self._predicted.filled(self._expected.filled(self._services.admission.snapshot(), announced))
        return found.labelled(self._services.labels())

    def _problems_of_agent(self, node: NodeView, admission: AdmissionSnapshot) -> tuple[str, ...]:
        """Return the problems of this machine's agent; none where it serves no kernel.

        In gateway mode no kernel runs here, nor where kernels are pods.
        """
        if self._is_remote or self._services.is_elsewhere:
            return ()
        if node.status is None and admission.agent_message:
            return (f"The node agent does not answer: {admission.agent_message}.",)
        return node.problems

    def snapshot(self, who: User | None = None, kernel_id: str | None = None) -> StatusSnapshot:
        """Return the state of all parts now.

        Args:
            who: Gather only kernels that this user may see; None gathers all.
            kernel_id: Gather this kernel alone, of those that run, wait or ended here; None: all.
        """
        admission = self.admission()
        ours = () if self._own is None else tuple(self._own.listed(admission, who, kernel_id))
        return self._made(admission, ours, who, kernel_id)

    async def in_steps(self, who: User | None = None) -> StatusSnapshot:
        """Return the same as `snapshot`, for many kernels. The loop serves others between some kernels and the next."""
        admission = self.admission()
        ours = () if self._own is None else tuple(await in_steps(self._own.listed(admission, who)))
        return self._made(admission, ours, who, None)

    def _made(
        self, admission: AdmissionSnapshot, ours: tuple[LocalKernel, ...], who: User | None, kernel_id: str | None
    ) -> StatusSnapshot:
        node = self._services.watch.view()
        problems = (
            *self._problems_of_agent(node, admission),
            *self._services.link.differences,
            *self._problems_of_files(admission.ledger, who),
        )
        if self._own is not None:
            problems = (*problems, *self._own.problems())
        waiting = (entry.kernel_id for entry in admission.queue)
        self._memo.forget_others(lambda: {*admission.ledger.holdings, *self._memo.kernels(node.status), *waiting})
        return StatusSnapshot(
            version=__version__,
            node=NodeView(node.status, (*problems, *self._remarks)),
            nodes=() if self._is_remote else self._services.nodes.views(),
            cordons={} if self._is_remote else self._services.cordons.all,
            kernels=(*ours, *waiting_elsewhere(admission, ours, kernel_id)),
            queue_length=len(admission.waiting),
            counts=admission.counts,
            endings=self._services.endings.counts(),
            failures=self._services.endings.failures(),
            ended=self._services.endings.listed(kernel_id),
            resizes=admission.resizes,
            ledger=admission.ledger,
            pending=admission.pending,
            refusals=self._services.limits.counts(),
            caps=self._services.settings.gpu_caps(),
            grants=not self._is_remote,
            usage=self._accounting.counters,
            budgets_of=self._accounting.budgets_of,
            invitations_of=partial(open_invitations, self._services.invitations),
            memo=self._memo,
        )

"""The parts of a server that starts kernels itself.

They are made here, joined to its kernel manager, started and stopped.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from jupyter_aliquot.gateway.auth.identity import tells_people_apart, users_by_name
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.tasks import within_patience
from jupyter_aliquot.gateway.containers.host_limits import HostLimits, node_totals
from jupyter_aliquot.gateway.containers.images import ImageCatalogue
from jupyter_aliquot.gateway.containers.planner import ContainerPlanner
from jupyter_aliquot.gateway.culling.culler import Culler
from jupyter_aliquot.gateway.culling.interception import GuardRules, InterceptionGuard
from jupyter_aliquot.gateway.culling.policy import Culling, read_policy
from jupyter_aliquot.gateway.culling.quota_ends import QuotaEnds
from jupyter_aliquot.gateway.culling.taken_gpus import TakenGpus
from jupyter_aliquot.gateway.events.audit import tell_move
from jupyter_aliquot.gateway.hub_service.user_servers import hub_servers
from jupyter_aliquot.gateway.kernels.manager import AliquotKernelManager
from jupyter_aliquot.gateway.kernels.owner_accounts import OwnerAccounts
from jupyter_aliquot.gateway.kernels.services import KernelServices
from jupyter_aliquot.gateway.kernelspecs.manager import SizedKernelSpecManager
from jupyter_aliquot.gateway.limits.guard import UNREAD
from jupyter_aliquot.gateway.nodes.whole_view import WholeView
from jupyter_aliquot.gateway.recovery.discovery import ProcessFinder
from jupyter_aliquot.gateway.recovery.recover import Recovery
from jupyter_aliquot.gateway.relays.pool import RelayLinks
from jupyter_aliquot.gateway.scheduling.defragmentation.service import Defragmentation, MoveSources
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gateway.serverapp.app import GatewayServerApp
from jupyter_aliquot.gateway.state.gateway_memory import orphan_seconds
from jupyter_aliquot.gateway.state.persistence import KernelMemory
from jupyter_aliquot.gateway.state.record_queue import RecordQueue
from jupyter_aliquot.gateway.state.records import KernelRecords
from jupyter_aliquot.gateway.state.state_dir import boot_id
from jupyter_aliquot.gateway.state.stop_policy import StopPolicy
from jupyter_aliquot.gateway.status.collector import KernelMemo, local_kernels
from jupyter_aliquot.gateway.status.report import LocalKernel
from jupyter_aliquot.gateway.terminations.node_failures import NodeFailures
from jupyter_aliquot.gateway.terminations.recorder import KernelEndings
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus
from jupyter_aliquot.provisioner.containers.limits import NodeTotals
from jupyter_aliquot.provisioner.control_groups import WITHOUT_GROUPS, ControlGroups
from jupyter_aliquot.provisioner.relay.wire.files import UnsentBytes

from .services import Services


@dataclass(frozen=True)
class LocalParts:
    """The parts that the kernels of this server use.

    ``policy`` decides whether kernels outlive its stop.
    """

    policy: StopPolicy
    kernels: KernelServices
    links: RelayLinks


def make_parts(services: Services) -> LocalParts:
    """Make the services of the kernel manager, which the server makes next.

    Called by its constructor.
    """
    server, settings, log = services.server, services.settings, services.log
    policy = StopPolicy(settings.keep_kernels, can_keep=services.memory.folder is not None)
    links = RelayLinks(
        log, settings.cell_outputs(), lambda kernel_id, count: services.limits.note(UNREAD, kernel_id, count)
    )
    kernels = KernelServices(
        admission=services.admission,
        limits=services.limits,
        memory=_kernel_memory(services, policy),
        endings=KernelEndings(
            services.endings,
            services.clock,
            log,
            lambda one: services.labels().get(one, ""),
            services.watch.lacked_bytes,
            NodeFailures(services.cordons, lambda: services.admission.ledger.node.name, services.clock, log).note,
        ),
        links=links,
        containers=_container_planner(services),
        container_runtime=services.containers,
        starts_pods=services.is_elsewhere,
        lead=services.memory.lead,
        tell_interrupt=services.agents.interrupt,
        hides_servers_env=lambda: tells_people_apart(server.identity_provider),
        accounts=services.accounts,
        limits_processes=HostLimits(parent=server).processes,
        refuses_processes=lambda: _are_roots(server) and not settings.allow_root_kernels,
    )
    return LocalParts(policy, kernels, links)


class OwnKernels:
    """The kernels of a server that starts them itself.

    They are found, culled and reported here, and ended or left at its stop.
    """

    def __init__(self, manager: AliquotKernelManager, parts: LocalParts, services: Services) -> None:
        server, settings, log = services.server, services.settings, services.log
        self.manager = manager
        self.policy = parts.policy
        self._parts = parts
        self._services = services
        self._recovery: Recovery | None = None
        self._memo = KernelMemo()
        self._groups = ControlGroups()
        # Kernels without a grant, and thus without its folder, have their relays in the same
        # runtime folder.
        manager.update_config(Config({"AliquotProvisioner": {"runtime_dir": str(services.runtime.path)}}))
        rules = GuardRules(settings.require_interception, settings.unhooked_process_policy == "end")
        self._guard = InterceptionGuard(manager, log, rules, services.memory.lead)
        whole = WholeView(services.nodes.views)
        services.watch.listen(lambda view: self._guard.check(whole.of(view)))
        services.watch.listen(lambda view: services.tenures.loads.note_status(whole.of(view).status))
        culling = read_policy(Culling(parent=server), manager)
        self._servers = hub_servers(server.identity_provider, culling, services.clock, log)
        self.culler = Culler(manager, culling, services.clock, log, self._servers, services.memory.lead)
        services.watch.listen(lambda view: self.culler.watch(whole.of(view)))
        manager.activity.gpu_used = self.culler.gpu_used
        services.watch.listen(manager.activity.note_gpu_use)
        self.moves = make_moves(services)
        self._quota_ends = QuotaEnds(manager, log)
        self.taken = TakenGpus(manager, services.clock, log, services.memory.lead)
        services.admission.evictor.observe_ends(self._quota_ends.end)

    def listed(
        self, admission: AdmissionSnapshot, who: User | None = None, kernel_id: str | None = None
    ) -> Iterator[LocalKernel]:
        """Return an iterator over all kernels, those that *who* may see, or *kernel_id* alone."""
        if kernel_id is not None:
            ids = [kernel_id] if kernel_id in self.manager else []
        else:
            ids = self.manager.list_kernel_ids() if who is None else self.manager.visible_to(who)
        self._memo.forget_others(self.manager.owners)
        announced = {**self.culler.announced(), **self.taken.announced()}
        return local_kernels(self.manager, ids, admission, self._services.labels(), announced, self._memo)

    def problems(self) -> tuple[str, ...]:
        """Return what keeps kernels from outliving this server, and from having limits on the machine."""
        kernels, problems = self._parts.kernels, []
        if kernels.memory is not None and kernels.memory.problem:
            problems.append(f"A restart of this server may lose kernels: {kernels.memory.problem}.")
        if kernels.accounts is not None and kernels.limits_processes and not self._groups.are_prepared():
            problems.append(WITHOUT_GROUPS)
        return tuple(problems)

    async def recover(self) -> tuple[str, ...]:
        """Recover the kernels of this gateway's last run, before the first request.

        Return what went wrong.
        """
        folder, log = self._services.memory.folder, self._services.log
        if folder is None:
            return ()
        self._recovery = Recovery(
            self.manager,
            self._services.admission,
            self._services.endings,
            self._services.engines.records,
            ProcessFinder(self._services.runtime, folder.identity, self._services.containers, log, self._has_folder),
            self._services.clock,
            log,
            self._services.labels,
        )
        problems = await self._restore_sessions()
        try:
            await self._recovery.run("" if self._services.is_elsewhere else boot_id())
        except Exception:
            # Running kernels are not lost by it. A server that did not start would help no user.
            log.exception("recovery=failed; kernels of the last run are left as they are")
            return (*problems, "Kernels of this server's last run could not be recovered: see its log.")
        return problems

    async def _restore_sessions(self) -> tuple[str, ...]:
        """Take the notebooks' sessions of the replica before; return what went wrong. Kernels do not need them."""
        sessions = self._services.engines.sessions
        try:
            if sessions is not None:
                await sessions.restore()
        except Exception:
            self._services.log.exception("sessions=not_restored; notebooks find their kernels by hand")
            return ("Notebooks' sessions of this gateway's last run could not be restored: see its log.",)
        return ()

    def _has_folder(self, user: str, folder: Path) -> bool:
        accounts = self._parts.kernels.accounts
        return accounts is None or accounts.has_folder(user, folder)

    async def start_culling(self) -> None:
        """Start to look for unused kernels."""
        if self._servers is not None:
            self._servers.start()
        await self.culler.start()

    async def stop(self, *, leaves_kernels: bool) -> None:
        """End the kernels or leave them, and then stop the parts that serve them."""
        log = self._services.log
        if self._recovery is not None:
            await within_patience("recovery", self._recovery.stop(), log)
        await within_patience("culler", self.culler.stop(), log)
        if self._servers is not None:
            await within_patience("hub_servers", self._servers.stop(), log)
        await within_patience("interception_guard", self._guard.stop(), log)
        await within_patience("quota_ends", self._quota_ends.stop(), log)
        await within_patience("taken_gpus", self.taken.stop(), log)
        await within_patience("moves", self.moves.stop(), log)
        if leaves_kernels:
            await self.manager.handover.leave_kernels()
        else:
            await self.manager.shutdown_all()
        if self._services.engines.sessions is not None:
            await within_patience("sessions", self._services.engines.sessions.stop(), log)
        await within_patience("relay_links", self._parts.links.stop(), log)
        await within_patience("endings", self._services.endings.flush(), log)
        if self._parts.kernels.memory is not None:
            await within_patience("records", self._parts.kernels.memory.close(), log)
        await within_patience("containers", asyncio.to_thread(self._services.containers.close), log)


def make_moves(services: Services) -> Defragmentation:
    """Return the plans of moves between GPUs, of all nodes."""

    def statuses() -> Iterator[NodeStatus]:
        found = (services.watch.view().status, *(node.status for node in services.nodes.views()))
        return (status for status in found if status is not None)

    async def move(kernel_id: str, device: str) -> None:
        services.admission.take_moved(await services.agents.relocate(kernel_id, device))

    sources = MoveSources(
        services.admission.snapshot,
        statuses,
        services.settings.residency_of,
        move,
        partial(tell_move, services.audit),
        services.labels,
        services.memory.lead,
    )
    return Defragmentation(sources, services.clock, services.log)


def _are_roots(server: ServerApp) -> bool:
    """Return whether users of a Hub would get processes of root.

    A server of one person, or of people whom its own configuration names, was told --allow-root by
    that configuration's author.
    """
    return os.geteuid() == 0 and isinstance(server, GatewayServerApp) and server.is_hub_service


def _container_planner(services: Services) -> ContainerPlanner:
    server = services.server
    specs = server.kernel_spec_manager
    catalogue = specs.catalogue if isinstance(specs, SizedKernelSpecManager) else ImageCatalogue()

    def named(name: str) -> User:
        return users_by_name(server.identity_provider)(name)

    def totals() -> NodeTotals | None:
        if services.is_elsewhere:
            return None
        status = services.watch.view().status
        return node_totals(0 if status is None else len(status.devices))

    accounts = OwnerAccounts(services.settings.account_of)
    rules = HostLimits(parent=server).rules()
    folders, invited = services.folders, services.invitations.mounts_of
    return ContainerPlanner(catalogue, rules, totals, folders, named, accounts.of, invited)


def _kernel_memory(services: Services, policy: StopPolicy) -> KernelMemory:
    folder = services.memory.folder if policy.lets_kernels_outlive else None
    records = KernelRecords(None, services.log) if folder is None else services.engines.records
    identity = "" if folder is None else folder.identity
    orphans = orphan_seconds(services.settings, is_service=isinstance(services.server, GatewayServerApp))
    limits = services.limits.limits
    unsent = UnsentBytes(
        limits.unsent_output_bytes, limits.unsent_output_bytes_per_user, limits.unsent_output_bytes_total
    )
    queue = RecordQueue(records, services.log)
    return KernelMemory(queue, services.runtime, identity, boot_id(), orphans, limits.unread_bytes, unsent)

"""The parts of a server that starts kernels itself, joined to its kernel manager: made, started and stopped here."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from traitlets.config import Config

from jupyter_aliquot.gateway.auth.identity import tells_people_apart, users_by_name
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.tasks import within_patience
from jupyter_aliquot.gateway.containers.config import KernelContainers
from jupyter_aliquot.gateway.containers.host_limits import HostLimits, node_totals
from jupyter_aliquot.gateway.containers.images import ImageCatalogue
from jupyter_aliquot.gateway.containers.planner import ContainerPlanner
from jupyter_aliquot.gateway.culling.culler import Culler
from jupyter_aliquot.gateway.culling.interception import GuardRules, InterceptionGuard
from jupyter_aliquot.gateway.culling.policy import Culling, read_policy
from jupyter_aliquot.gateway.hub_service.user_servers import hub_servers
from jupyter_aliquot.gateway.kernels.manager import AliquotKernelManager
from jupyter_aliquot.gateway.kernels.services import KernelServices
from jupyter_aliquot.gateway.kernelspecs.manager import SizedKernelSpecManager
from jupyter_aliquot.gateway.limits.guard import UNREAD
from jupyter_aliquot.gateway.recovery.adopt import Adoption
from jupyter_aliquot.gateway.recovery.discovery import KernelRemains
from jupyter_aliquot.gateway.relays.pool import RelayLinks
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
from jupyter_aliquot.gateway.terminations.recorder import KernelEndings
from jupyter_aliquot.provisioner.containers.limits import NodeTotals
from jupyter_aliquot.provisioner.engine.runtime import ContainerRuntime
from jupyter_aliquot.provisioner.relay.wire.files import UnsentBytes

from .services import Basis


@dataclass(frozen=True)
class LocalServices:
    """What the kernels of this server use. ``policy`` decides whether they outlive a stop of this server."""

    policy: StopPolicy
    kernels: KernelServices
    runtime: ContainerRuntime
    links: RelayLinks


def make_services(basis: Basis) -> LocalServices:
    """Make the services of the kernel manager, which the server makes next. Called by its constructor."""
    server, knobs, log = basis.server, basis.knobs, basis.log
    policy = StopPolicy(knobs.keep_kernels, can_keep=basis.memory.folder is not None)
    runtime = ContainerRuntime(KernelContainers(parent=server).settings(), log)
    links = RelayLinks(log, knobs.cell_outputs(), lambda kernel_id, count: basis.limits.note(UNREAD, kernel_id, count))
    kernels = KernelServices(
        admission=basis.admission,
        limits=basis.limits,
        memory=_kernel_memory(basis, policy),
        endings=KernelEndings(
            basis.endings, basis.clock, log, lambda one: basis.labels().get(one, ""), basis.watch.lacked_bytes
        ),
        links=links,
        containers=_container_planner(basis),
        container_runtime=runtime,
        tell_interrupt=basis.link.interrupt,
        hides_servers_env=lambda: tells_people_apart(server.identity_provider),
    )
    return LocalServices(policy, kernels, runtime, links)


class OwnKernels:
    """The kernels of a server that starts them itself: found, culled, reported, and ended or left at its stop."""

    def __init__(self, manager: AliquotKernelManager, services: LocalServices, basis: Basis) -> None:
        server, knobs, log = basis.server, basis.knobs, basis.log
        self.manager = manager
        self.policy = services.policy
        self._services = services
        self._basis = basis
        self._adoption: Adoption | None = None
        self._memo = KernelMemo()
        # Kernels without a grant, whose folder would tell it, have their relays where ours are looked for.
        manager.update_config(Config({"AliquotProvisioner": {"runtime_dir": str(basis.runtime.path)}}))
        rules = GuardRules(knobs.require_interception, knobs.unhooked_process_policy == "end")
        self._guard = InterceptionGuard(manager, log, rules)
        basis.watch.listen(self._guard.look)
        culling = read_policy(Culling(parent=server), manager)
        self._servers = hub_servers(server.identity_provider, culling, basis.clock, log)
        self.culler = Culler(manager, culling, basis.clock, log, self._servers)
        basis.watch.listen(self.culler.watch)

    def listed(
        self, admission: AdmissionSnapshot, who: User | None = None, kernel_id: str | None = None
    ) -> tuple[LocalKernel, ...]:
        """Return their reports; ``who``: of those alone that this user may see; ``kernel_id``: of this one alone."""
        if kernel_id is not None:
            ids = [kernel_id] if kernel_id in self.manager else []
        else:
            ids = self.manager.list_kernel_ids() if who is None else self.manager.visible_to(who)
        self._memo.forget_others(self.manager.owners)
        return local_kernels(self.manager, ids, admission, self._basis.labels(), self.culler.announced(), self._memo)

    def problems(self) -> tuple[str, ...]:
        """What keeps them from outliving this server."""
        memory = self._services.kernels.memory
        if memory is None or not memory.problem:
            return ()
        return (f"A restart of this server may lose kernels: {memory.problem}.",)

    async def adopt(self) -> tuple[str, ...]:
        """Find the kernels of this gateway's last life, before anybody asks for them. What went wrong, in words."""
        folder, log = self._basis.memory.folder, self._basis.log
        if folder is None:
            return ()
        self._adoption = Adoption(
            self.manager,
            self._basis.admission,
            self._basis.endings,
            KernelRecords(folder.kernels, log),
            KernelRemains(self._basis.runtime, folder.identity, self._services.runtime, log),
            self._basis.clock,
            log,
            self._basis.labels,
        )
        try:
            await self._adoption.run(boot_id())
        except Exception:
            # Those that run already are not lost by it; a server that did not start would help nobody.
            log.exception("adoption=failed; kernels of the last life are left as they are")
            return ("Kernels of this server's last life could not be taken over: see its log.",)
        return ()

    async def start_culling(self) -> None:
        """Look for kernels that nobody uses."""
        if self._servers is not None:
            self._servers.start()
        await self.culler.start()

    async def stop(self, *, leaves_kernels: bool) -> None:
        """End them, or leave them as they are, and then what serves them."""
        log = self._basis.log
        if self._adoption is not None:
            await within_patience("adoption", self._adoption.stop(), log)
        await within_patience("culler", self.culler.stop(), log)
        if self._servers is not None:
            await within_patience("hub_servers", self._servers.stop(), log)
        await within_patience("interception_guard", self._guard.stop(), log)
        if leaves_kernels:
            await self.manager.handover.leave_kernels()
        else:
            await self.manager.shutdown_all()
        await within_patience("relay_links", self._services.links.stop(), log)
        await within_patience("endings", self._basis.endings.flush(), log)
        if self._services.kernels.memory is not None:
            await within_patience("records", self._services.kernels.memory.close(), log)
        await within_patience("containers", asyncio.to_thread(self._services.runtime.close), log)


def _container_planner(basis: Basis) -> ContainerPlanner:
    server = basis.server
    specs = server.kernel_spec_manager
    catalogue = specs.catalogue if isinstance(specs, SizedKernelSpecManager) else ImageCatalogue()

    def named(name: str) -> User:
        return users_by_name(server.identity_provider)(name)

    def totals() -> NodeTotals:
        status = basis.watch.view().status
        return node_totals(0 if status is None else len(status.devices))

    return ContainerPlanner(catalogue, HostLimits(parent=server).rules(), totals, basis.folders, named)


def _kernel_memory(basis: Basis, policy: StopPolicy) -> KernelMemory:
    folder = basis.memory.folder if policy.lets_kernels_outlive else None
    records = KernelRecords(None if folder is None else folder.kernels, basis.log)
    identity = "" if folder is None else folder.identity
    orphans = orphan_seconds(basis.knobs, is_service=isinstance(basis.server, GatewayServerApp))
    limits = basis.limits.limits
    unsent = UnsentBytes(
        limits.unsent_output_bytes, limits.unsent_output_bytes_per_user, limits.unsent_output_bytes_total
    )
    queue = RecordQueue(records, basis.log)
    return KernelMemory(queue, basis.runtime, identity, boot_id(), orphans, limits.unread_bytes, unsent)

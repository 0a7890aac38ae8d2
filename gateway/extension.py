"""The composition root: it makes the gateway's objects and joins them. It decides nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.serverapp import ServerApp
from traitlets import TraitError

from jupyter_aliquot.gateway.accounting.config import Accounting
from jupyter_aliquot.gateway.accounting.recorder import AccountingSources, UsageAccounting
from jupyter_aliquot.gateway.api.base import HolderSources, QuotaSources
from jupyter_aliquot.gateway.api.jupyter import replacements
from jupyter_aliquot.gateway.api.routes import HANDLERS, SETTING, Sources
from jupyter_aliquot.gateway.auth.access import may_reach
from jupyter_aliquot.gateway.auth.identity import AliquotIdentityProvider, user_finder, users_by_name
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.base.log_scrubber import scrub_logs
from jupyter_aliquot.gateway.base.startup_gate import SETTING as RECOVERED, recovered_event
from jupyter_aliquot.gateway.base.tasks import Recurring, within_patience
from jupyter_aliquot.gateway.containers.config import KernelContainers
from jupyter_aliquot.gateway.containers.holders import HolderPods
from jupyter_aliquot.gateway.containers.host_limits import HostLimits
from jupyter_aliquot.gateway.containers.images import ImageCatalogue
from jupyter_aliquot.gateway.containers.pods import KernelPods
from jupyter_aliquot.gateway.culling.policy import Culling
from jupyter_aliquot.gateway.events.audit import Audit, tell_cordon, tell_invitation, tell_quotas
from jupyter_aliquot.gateway.events.stream import KernelEvents
from jupyter_aliquot.gateway.folders.invitations import Invitations, Owners
from jupyter_aliquot.gateway.folders.registry import Folders
from jupyter_aliquot.gateway.folders.shared_folder import SharedFolders, private_folders
from jupyter_aliquot.gateway.history.config import History
from jupyter_aliquot.gateway.history.recorder import UsageHistory
from jupyter_aliquot.gateway.holders.processes import KernelProcesses
from jupyter_aliquot.gateway.kernels.account_users import AccountUsers
from jupyter_aliquot.gateway.kernels.manager import AliquotKernelManager
from jupyter_aliquot.gateway.kernels.operations import KernelChanges
from jupyter_aliquot.gateway.kernels.owner_accounts import OwnerAccounts
from jupyter_aliquot.gateway.kernels.services import KernelServices
from jupyter_aliquot.gateway.kernels.sessions import SessionLabels
from jupyter_aliquot.gateway.kernelspecs.manager import SizedKernelSpecManager
from jupyter_aliquot.gateway.kernelspecs.own_specs import OwnSpecs
from jupyter_aliquot.gateway.limits.config import Limits
from jupyter_aliquot.gateway.limits.guard import LimitGuard
from jupyter_aliquot.gateway.limits.http import install
from jupyter_aliquot.gateway.node.agent_options import differences
from jupyter_aliquot.gateway.node.callers import Callers
from jupyter_aliquot.gateway.node.connection import AgentLink
from jupyter_aliquot.gateway.node.grant_server import LocalSocket
from jupyter_aliquot.gateway.node.launcher import agent_arguments, agent_starter
from jupyter_aliquot.gateway.node.lent_numbers import LentNumbers
from jupyter_aliquot.gateway.node.watcher import NodeWatch
from jupyter_aliquot.gateway.nodes.cordons import Cordons
from jupyter_aliquot.gateway.nodes.serving import AgentsOfKernels
from jupyter_aliquot.gateway.nodes.token_choice import choose_tokens
from jupyter_aliquot.gateway.nodes.whole_view import WholeView
from jupyter_aliquot.gateway.pages.administration import PAGE_HANDLERS
from jupyter_aliquot.gateway.remote.jupyter import remote_replacements
from jupyter_aliquot.gateway.remote.kernels import AliquotRemoteKernelManager
from jupyter_aliquot.gateway.remote.proxy import remote_handlers
from jupyter_aliquot.gateway.remote.token_guard import guard_token
from jupyter_aliquot.gateway.scheduling.admission import Admission, AdmissionSettings
from jupyter_aliquot.gateway.scheduling.dry_run_service import DryRunRules, DryRunService
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.gateway.scheduling.snapshot import BudgetCheck
from jupyter_aliquot.gateway.serverapp.app import GatewayServerApp
from jupyter_aliquot.gateway.serverapp.class_defaults import replace_stock_classes
from jupyter_aliquot.gateway.serverapp.config_warnings import (
    engine_within_reach,
    gateway_mode,
    refuse_unknown,
    replaced_classes,
    unknown_users,
)
from jupyter_aliquot.gateway.sizes.grammar import base_of, largest_here
from jupyter_aliquot.gateway.state.gateway_memory import GatewayMemory, claim_memory
from jupyter_aliquot.gateway.state.leadership import lead
from jupyter_aliquot.gateway.state.state_dir import boot_id
from jupyter_aliquot.gateway.state.tenures import Tenures
from jupyter_aliquot.gateway.status.prometheus import ServerMetrics
from jupyter_aliquot.gateway.teams.quota_file import QuotaFile, open_quota_file
from jupyter_aliquot.gateway.terminations.store import Endings
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, find_runtime_dir
from jupyter_aliquot.provisioner.errors import AccountError, LimitError
from jupyter_aliquot.provisioner.grants.agent_calls import greet
from jupyter_aliquot.provisioner.provisioner import AliquotProvisioner
from jupyter_aliquot.provisioner.resources import GpuShare, Request

from .config import Aliquot
from .engines import Engines, make_engines
from .local_mode import LocalParts, OwnKernels, make_parts
from .remote_mode import GatewayKernels
from .services import Services
from .status_source import SnapshotSource

# The Hub tells no removal. A user who is made again within this time keeps what the old one shared.
REMOVED_USERS_SECONDS = 600.0


def _read(server: ServerApp) -> Aliquot | None:
    """Return the settings of ``c.Aliquot`` as the server has them now; None if one is wrong."""
    with contextlib.suppress(TraitError):
        return Aliquot(parent=server)
    return None


class AliquotExtension(ExtensionApp):
    """The gateway as an extension of Jupyter Server.

    The server loads it, starts it with its event loop, and stops it.
    """

    name = "aliquot"
    load_other_extensions = True
    classes = [
        Accounting,
        Aliquot,
        AliquotIdentityProvider,
        Culling,
        History,
        HolderPods,
        HostLimits,
        ImageCatalogue,
        KernelContainers,
        KernelPods,
        Limits,
        SharedFolders,
        AliquotProvisioner,
    ]
    # A server that ends before it is ready, for example over a wrong setting, stops extensions that
    # made nothing yet.
    _is_made = False
    _memory = GatewayMemory()
    _own: OwnKernels | None = None
    _events: KernelEvents | None = None
    _history: UsageHistory | None = None
    _removals: Recurring | None = None
    # In gateway mode.
    _gateway: GatewayKernels | None = None

    def _link_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        """Called by the extension manager before the server makes its managers."""
        scrub_logs(serverapp.log)
        settings = _read(serverapp)
        replace_stock_classes(serverapp, has_own_kernels=bool(settings and settings.local_kernels))
        super()._link_jupyter_server_extension(serverapp)  # adds the extension's own file to the configuration
        guard_token(GatewayClient.instance(parent=serverapp), os.environ)
        is_remote = GatewayClient.instance(parent=serverapp).gateway_enabled
        settings = _read(serverapp)
        if settings is not None:
            pods = KernelPods(parent=serverapp)
            lease = pods.lease if settings.runtime == "kubernetes" else ""
            leading = lead(pods.namespace, lease, self.log, settings.runtime_dir)
            self._memory = claim_memory(serverapp, settings, self.log, leading, is_remote=is_remote)

    @cached_property
    def configuration(self) -> Aliquot | None:
        """The settings of ``c.Aliquot``; None if one is wrong.

        First read after all extensions are linked: the files of Aliquot and of the application that
        starts the server, such as JupyterLab, are part of the configuration only then. Parts that
        read a wrong configuration again raise the error.
        """
        return _read(self._server())

    def kernel_services(self) -> KernelServices:
        """Called by the constructor of our kernel manager.

        The extension is linked by then, but the server does not have its users yet.
        """
        return KernelServices() if self.serverapp is None else self._local_parts.kernels

    @cached_property
    def _local_parts(self) -> LocalParts:
        return make_parts(self._services)

    @cached_property
    def _services(self) -> Services:
        return self._make_services(self._server())

    @cached_property
    def _notebooks(self) -> SessionLabels:
        return SessionLabels(self._server().session_manager)

    def initialize_settings(self) -> None:
        """Called by ExtensionApp.initialize, before there is an event loop.

        Makes everything, and starts nothing.
        """
        server = self._server()
        self._gateway_url = GatewayClient.instance(parent=server).url or ""
        services = self._services
        if self._memory.folder is not None and isinstance(server.identity_provider, AliquotIdentityProvider):
            server.identity_provider.remember_in(self._memory.folder.path)
        self._socket = LocalSocket(
            services.runtime,
            services.admission,
            self.log,
            partial(_teams_of, services),
            Callers(_users_of_accounts(services), lender_of=LentNumbers().lender_of),
            lambda kernel_id: kernel_id in server.kernel_manager,
            services.settings.largest(),
        )
        services.watch.listen(self._socket.watch)
        services.admission.observe(services.watch.refresh)
        join_scheduling(services)
        if isinstance(server.kernel_manager, AliquotKernelManager):
            self._own = OwnKernels(server.kernel_manager, self._local_parts, services)
        if isinstance(server.kernel_manager, AliquotRemoteKernelManager):
            self._gateway = GatewayKernels(server.kernel_manager, services)
        remarks = (*(gateway_mode(self._gateway_url) or replaced_classes(server)), *self._memory.remarks)
        for remark in remarks:
            self.log.warning("%s", remark)
        for warning in filter(None, (engine_within_reach(server), unknown_users(server))):
            self.log.warning("%s", warning)
        self._snapshots = self._snapshot_source(services, remarks)
        self.settings[SETTING] = self._sources(services)
        # A server in gateway mode belongs to one user; the gateway has the limits.
        if self._gateway is None:
            has_files = "contents" in server.default_services  # among whose paths uploads are
            install(server, services.limits, lambda path: not has_files or may_reach(path, server.base_url))
        self._recovered = self.settings[RECOVERED] = recovered_event(server)
        self._is_made = True

    def _refuse_unknown_settings(self, server: ServerApp) -> None:
        if isinstance(server, GatewayServerApp):  # a user's server may be given settings of a newer Hub
            provider = server.identity_provider_class
            is_ours = issubclass(provider, AliquotIdentityProvider)
            refuse_unknown(server.config, {*self.classes, provider} if is_ours else self.classes)

    def _make_services(self, server: ServerApp) -> Services:
        self._refuse_unknown_settings(server)
        # Read again if a setting is wrong, so that the error says which one.
        settings = self.configuration or Aliquot(parent=server)
        runtime = RuntimeDir(Path(settings.runtime_dir)) if settings.runtime_dir else find_runtime_dir()
        return self._gather(server, settings, runtime, SystemClock())

    def _gather(self, server: ServerApp, settings: Aliquot, runtime: RuntimeDir, clock: SystemClock) -> Services:
        accounts = OwnerAccounts(settings.account_of) if settings.run_kernels_as == "owner" else None
        link = agent_link(settings, runtime, clock, self.log, partial(_uid_of, server, accounts))
        find_user = partial(_find_user, server)
        watch = _node_watch(settings, runtime, clock, self.log)
        limits = LimitGuard(Limits(parent=server), clock, lambda name: find_user(name).is_admin, self.log)
        state = None if (folder := self._memory.folder) is None else folder.path
        quota_file = open_quota_file(settings.quota_path(), state, clock, self.log)
        audit = Audit(state, self.log, server.event_logger.handlers if server.event_logger else ())
        cordons = audited_cordons(audit, state, clock, self.log)
        tenures = Tenures(state and state / "tenures.json", clock, self.log)
        engines = make_engines(server, settings, runtime, self._memory, link, watch, clock, self.log)
        rules = admission_settings(
            find_user, settings, limits, quota_file, cordons, tenures, self._check_budget, engines
        )
        admission = Admission(engines.own_agent, clock, rules, self.log, engines.served)
        return Services(
            server=server,
            settings=settings,
            clock=clock,
            log=self.log,
            memory=self._memory,
            runtime=runtime,
            link=link,
            engines=engines,
            agents=AgentsOfKernels(link, engines.nodes, lambda: admission.ledger),
            admission=admission,
            watch=watch,
            cordons=cordons,
            tenures=tenures,
            audit=audit,
            folders=(folders := shared_folders(server, settings, state, self.log)),
            invitations=audited_invitations(server, settings, folders, audit, state, clock, self.log),
            endings=Endings(None if folder is None else folder.endings, clock, self.log),
            limits=limits,
            quota_file=quota_file,
            accounts=accounts,
            labels=lambda: self._notebooks.labels(),
            find_user=find_user,
        )

    def _sources(self, services: Services) -> Sources:
        """Return the sources of the handlers. In gateway mode the gateway has most of them."""
        settings, snapshot, clock = services.settings, self._snapshots.snapshot, services.clock
        gather = self._snapshots.in_steps
        specs = services.server.kernel_spec_manager
        if isinstance(specs, SizedKernelSpecManager):
            specs.count_devices = partial(count_devices, services)
            if services.accounts is not None:
                folders = services.settings.kernelspec_folders
                specs.own = OwnSpecs(services.accounts.kernelspecs_from(services.runtime, folders), self.log)
        metrics = ServerMetrics(snapshot)
        told = Sources(snapshot, gather, metrics, settings.largest(), self._largest_here, services.folders)
        if self._own is not None:
            told = replace(told, keep=self._own.culler.keep, moves=self._own.moves)
        if self._gateway is not None:
            return told
        told = replace(told, invitations=services.invitations)
        events = self._events = KernelEvents(snapshot, gather, self.log)
        services.watch.listen(events.tell)
        services.nodes.listen(events.tell)
        services.admission.observe(events.tell)
        services.endings.observe(events.tell)
        kept = History(parent=services.server).settings(self._memory.folder, settings)
        history = self._history = UsageHistory(kept, clock, self.log)
        whole = WholeView(services.nodes.views)
        services.watch.listen(lambda view: history.record(whole.of(view)))
        manager, policy = None if self._own is None else self._own.manager, settings.class_policy()
        changes = KernelChanges(services.admission, services.agents, manager, policy, services.watch, clock)
        rules = DryRunRules(settings.gpu_caps(), settings.largest(), policy, settings.residency_of, self._check_budget)
        outlooks = DryRunService(
            services.admission.snapshot, services.own_agent, lambda: services.watch.view().status, rules, clock
        )
        tokens = choose_tokens(settings.agent_token_file, settings.agent_service_account)
        told = replace(told, nodes=services.nodes, cordons=services.cordons, agent_tokens=tokens)
        quotas = QuotaSources(services.quota_file, self._snapshots.admission, services.tenures.queue.now)
        holders = HolderSources(KernelProcesses(partial(_first_processes, services.server), clock), clock)
        told = replace(told, accounting=self._accounting, holders=holders)
        return replace(told, changes=changes, outlooks=outlooks, events=events, history=history, quotas=quotas)

    def _snapshot_source(self, services: Services, remarks: tuple[str, ...]) -> SnapshotSource:
        is_remote = bool(self._gateway_url)
        return SnapshotSource(services, self._own, self._accounting, is_remote=is_remote, remarks=remarks)

    @cached_property
    def _accounting(self) -> UsageAccounting:
        """The accounting, which admission asks for budgets. Off in gateway mode: the gateway counts."""
        services = self._services
        kept = Accounting(parent=services.server)
        sources = AccountingSources(
            services.admission.snapshot, lambda: services.quota_file.quotas, boot_id(), services.nodes.views
        )
        settings = kept.settings(self._memory.folder) if kept.enabled and not self._gateway_url else None
        accounting = UsageAccounting(settings, sources, services.clock, self.log)
        services.watch.listen(accounting.record)
        return accounting

    def _check_budget(self, owner: str, teams: Iterable[str], request: Request, before: Request | None) -> None:
        """Called by admission, which is made before the accounting. Raises LimitError."""
        self._accounting.check(owner, teams, request, before)

    def _largest_here(self) -> GpuShare:
        return largest_here(self._services.settings.largest(), count_devices(self._services))

    def initialize_handlers(self) -> None:
        """Called by ExtensionApp.initialize."""
        ours = remote_handlers(HANDLERS) if self._gateway is not None else HANDLERS
        jupyters = remote_replacements() if self._gateway_url else replacements()
        pages = () if self._gateway_url else PAGE_HANDLERS
        self.handlers.extend([*ours, *pages, *jupyters])

    async def _start_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        """Called once the server's loop runs.

        Without an agent plain kernels work, and the status says why.
        """
        kernels = self._own or self._gateway
        try:  # Jupyter logs an error here and serves on: requests must not wait for ever
            if kernels is not None:
                kernels.policy.watch(serverapp)
            if isinstance(serverapp.identity_provider, AliquotIdentityProvider):
                await serverapp.identity_provider.start()
            if self._gateway_url:
                if self._gateway is not None:
                    await self._gateway.find()
                return
            if not self._services.is_elsewhere:
                await self._services.link.start()
            if self._own is not None:
                self._snapshots.remark(await self._own.recover())
            await self._socket.recover()
            await self._services.admission.start()
            self._services.quota_file.start()
        finally:
            self._recovered.set()
        await self._start_socket()
        await self._services.watch.start()
        if self._own is not None:
            await self._own.start_culling()
        await self._services.nodes.start()
        if self._own is not None and (holders := self._services.engines.holders) is not None:
            holders.start(self._services.admission.snapshot, self._services.admission.plan_again, self._own.taken.note)
        self._removals = follow_removed_users(self._services)
        self._removals.start()

    async def stop_extension(self) -> None:
        """Called before the server ends its kernels. They end here first, to return their grants to admission."""
        if not self._is_made:
            return
        self._recovered.clear()  # requests wait: a page that is told that its kernel is gone would not come back
        services, kernels = self._services, self._own or self._gateway
        leaves_kernels = kernels is not None and kernels.policy.keeps_kernels()
        self._memory.tell_stopping()
        if self._events is not None:
            await within_patience("events", self._events.close(), self.log)
        if isinstance(services.server.identity_provider, AliquotIdentityProvider):
            await within_patience("identity", services.server.identity_provider.stop(), self.log)
        if self._gateway is not None:
            await self._gateway.stop()
        if self._removals is not None:
            await within_patience("removed_users", self._removals.stop(), self.log)
        await within_patience("local_socket", self._socket.stop(), self.log)
        if self._own is not None:
            await self._own.stop(leaves_kernels=leaves_kernels)
        await within_patience("quota_file", services.quota_file.stop(), self.log)
        await within_patience("admission", services.admission.stop(leaves_kernels=leaves_kernels), self.log)
        await within_patience("tenures", services.tenures.flush(), self.log)
        if services.engines.holders is not None:
            await within_patience("holders", services.engines.holders.stop(), self.log)
        await within_patience("nodes", services.nodes.stop(), self.log)
        await within_patience("node_watch", services.watch.stop(), self.log)
        if self._history is not None:
            await within_patience("history", self._history.stop(), self.log)
        await within_patience("accounting", self._accounting.stop(), self.log)
        await within_patience("agent_link", services.link.stop(), self.log)
        self._memory.close()

    async def _start_socket(self) -> None:
        try:
            await self._socket.start()
        except (PathError, OSError) as error:
            self._snapshots.remark((f"Kernels of other programs cannot ask this server for a GPU: {error}.",))
            self.log.warning("local_socket=unavailable reason=%s", error)

    def _server(self) -> ServerApp:
        assert self.serverapp is not None  # set by the extension manager before it initialises
        return self.serverapp


def _first_processes(server: ServerApp) -> list[tuple[str, int]]:
    """Return the id of each kernel of this server that runs on this machine, and its first process."""
    manager = server.kernel_manager
    found = ((one, getattr(manager.get_kernel(one).provisioner, "pid", None)) for one in manager.list_kernel_ids())
    return [(kernel_id, pid) for kernel_id, pid in found if isinstance(pid, int)]


def _uid_of(server: ServerApp, accounts: OwnerAccounts | None, requester: KernelRef) -> int | None:
    """Return the account of a kernel's processes; None in a container, whose accounts are its own."""
    specs = server.kernel_spec_manager
    catalogue = specs.catalogue if isinstance(specs, SizedKernelSpecManager) else ImageCatalogue()
    if accounts is None or catalogue.find(base_of(requester.kernelspec)) is not None:
        return None
    return accounts.uid_of(requester.owner)


def _users_of_accounts(services: Services) -> Callable[[int], str] | None:
    """Return a function that tells an account's user; None where no other account may ask."""
    settings = services.settings
    if services.accounts is None or not settings.client_accounts:
        return None
    return AccountUsers(settings.account_of, settings.user_of, Path(settings.client_accounts)).of


def _teams_of(services: Services, owner: str) -> frozenset[str]:
    """Return the teams in which another program's kernel counts. Raises LimitError.

    The Hub tells them when the user logs in. Until then a team's limit cannot be counted.
    """
    provider = services.server.identity_provider
    has_limits = services.accounts is not None and bool(services.settings.gpu_caps().teams)
    if has_limits and isinstance(provider, AliquotIdentityProvider) and not provider.knows(owner):
        raise LimitError(
            f"Requested a GPU for {owner!r}, but teams have GPU limits here, and the Hub has not told the gateway the "
            "teams of this user. Start your server on the Hub once, and try again"
        )
    return services.find_user(owner).teams


def admission_settings(
    find_user: Callable[[str], User],
    settings: Aliquot,
    limits: LimitGuard,
    quota_file: QuotaFile,
    cordons: Cordons,
    tenures: Tenures,
    check_budget: BudgetCheck,
    engines: Engines,
) -> AdmissionSettings:
    """Return the settings of admission: its refusals, and how long requests wait."""
    policy = settings.class_policy()
    return AdmissionSettings(
        caps=settings.gpu_caps(),
        quotas=lambda: quota_file.quotas,
        cordon_of=cordons.of,
        leaving_devices=engines.leaving_devices,
        lead=engines.lead,
        past=tenures.queue.now,
        loads=tenures.loads.now,
        tenure_of=tenures.of,
        check_class=lambda owner, request, kernelspec: policy.check(find_user(owner), request, kernelspec=kernelspec),
        check_queue=limits.check_queue,
        check_budget=check_budget,
        queue_timeout_seconds=settings.queue_timeout_seconds or None,
    )


def agent_link(
    settings: Aliquot,
    runtime: RuntimeDir,
    clock: SystemClock,
    log: logging.Logger,
    uid_of: Callable[[KernelRef], int | None],
) -> AgentLink:
    """Return the connection to the node agent, which starts one where the settings say so."""
    starter = agent_starter(runtime, settings) if settings.start_agent else None
    # An agent that a service starts is asked the same: a software GPU in a GPU's place is told.
    return AgentLink(runtime.path, clock, starter, log, partial(differences, agent_arguments(settings)), uid_of)


def _node_watch(settings: Aliquot, runtime: RuntimeDir, clock: SystemClock, log: logging.Logger) -> NodeWatch:
    return NodeWatch(partial(greet, runtime.path, "gateway status"), clock, settings.status_refresh_seconds, log)


def count_devices(services: Services) -> int:
    """Return how many GPUs one kernel may have: those of this machine, or of the largest node."""
    if not services.is_elsewhere:
        return services.watch.count_devices()
    known = (one.status for one in services.nodes.views() if one.status is not None)
    return max((sum(not device.lost for device in status.devices) for status in known), default=0)


def join_scheduling(services: Services) -> None:
    """Have admission look again when quotas or cordons change, and its grants and those changes kept."""
    admission, file = services.admission, services.quota_file
    file.listen(admission.plan_again)
    file.observe(partial(tell_quotas, services.audit, str(file.path)))
    services.cordons.observe(lambda *_: admission.plan_again())
    admission.observe(lambda: services.tenures.note(admission.ledger))


def _find_user(server: ServerApp, name: str) -> User:
    return user_finder(server.identity_provider)(name)


def audited_cordons(audit: Audit, state: Path | None, clock: SystemClock, log: logging.Logger) -> Cordons:
    """Return the cordons of nodes, with those of an earlier run of this gateway."""
    cordons = Cordons(state and state / "cordons.json", clock, log)
    cordons.observe(partial(tell_cordon, audit))
    return cordons


def shared_folders(server: ServerApp, settings: Aliquot, state: Path | None, log: logging.Logger) -> Folders:
    """Return the list of shared folders.

    It includes those that administrators added in an earlier run of this gateway.
    """
    own = private_folders(settings)
    return Folders(SharedFolders(parent=server).read(own), own, state and state / "folders.json", log)


def audited_invitations(
    server: ServerApp,
    settings: Aliquot,
    folders: Folders,
    audit: Audit,
    state: Path | None,
    clock: SystemClock,
    log: logging.Logger,
) -> Invitations:
    """Return the invitations of users to folders of theirs, with those of an earlier run of this gateway."""

    def has_user(name: str) -> bool:
        provider = server.identity_provider
        return isinstance(provider, AliquotIdentityProvider) and provider.has_user(name)

    def home_of_account(name: str) -> str:
        specs = server.kernel_spec_manager
        images = specs.catalogue.entries if isinstance(specs, SizedKernelSpecManager) else ()
        if not any(image.runs_as_owner for image in images):
            return ""
        try:
            return OwnerAccounts(settings.account_of).of(name).home
        except AccountError:
            return ""

    owners = Owners(has_user, home_of_account, lambda name: users_by_name(server.identity_provider)(name))
    invitations = Invitations(folders, owners, state and state / "invitations.json", clock, log)
    invitations.observe(partial(tell_invitation, audit))
    return invitations


def follow_removed_users(services: Services) -> Recurring:
    """Return the task that takes back what users shared and accepted who are removed from the server."""
    found = services.invitations

    async def turn() -> None:
        provider = services.server.identity_provider
        if isinstance(provider, AliquotIdentityProvider) and (removed := await provider.removed_users(found.users())):
            await asyncio.to_thread(found.remove_users, removed)

    return Recurring("removed-users", turn, REMOVED_USERS_SECONDS, services.clock, services.log)

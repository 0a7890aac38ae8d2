"""The composition root: the only place where the gateway's objects are made and joined. Decides nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from aliquot.gateway import __version__
from aliquot.gateway.admission import Admission, AdmissionSettings
from aliquot.gateway.adoption import Adoption
from aliquot.gateway.agent_link import AgentLink
from aliquot.gateway.auth import AliquotAuthorizer, AliquotIdentityProvider, askers_by_name, users_by_name
from aliquot.gateway.catalogue import ImageCatalogue
from aliquot.gateway.clock import Clock, SystemClock
from aliquot.gateway.config import Aliquot
from aliquot.gateway.container_plans import ContainerPlanner
from aliquot.gateway.culler import Culler
from aliquot.gateway.culling import Culling, read_policy
from aliquot.gateway.door import Door
from aliquot.gateway.endings import Endings
from aliquot.gateway.folders import Folders
from aliquot.gateway.gateway_folder import boot_id
from aliquot.gateway.gateway_memory import GatewayMemory, claim_memory, orphan_seconds
from aliquot.gateway.handlers import HANDLERS, SETTING, Sources
from aliquot.gateway.history import UsageHistory
from aliquot.gateway.history_settings import History
from aliquot.gateway.host_limits import HostLimits, node_totals
from aliquot.gateway.interception_guard import GuardRules, InterceptionGuard
from aliquot.gateway.kernel_changes import KernelChanges
from aliquot.gateway.kernel_containers import KernelContainers
from aliquot.gateway.kernel_endings import KernelEndings
from aliquot.gateway.kernel_events import KernelEvents
from aliquot.gateway.kernel_manager import AliquotKernelManager
from aliquot.gateway.kernel_memory import KernelMemory
from aliquot.gateway.kernel_records import KernelRecords
from aliquot.gateway.kernel_remains import KernelRemains
from aliquot.gateway.local_kernels import local_kernels, session_labels, waiting_elsewhere
from aliquot.gateway.local_socket import LocalSocket
from aliquot.gateway.metrics import ServerMetrics
from aliquot.gateway.node_watch import NodeWatch
from aliquot.gateway.own_folders import private_folders
from aliquot.gateway.relay_links import RelayLinks
from aliquot.gateway.remote_kernels import AliquotRemoteKernelManager
from aliquot.gateway.remote_status import remote_handlers
from aliquot.gateway.server_classes import replace_stock_classes
from aliquot.gateway.shared_folder import SharedFolders
from aliquot.gateway.sizes import SizedKernelSpecManager
from aliquot.gateway.status import LocalKernel, NodeView, Scene
from aliquot.gateway.stock_handlers import replacements
from aliquot.gateway.stop_policy import StopPolicy
from aliquot.gpu_hook.agent_process import AgentStartError, start_agent
from aliquot.gpu_hook.paths import PathError, RuntimeDir, find_runtime_dir
from aliquot.gpu_hook.waiting import end_task
from aliquot.provisioner.container_limits import NodeTotals
from aliquot.provisioner.errors import AgentUnavailableError
from aliquot.provisioner.provisioner import AliquotProvisioner
from aliquot.provisioner.runtime.container import ContainerRuntime
from jupyter_server.extension.application import ExtensionApp
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

_STOP_SECONDS = 5.0
_FIND_SECONDS = 5.0


class AliquotExtension(ExtensionApp):
    """The gateway in a Jupyter server, which loads it, starts it with its event loop, and stops it before its end."""

    name = "aliquot"
    load_other_extensions = True
    classes = [
        Aliquot,
        AliquotIdentityProvider,
        Culling,
        History,
        HostLimits,
        ImageCatalogue,
        KernelContainers,
        SharedFolders,
        AliquotProvisioner,
    ]
    # A server that ends before it is ready, over a wrong knob for example, stops extensions that made nothing yet.
    _is_made = False
    _memory = GatewayMemory()
    _policy = StopPolicy("never", can_keep=False)
    _adoption: Adoption | None = None
    _events: KernelEvents | None = None
    _history: UsageHistory | None = None
    # In gateway mode.
    _remote: AliquotRemoteKernelManager | None = None
    _finding: asyncio.Task[None] | None = None

    def _link_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        """Called by the extension manager before the server makes its managers."""
        replace_stock_classes(serverapp)
        super()._link_jupyter_server_extension(serverapp)
        is_remote = GatewayClient.instance(parent=serverapp).gateway_enabled
        self._memory = claim_memory(serverapp, self.log, is_remote=is_remote)

    def initialize_settings(self) -> None:
        """Called by ExtensionApp.initialize, before there is an event loop: makes everything, starts nothing."""
        server = self._server()
        knobs = Aliquot(parent=server)
        self._door = Door()
        clock = SystemClock()
        self._runtime = RuntimeDir(Path(knobs.runtime_dir)) if knobs.runtime_dir else find_runtime_dir()
        self._gateway_url = GatewayClient.instance(parent=server).url or ""
        starter = agent_starter(self._runtime, knobs) if knobs.start_agent else None
        self._link = AgentLink(self._runtime.path, clock, starter, self.log)
        self._admission = Admission(self._link, clock, admission_settings(server, knobs), self.log)
        self._socket = LocalSocket(self._runtime, self._admission, self.log)
        self._watch = NodeWatch(self._runtime.path, clock, knobs.status_refresh_seconds, self.log)
        self._admission.observe(self._watch.refresh)
        self._manager = server.kernel_manager if isinstance(server.kernel_manager, AliquotKernelManager) else None
        folder = self._memory.folder
        self._folders = shared_folders(server, knobs, None if folder is None else folder.path, self.log)
        self._endings = Endings(None if folder is None else folder.endings, clock, self.log)
        if self._manager is not None:
            self._join(self._manager, knobs, clock)
        if isinstance(server.kernel_manager, AliquotRemoteKernelManager):
            self._join_remote(server.kernel_manager, knobs)
        self._remarks = (*(gateway_mode(self._gateway_url) or replaced_classes(server)), *self._memory.remarks)
        for remark in self._remarks:
            self.log.warning("%s", remark)
        keep = None if self._manager is None else self._culler.keep
        changes = events = None
        if self._remote is None:
            events = self._events = KernelEvents(self.scene, self.log)
            self._watch.listen(events.tell)
            self._admission.observe(events.tell)
            self._history = UsageHistory(History(parent=server).settings(folder, knobs), clock, self.log)
            self._watch.listen(self._history.look)
            policy = knobs.class_policy()
            changes = KernelChanges(self._admission, self._link, self._manager, policy, self._watch, clock)
        told = (ServerMetrics(self.scene), knobs.largest(), self._folders)
        self.settings[SETTING] = Sources(self.scene, *told, keep, changes, events, self._history)
        self._is_made = True
        self._door.watch(server)

    def _join(self, manager: AliquotKernelManager, knobs: Aliquot, clock: Clock) -> None:
        # Kernels without a grant, whose folder would tell it, have their relays where ours are looked for.
        manager.update_config(Config({"AliquotProvisioner": {"runtime_dir": str(self._runtime.path)}}))
        manager.admission = self._admission
        self._admission.observe_resizes(manager.take_outcome)
        manager.memory = self._kernel_memory(self._server(), knobs)
        manager.containers = self._container_planner(self._server())
        self._containers = ContainerRuntime(KernelContainers(parent=self._server()).settings(), self.log)
        manager.container_runtime = self._containers
        self._links = RelayLinks(self.log, knobs.cell_outputs())
        manager.links = self._links
        manager.endings = KernelEndings(
            self._endings, clock, self.log, lambda kernel_id: self._labels().get(kernel_id, "")
        )
        rules = GuardRules(knobs.require_interception, knobs.unhooked_process_policy == "end")
        self._guard = InterceptionGuard(manager, self.log, rules)
        self._watch.listen(self._guard.look)
        self._culler = Culler(manager, read_policy(Culling(parent=self._server()), manager), clock, self.log)
        self._watch.listen(self._culler.watch)

    def _join_remote(self, manager: AliquotRemoteKernelManager, knobs: Aliquot) -> None:
        self._remote = manager
        self._policy = StopPolicy(knobs.keep_kernels, can_keep=True)
        manager.leaves_kernels = self._policy.keeps_kernels
        manager.kernels_of_sessions = lambda: set(self._labels())

    def _labels(self) -> dict[str, str]:
        return session_labels(self._server().session_manager)

    def initialize_handlers(self) -> None:
        """Called by ExtensionApp.initialize."""
        ours = remote_handlers(HANDLERS) if self._remote is not None else HANDLERS
        self.handlers.extend([*ours, *replacements()])

    async def _start_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        """Called once the server's loop runs. Without an agent plain kernels work, and the status says why."""
        self._policy.watch(serverapp)
        if self._gateway_url:
            return await self._find_remote_kernels()
        try:
            await self._link.start()
            await self._adopt()
            await self._admission.start()
        finally:
            self._door.open()
        await self._start_socket()
        await self._watch.start()
        if self._manager is not None:
            await self._culler.start()

    async def _find_remote_kernels(self) -> None:
        """Requests wait for the gateway's answer, but not for a gateway that is away."""
        try:
            if self._remote is not None:
                self._finding = asyncio.create_task(self._remote.find_kernels(), name="aliquot-find-kernels")
                if self._door.is_closed:
                    await asyncio.wait({self._finding}, timeout=_FIND_SECONDS)
        finally:
            self._door.open()

    async def stop_extension(self) -> None:
        """Called before the server ends its kernels; they end here first, for they give their grants back to us."""
        if not self._is_made:
            return
        leaves_kernels = self._policy.keeps_kernels()
        self._memory.tell_stopping()
        if self._events is not None:
            self._events.close()
        if self._finding is not None:
            await end_task(self._finding)
        await self._within_patience("local_socket", self._socket.stop())
        if self._adoption is not None:
            await self._within_patience("adoption", self._adoption.stop())
        if self._manager is not None:
            await self._within_patience("culler", self._culler.stop())
            await self._within_patience("interception_guard", self._guard.stop())
            if leaves_kernels:
                await self._manager.leave_kernels()
            else:
                await self._manager.shutdown_all()
            await self._within_patience("relay_links", self._links.stop())
            await self._within_patience("endings", self._endings.flush())
            await self._within_patience("containers", asyncio.to_thread(self._containers.close))
        await self._within_patience("admission", self._admission.stop(leaves_kernels=leaves_kernels))
        await self._within_patience("node_watch", self._watch.stop())
        if self._history is not None:
            await self._within_patience("history", self._history.stop())
        await self._within_patience("agent_link", self._link.stop())
        self._memory.close()

    async def _within_patience(self, part: str, stop: Coroutine[Any, Any, None]) -> None:
        """A part that does not stop in time keeps neither the others nor the server."""
        task = asyncio.ensure_future(stop)
        await asyncio.wait({task}, timeout=_STOP_SECONDS)
        if not task.done():
            task.cancel()
            self.log.error("%s=stuck it did not stop within %g s", part, _STOP_SECONDS)
        elif task.exception() is not None:
            self.log.error("%s=failed at its stop: %s", part, task.exception())

    async def _adopt(self) -> None:
        """Find the kernels of this gateway's last life, before anybody asks for them."""
        folder = self._memory.folder
        if self._manager is None or folder is None:
            return
        self._adoption = Adoption(
            self._manager,
            self._admission,
            self._endings,
            KernelRecords(folder.kernels, self.log),
            KernelRemains(self._runtime, folder.identity, self._containers, self.log),
            SystemClock(),
            self.log,
        )
        try:
            await self._adoption.run(boot_id())
        except Exception:
            # Those that run already are not lost by it; a server that did not start would help nobody.
            self.log.exception("adoption=failed; kernels of the last life are left as they are")
            self._remarks = (*self._remarks, "Kernels of this server's last life could not be taken over: see its log.")

    async def _start_socket(self) -> None:
        try:
            await self._socket.start()
        except (PathError, OSError) as error:
            self._remarks = (*self._remarks, f"Kernels of other programs cannot ask this server for a GPU: {error}.")
            self.log.warning("local_socket=unavailable reason=%s", error)

    def scene(self) -> Scene:
        """All that is known now. Called for each status and each collection of metrics."""
        admission = self._admission.snapshot()
        node = self._watch.view()
        # In gateway mode no kernel runs here, and an agent of this machine would serve nobody.
        problems = () if self._gateway_url else node.problems
        if not self._gateway_url and node.status is None and admission.agent_message:
            problems = (f"The node agent does not answer: {admission.agent_message}.",)
        ours: tuple[LocalKernel, ...] = ()
        if self._manager is not None:
            ours = local_kernels(self._manager, admission, self._labels(), self._culler.announced())
            if self._manager.memory is not None and self._manager.memory.problem:
                problems = (*problems, f"A restart of this server may lose kernels: {self._manager.memory.problem}.")
        return Scene(
            version=__version__,
            node=NodeView(node.status, (*problems, *self._remarks)),
            kernels=(*ours, *waiting_elsewhere(admission, ours)),
            queue_length=len(admission.queue),
            counts=admission.counts,
            endings=self._endings.counts(),
            ended=self._endings.listed(),
            resizes=admission.resizes,
        )

    def _container_planner(self, server: ServerApp) -> ContainerPlanner:
        specs = server.kernel_spec_manager
        catalogue = specs.catalogue if isinstance(specs, SizedKernelSpecManager) else ImageCatalogue()
        limits, named = HostLimits(parent=server).rules(), users_by_name(server.identity_provider)
        return ContainerPlanner(catalogue, limits, self._node_totals, self._folders, named)

    def _node_totals(self) -> NodeTotals:
        status = self._watch.view().status
        return node_totals(0 if status is None else len(status.devices))

    def _kernel_memory(self, server: ServerApp, knobs: Aliquot) -> KernelMemory:
        folder = self._memory.folder
        self._policy = StopPolicy(knobs.keep_kernels, can_keep=folder is not None)
        if not self._policy.lets_kernels_outlive:
            folder = None
        records = KernelRecords(None if folder is None else folder.kernels, self.log)
        identity = "" if folder is None else folder.identity
        return KernelMemory(records, self._runtime, identity, boot_id(), orphan_seconds(knobs, server))

    def _server(self) -> ServerApp:
        assert self.serverapp is not None  # set by the extension manager before it initialises
        return self.serverapp


def admission_settings(server: ServerApp, knobs: Aliquot) -> AdmissionSettings:
    """What admission refuses and for how long requests wait."""
    policy, asker = knobs.class_policy(), askers_by_name(server.identity_provider)
    return AdmissionSettings(
        user_limit=knobs.user_limit(),
        check_class=lambda owner, request, kernelspec: policy.check(asker(owner), request, kernelspec=kernelspec),
        queue_timeout_seconds=knobs.queue_timeout_seconds or None,
    )


def shared_folders(server: ServerApp, knobs: Aliquot, state: Path | None, log: logging.Logger) -> Folders:
    """The list of shared folders, with what administrators added to it in an earlier life of this gateway."""
    own = private_folders(knobs)
    return Folders(SharedFolders(parent=server).read(own), own, state and state / "folders.json", log)


def agent_starter(runtime: RuntimeDir, knobs: Aliquot) -> Callable[[], Awaitable[None]]:
    """What starts a node agent where none runs."""

    async def start() -> None:
        try:
            # Off the loop: it waits until the agent answers.
            await asyncio.to_thread(
                start_agent, runtime.path, arguments=agent_arguments(knobs), seconds=knobs.agent_wait_seconds
            )
        except (AgentStartError, PathError) as error:
            raise AgentUnavailableError(str(error)) from error

    return start


def agent_arguments(knobs: Aliquot) -> list[str]:
    """The options of `aliquot agent` that the configuration asks for; what it leaves open, the agent decides."""
    options = {
        "--driver": knobs.driver,
        "--softgpu-devices": f"{knobs.softgpu_devices or ''}",
        "--softgpu-memory": f"{int(knobs.softgpu_bytes() or 0) or ''}",
        "--softgpu-sm-count": f"{knobs.softgpu_sm_count or ''}",
        "--softgpu-link-gbps": f"{knobs.softgpu_link_gbps or ''}",
    }
    words = [word for option, value in options.items() if value for word in (option, value)]
    return [*words, *knobs.agent_options]


def gateway_mode(url: str) -> tuple[str, ...]:
    """What a server says that has its kernels on a gateway."""
    if not url:
        return ()
    return (f"This server takes its kernels from the gateway at {url}, which gives them their sizes and their GPUs.",)


def replaced_classes(server: ServerApp) -> tuple[str, ...]:
    """What works differently because this server's configuration puts other classes in the place of ours."""
    remarks = []
    if not isinstance(server.kernel_manager, AliquotKernelManager):
        remarks.append(
            f"This server's kernel manager is {_name(server.kernel_manager)}, not ours: its kernels ask for their GPU "
            "by themselves, and have no owners here. Remove c.ServerApp.kernel_manager_class to change that."
        )
    if not isinstance(server.kernel_spec_manager, SizedKernelSpecManager):
        remarks.append(
            f"This server's kernelspec manager is {_name(server.kernel_spec_manager)}, not ours: only installed "
            "kernelspecs are offered. Remove c.ServerApp.kernel_spec_manager_class to change that."
        )
    provider = server.identity_provider
    has_users = isinstance(provider, AliquotIdentityProvider) and provider.has_users
    if has_users and not isinstance(server.authorizer, AliquotAuthorizer):
        remarks.append(
            f"This server has several users, but its authorizer is {_name(server.authorizer)}, not ours: users may "
            "reach each other's kernels. Remove c.ServerApp.authorizer_class to change that."
        )
    return tuple(remarks)


def _name(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"

"""The runtime of kernels that are no processes of ours, and the agents of the nodes that it serves."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jupyter_server.serverapp import ServerApp

from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.base.lead import Lead
from jupyter_aliquot.gateway.containers.holders import HolderPods
from jupyter_aliquot.gateway.containers.pods import KernelPods
from jupyter_aliquot.gateway.containers.runtimes import container_runtime
from jupyter_aliquot.gateway.node.connection import AgentLink
from jupyter_aliquot.gateway.node.watcher import NodeWatch
from jupyter_aliquot.gateway.nodes.registry import RemoteNodes
from jupyter_aliquot.gateway.nodes.remembered import RememberedNodes
from jupyter_aliquot.gateway.nodes.serving import ServedNodes
from jupyter_aliquot.gateway.scheduling.admission import Agent
from jupyter_aliquot.gateway.scheduling.agents.lanes import NoLocalAgent
from jupyter_aliquot.gateway.state.gateway_memory import GatewayMemory
from jupyter_aliquot.gateway.state.records import KernelRecords
from jupyter_aliquot.gpu_hook.client.reports import DeviceStatus
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.kubernetes.kernel_pod import pod_attribute
from jupyter_aliquot.provisioner.kubernetes.settings import PodSettings
from jupyter_aliquot.provisioner.runtime.base import Containers

from .config import Aliquot

if TYPE_CHECKING:  # the client of Kubernetes is an extra, and takes half a second
    from jupyter_aliquot.gateway.nodes.holders import HolderKeeper
    from jupyter_aliquot.gateway.state.cluster_state import SessionMirror


class Engines(NamedTuple):
    """The runtime, and the agents that admission asks for GPUs.

    ``served``: the nodes on other machines on which the runtime starts kernels. ``holders`` None: this
    gateway holds no GPU of a cluster. ``lead`` is that of this replica. ``records`` and ``sessions`` are
    the state that another replica of this gateway reads; ``sessions`` is None where there are no replicas.
    """

    containers: Containers
    nodes: RemoteNodes
    served: ServedNodes
    own_agent: Agent
    holders: HolderKeeper | None
    lead: Lead
    records: KernelRecords
    sessions: SessionMirror | None

    def leaving_devices(self) -> frozenset[str]:
        """Return the devices that the cluster takes back. Asked by admission."""
        return frozenset() if self.holders is None else self.holders.leaving_devices


def make_engines(
    server: ServerApp,
    settings: Aliquot,
    runtime: RuntimeDir,
    memory: GatewayMemory,
    link: AgentLink,
    watch: NodeWatch,
    clock: SystemClock,
    log: logging.Logger,
) -> Engines:
    """Return the runtime that the settings choose, and the agents of its nodes.

    Raises:
        traitlets.TraitError: a setting of pods is wrong.
    """
    folder = memory.folder
    identity, has_pods = "" if folder is None else folder.identity, settings.runtime == "kubernetes"
    pods = replace(KernelPods(parent=server).settings(identity), leads=memory.lead.is_current) if has_pods else None
    nodes = _remote_nodes(settings, None if folder is None else folder.path, clock, watch, log, pods)
    pods = pods and replace(pods, node_lost=nodes.lose)
    held = _holders(server, pods, nodes, memory.lead, clock, log)
    pods = pods if pods is None or held is None else replace(pods, claims_of=held.claims_of)
    containers = container_runtime(server, pods, runtime, log)
    served = ServedNodes(nodes, containers.serves)
    own: Agent = link if containers.serves("") else NoLocalAgent(served)
    return Engines(containers, nodes, served, own, held, memory.lead, *_state(server, pods, memory, log))


def _state(
    server: ServerApp, pods: PodSettings | None, memory: GatewayMemory, log: logging.Logger
) -> tuple[KernelRecords, SessionMirror | None]:
    """Return the records of kernels, and where sessions are kept beside their table."""
    folder = memory.folder
    if pods is None or folder is None or not KernelPods(parent=server).lease:
        return KernelRecords(None if folder is None else folder.kernels, log), None
    from jupyter_aliquot.gateway.state.cluster_state import ClusterRecords, SessionMirror
    from jupyter_aliquot.provisioner.kubernetes.client import ClusterClient, find_configuration
    from jupyter_aliquot.provisioner.kubernetes.documents import Documents

    client = ClusterClient(find_configuration())
    records = ClusterRecords(Documents(client, pods.cluster, "record", pods.leads), log)
    sessions = Documents(client, pods.cluster, "session", pods.leads)
    return records, SessionMirror(sessions, lambda: server.session_manager.connection, log)


def _holders(
    server: ServerApp,
    pods: PodSettings | None,
    nodes: RemoteNodes,
    lead: Lead,
    clock: SystemClock,
    log: logging.Logger,
) -> HolderKeeper | None:
    settings = None if pods is None else HolderPods(parent=server).settings(pods.cluster.relay_image)
    if pods is None or settings is None:
        return None
    from jupyter_aliquot.gateway.nodes.holders import HolderKeeper
    from jupyter_aliquot.gateway.nodes.vacating import Vacating
    from jupyter_aliquot.provisioner.kubernetes.client import ClusterClient, find_configuration

    def devices() -> tuple[DeviceStatus, ...]:
        known = (view.status for view in nodes.views() if view.is_connected)
        return tuple(device for status in known if status is not None for device in status.devices)

    vacating = Vacating(nodes.agent, clock, log)
    return HolderKeeper(
        lambda: ClusterClient(find_configuration()), pods.cluster, settings, devices, vacating, clock, log, lead
    )


def _remote_nodes(
    settings: Aliquot,
    state: Path | None,
    clock: SystemClock,
    watch: NodeWatch,
    log: logging.Logger,
    pods: PodSettings | None,
) -> RemoteNodes:
    """Return the nodes on other machines, with those of an earlier run of this gateway."""

    def local_name() -> str:
        status = watch.view().status
        return "" if status is None else status.node

    def pod_of(kernel_id: str) -> str:
        return "" if pods is None else pod_attribute(pods.cluster, kernel_id)

    remembered = RememberedNodes(state and state / "nodes.json", log)
    return RemoteNodes(remembered, clock, settings.status_refresh_seconds, log, local_name, pod_of)

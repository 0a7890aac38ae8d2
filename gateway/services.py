"""The objects that every part of the gateway uses.

The composition root makes them once, and hands them down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jupyter_server.serverapp import ServerApp

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.events.audit import Audit
from jupyter_aliquot.gateway.folders.invitations import Invitations
from jupyter_aliquot.gateway.folders.registry import Folders
from jupyter_aliquot.gateway.kernels.owner_accounts import OwnerAccounts
from jupyter_aliquot.gateway.limits.guard import LimitGuard
from jupyter_aliquot.gateway.node.connection import AgentLink
from jupyter_aliquot.gateway.node.watcher import NodeWatch
from jupyter_aliquot.gateway.nodes.cordons import Cordons
from jupyter_aliquot.gateway.nodes.registry import RemoteNodes
from jupyter_aliquot.gateway.nodes.serving import AgentsOfKernels
from jupyter_aliquot.gateway.scheduling.admission import Admission, Agent
from jupyter_aliquot.gateway.state.gateway_memory import GatewayMemory
from jupyter_aliquot.gateway.state.tenures import Tenures
from jupyter_aliquot.gateway.teams.quota_file import QuotaFile
from jupyter_aliquot.gateway.terminations.store import Endings
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.runtime.base import Containers

from .config import Aliquot
from .engines import Engines


@dataclass(frozen=True)
class Services:
    """The server, its configuration, and the objects that are common to all of its kernels."""

    server: ServerApp
    settings: Aliquot
    clock: Clock
    log: logging.Logger
    memory: GatewayMemory
    runtime: RuntimeDir
    link: AgentLink
    engines: Engines
    # The agents of all kernels' nodes.
    agents: AgentsOfKernels
    admission: Admission
    watch: NodeWatch
    cordons: Cordons
    tenures: Tenures
    audit: Audit
    folders: Folders
    invitations: Invitations
    endings: Endings
    limits: LimitGuard
    quota_file: QuotaFile
    # The accounts that kernels run as; None: all run as the gateway's.
    accounts: OwnerAccounts | None
    # Kernel id to its notebook's path.
    labels: Callable[[], Mapping[str, str]]
    # Finds a user outside of their requests; see user_finder.
    find_user: Callable[[str], User]

    @property
    def containers(self) -> Containers:
        """The runtime of kernels in containers or pods."""
        return self.engines.containers

    @property
    def nodes(self) -> RemoteNodes:
        """The nodes on other machines, whose agents dial in."""
        return self.engines.nodes

    @property
    def own_agent(self) -> Agent:
        """The agent of the gateway's own node, as admission asks it."""
        return self.engines.own_agent

    @property
    def is_elsewhere(self) -> bool:
        """Return whether kernels start on other machines alone."""
        return not self.containers.serves("")

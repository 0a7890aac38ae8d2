"""What every part of the gateway stands on: made once by the composition root, handed down, never changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from aliquot.gateway.admission import Admission
from aliquot.gateway.agent_link import AgentLink
from aliquot.gateway.clock import Clock
from aliquot.gateway.config import Aliquot
from aliquot.gateway.endings import Endings
from aliquot.gateway.folders import Folders
from aliquot.gateway.gateway_memory import GatewayMemory
from aliquot.gateway.limit_guard import LimitGuard
from aliquot.gateway.node_watch import NodeWatch
from aliquot.gateway.session_labels import SessionLabels
from aliquot.gpu_hook.paths import RuntimeDir
from jupyter_server.serverapp import ServerApp


@dataclass(frozen=True)
class Basis:
    """The server, its configuration, and what is common to all of its kernels."""

    server: ServerApp
    knobs: Aliquot
    clock: Clock
    log: logging.Logger
    memory: GatewayMemory
    runtime: RuntimeDir
    link: AgentLink
    admission: Admission
    watch: NodeWatch
    folders: Folders
    endings: Endings
    limits: LimitGuard
    notebooks: SessionLabels

    def labels(self) -> Mapping[str, str]:
        """Kernel id to its notebook's path."""
        return self.notebooks.labels()

"""The runtime of a gateway's kernels in containers: this machine's engine, or the pods of a cluster."""

from __future__ import annotations

import logging

from jupyter_server.serverapp import ServerApp

from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.engine.runtime import ContainerRuntime
from jupyter_aliquot.provisioner.kubernetes.settings import PodSettings
from jupyter_aliquot.provisioner.runtime.base import Containers

from .config import KernelContainers


def container_runtime(
    server: ServerApp, pods: PodSettings | None, runtime: RuntimeDir, log: logging.Logger
) -> Containers:
    """Return the runtime; *pods* None: this machine's engine."""
    if pods is None:
        return ContainerRuntime(KernelContainers(parent=server).settings(), log)
    # Imported here: the client of Kubernetes is an extra, and takes half a second.
    from jupyter_aliquot.provisioner.kubernetes.pods.runtime import PodRuntime

    return PodRuntime(pods, runtime, log)

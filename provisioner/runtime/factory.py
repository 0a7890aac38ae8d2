"""Choose a kernel's runtime: a new one for a process, the gateway's own for a container."""

from __future__ import annotations

from jupyter_aliquot.provisioner.errors import LaunchError
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord

from .base import Runtime
from .process import ProcessRuntime
from .relay_process import RelayedRuntime


def choose_runtime(relay: RelayRecord | None, in_container: bool, containers: Runtime | None = None) -> Runtime:
    """Return the runtime. ``relay`` None: a process that is our child.

    Raises LaunchError for kernels that cannot run here.
    """
    if not in_container:
        return ProcessRuntime() if relay is None else RelayedRuntime(relay)
    if containers is None:
        raise LaunchError(
            "Requested to start a kernel in a container, but this process starts no containers. A "
            "gateway does, with the extension jupyter_aliquot.gateway loaded"
        )
    if relay is None:
        raise LaunchError(
            "Requested to start a kernel in a container without a relay, but only a relay reaches "
            "into a container. Set c.AliquotProvisioner.relay = True"
        )
    return containers

"""Which runtime a kernel gets. Those of processes are made here; containers have one for the whole gateway."""

from __future__ import annotations

from jupyter_aliquot.provisioner.errors import LaunchError
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord

from .base import Runtime
from .process import ProcessRuntime
from .relay_process import RelayedRuntime


def choose_runtime(relay: RelayRecord | None, in_container: bool, containers: Runtime | None = None) -> Runtime:
    """``relay`` None: a process that is our child. Raises LaunchError for what cannot run here."""
    if not in_container:
        return ProcessRuntime() if relay is None else RelayedRuntime(relay)
    if containers is None:
        raise LaunchError(
            "asked to start a kernel in a container; found that nothing here starts containers: a gateway does, "
            "with the extension jupyter_aliquot.gateway loaded"
        )
    if relay is None:
        raise LaunchError(
            "asked to start a kernel in a container without a relay, which alone reaches into it; "
            "set c.AliquotProvisioner.relay = True"
        )
    return containers

"""Which runtime a kernel gets: the only place where runtimes are chosen, and made."""

from __future__ import annotations

from aliquot.provisioner.errors import LaunchError
from aliquot.provisioner.relay.records import RelayRecord

from .base import Runtime
from .process import ProcessRuntime
from .relayed import RelayedRuntime


def choose_runtime(relay: RelayRecord | None, in_container: bool) -> Runtime:
    """``relay`` None: a process that is our child. Raises LaunchError for what cannot run here."""
    if in_container:
        raise LaunchError("asked to start a kernel in a container; this version starts processes only")
    return ProcessRuntime() if relay is None else RelayedRuntime(relay)

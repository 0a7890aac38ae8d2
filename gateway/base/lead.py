"""The lead of a gateway's replicas, which each part asks before it grants, moves or ends anything by itself.

A replica whose Lease was not renewed may have a successor, which decides about the same kernels. It
still serves its kernels' cells, and ends a kernel at a user's request.
"""

from __future__ import annotations

from typing import Protocol

from jupyter_aliquot.provisioner.errors import EngineUnavailableError

CUT_OFF = "this replica of the server cannot reach the Kubernetes API, and another one may have taken over"


class Lead(Protocol):
    """The lead of one replica. Any thread may ask it."""

    def is_current(self) -> bool:
        """Return whether no other replica of this gateway can lead now."""
        ...


class OnlyReplica:
    """The lead of a gateway without replicas, which never ends."""

    def is_current(self) -> bool:
        return True


ALONE: Lead = OnlyReplica()


def lead_error(requested: str) -> EngineUnavailableError:
    """Return the refusal of a request that a replica may not serve while it does not lead."""
    return EngineUnavailableError(
        f"Requested {requested}, but this replica of the server cannot reach the Kubernetes API, and another one may "
        "have taken over. Try again in some seconds"
    )

"""A pause before an agent is asked again for what it was asked for in vain."""

from __future__ import annotations

from jupyter_aliquot.gateway.scheduling.ledger import Node

# A refused renewal, and an agent that failed or refused, are tried again after so long.
AGAIN_SECONDS = 5.0


class Pause:
    """The time until what the agent was judged by has changed, or AGAIN_SECONDS have passed."""

    def __init__(self) -> None:
        self._by: object = None
        self._until = 0.0

    def begin(self, by: object, now: float) -> None:
        """Begin a pause; ``by``: what the agent was judged by when it was asked."""
        self._by, self._until = by, now + AGAIN_SECONDS

    def holds(self, by: object, now: float) -> bool:
        """Return whether it would be asked in vain again."""
        return now < self._until and by == self._by


def state_of(node: Node | None) -> object:
    """Return what a plan takes from an agent's answer. The times in it, which each answer changes, are left out."""
    if node is None:
        return None
    leaving = {one: (told.is_moving, told.stays_because, told.refusal) for one, told in (node.leaving or {}).items()}
    return node.devices, node.rule, node.largest_kernel_bytes, node.evicted, leaving, node.is_away

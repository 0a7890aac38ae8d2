"""Cordoned nodes, on which nothing new starts, as values. Pure."""

from __future__ import annotations

from dataclasses import dataclass

# Stands for the kernel that others leave for, where they leave because their node is drained.
DRAIN = "the drain of its node"
TAKEN = "the cluster, which takes its GPU back"


@dataclass(frozen=True)
class Cordon:
    """The mark of a node on which no kernel starts, and the user who set it, ``since`` the epoch.

    Without ``by`` the gateway set it itself. With ``is_draining`` the node's kernels are swapped out,
    and stay out.
    """

    by: str
    since: float
    reason: str = ""
    is_draining: bool = False

    def clause(self, node: str) -> str:
        """Return what a waiting user is told, within another sentence."""
        who = "an administrator has" if self.by else "the gateway has"
        why = f": {self.reason}" if self.reason else ""
        done = "drained" if self.is_draining else "cordoned"
        return f"{who} {done} the node {node}, and nothing starts there{why}"


def kept_off(cordon: Cordon | None, *, is_new: bool) -> bool:
    """Return whether a request that needs capacity gets none on the node.

    A drained one takes no kernel back, and lets none grow.
    """
    return cordon is not None and (is_new or cordon.is_draining)

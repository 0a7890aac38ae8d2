"""Enforcers keep kernels within their memory: their common interface, and the default one.

The agent calls ``hold`` again and again with the limits in force, and the enforcer compares and
repairs. A resize therefore needs no call of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol import codec as protocol


class EnforcerError(Exception):
    """A limit could not be set, or not be read. The message is for the administrator."""


@dataclass(frozen=True)
class KernelLimits:
    """The limits of one kernel. ``pids`` are its processes so far; none until it was bound."""

    kernel_id: str
    parts: tuple[Part, ...]
    pids: tuple[int, ...]


class Enforcer(Protocol):
    """An enforcer.

    The agent calls ``hold`` and ``release`` in a thread, one at a time; they may block.
    """

    name: str
    word: protocol.Enforcer

    def unavailable(self) -> str:
        """Return why this node does not have it; empty when it does."""
        ...

    def environment(self, parts: Sequence[Part]) -> Mapping[str, str]:
        """Return the variables that a kernel's process needs."""
        ...

    def hold(self, limits: KernelLimits) -> tuple[str, ...]:
        """Set the limits that are not in force, and return those that had drifted.

        Raises EnforcerError.
        """
        ...

    def release(self, kernel_id: str) -> None:
        """Remove the limits of a kernel that ended. Raises EnforcerError."""
        ...


class HookEnforcer:
    """The default enforcer: the hook itself, by the credit that the agent lends.

    It has no limits to set or repair. It is cooperative; the audit finds processes that bypass the
    hook.
    """

    name = "hook"
    word = protocol.Enforcer.HOOK

    def unavailable(self) -> str:
        return ""

    def environment(self, parts: Sequence[Part]) -> Mapping[str, str]:
        return {}

    def hold(self, limits: KernelLimits) -> tuple[str, ...]:
        return ()

    def release(self, kernel_id: str) -> None:
        pass

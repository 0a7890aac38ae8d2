"""The default enforcer: the hook itself, by the credit that the agent lends. There is nothing to set and to mend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol import codec as protocol

from .base import KernelLimits


class HookEnforcer:
    """Implements ``base.Enforcer``. Cooperative: what goes past the hook is found by the audit."""

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

"""Which kernels the status tells otherwise than before: who asks every second is told of those alone.

One number for all who ask: it grows whenever a description changed, and each kernel has that of its last change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Description = Mapping[str, Any]


class StatusChanges:
    """Keeps what was last told of each kernel."""

    def __init__(self) -> None:
        self._number = 0
        self._told: dict[str, tuple[Description, int]] = {}

    def since(self, number: int, kernels: Sequence[Description]) -> dict[str, Any]:
        """Fields of the answer to who has seen ``number`` (0: nothing). ``kernels``: all that there are now.

        One of another agent's numbers, greater than ours, has seen nothing of us.
        """
        told: dict[str, tuple[Description, int]] = {}
        following = self._number + 1
        for kernel in kernels:
            before = self._told.get(kernel["kernel_id"])
            told[kernel["kernel_id"]] = before if before and before[0] == kernel else (kernel, following)
        if any(at == following for _, at in told.values()):
            self._number = following
        self._told = told
        seen = number if number <= self._number else 0
        return {
            "kernels": [kernel for kernel, at in told.values() if at > seen],
            "kernel_ids": list(told),
            "seen": self._number,
        }

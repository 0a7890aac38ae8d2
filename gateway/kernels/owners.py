"""Whose each kernel is, found from both sides: of a thousand, a user's few are asked for many times a second."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any


class KernelOwners(Mapping[str, str]):
    """Kernel id to its owner's name, in the order in which they were noted."""

    def __init__(self, owners: Mapping[str, str] | None = None) -> None:
        self._owners: dict[str, str] = {}
        # Dicts for their order.
        self._ids: dict[str, dict[str, None]] = {}
        for kernel_id, owner in (owners or {}).items():
            self.note(kernel_id, owner)

    def __getitem__(self, kernel_id: str) -> str:
        return self._owners[kernel_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._owners)

    def __len__(self) -> int:
        return len(self._owners)

    def get(self, kernel_id: str, default: Any = None) -> Any:
        """As a dict's, and as fast: it is asked for each kernel at each look."""
        return self._owners.get(kernel_id, default)

    def of(self, owner: str) -> Collection[str]:
        """The ids of this user's kernels."""
        return self._ids.get(owner, {}).keys()

    def note(self, kernel_id: str, owner: str) -> None:
        """It is this user's from now on."""
        self.forget(kernel_id)
        self._owners[kernel_id] = owner
        self._ids.setdefault(owner, {})[kernel_id] = None

    def forget(self, kernel_id: str) -> None:
        """It is no more. Idempotent."""
        owner = self._owners.pop(kernel_id, None)
        if owner is None:
            return
        ids = self._ids[owner]
        del ids[kernel_id]
        if not ids:
            del self._ids[owner]

"""The cgroup of a kernel: the one that its runtime gave it, or one that we make where it has none of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from aliquot.gpu_hook.agent.process_facts import Families, read_cgroup

from .base import EnforcerError

_ROOT = Path("/sys/fs/cgroup")


class CgroupHierarchy:
    """One mounted hierarchy. ``controller``: a version 1 controller; empty for version 2."""

    def __init__(self, root: Path, controller: str = "") -> None:
        self.root = root
        self._controller = controller
        self._leaves: dict[str, Path] = {}

    def unavailable(self) -> str:
        """Why no cgroup can be made here; empty when it can."""
        here = self.folder_of(os.getpid())
        if here is None:
            return f"this process is in no cgroup under {self.root}"
        return "" if os.access(here, os.W_OK) else f"{here} cannot be written"

    def leaf_of(self, kernel_id: str, pids: Sequence[int]) -> Path:
        """The cgroup that holds the kernel's processes and nobody else's. Raises EnforcerError.

        Where they share one with others (kernels as plain processes), they move to a new one below it; what they start
        from then on follows.
        """
        leaf = self._leaves.get(kernel_id) or self._find_leaf(kernel_id, pids)
        try:
            leaf.mkdir(exist_ok=True)
            self._leaves[kernel_id] = leaf
            for pid in pids:
                folder = self.folder_of(pid)
                if folder is not None and leaf not in (folder, *folder.parents):
                    with contextlib.suppress(ProcessLookupError):
                        (leaf / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise EnforcerError(f"cannot put kernel {kernel_id} into {leaf}: {error.strerror}") from error
        return leaf

    def forget(self, kernel_id: str) -> None:
        """Remove what was made for it; a runtime's own it removes itself."""
        leaf = self._leaves.pop(kernel_id, None)
        if leaf is not None and leaf.name == _leaf_name(kernel_id):
            with contextlib.suppress(OSError):  # a process in it still lives
                leaf.rmdir()

    def folder_of(self, pid: int) -> Path | None:
        """None when the process is gone, or in no cgroup that is visible here."""
        for line in read_cgroup(pid).splitlines():
            _, controllers, path = line.split(":", 2)
            if self._controller in controllers.split(","):
                folder = self.root / path.lstrip("/")
                return folder if folder.is_dir() else None
        return None

    def _find_leaf(self, kernel_id: str, pids: Sequence[int]) -> Path:
        present = next((folder for folder in map(self.folder_of, pids) if folder is not None), None)
        if present is None:
            raise EnforcerError(f"kernel {kernel_id}: none of its processes {list(pids)} is in a cgroup of {self.root}")
        is_shared = present.name != _leaf_name(kernel_id) and not self._is_filled_by(present, kernel_id, pids)
        return present / _leaf_name(kernel_id) if is_shared else present

    @staticmethod
    def _is_filled_by(folder: Path, kernel_id: str, pids: Sequence[int]) -> bool:
        family = Families(dict.fromkeys(pids, kernel_id), {})
        inside = (folder / "cgroup.procs").read_text().split()
        return all(family.kernel_by_descent(int(pid)) == kernel_id for pid in inside)


def _leaf_name(kernel_id: str) -> str:
    return f"aliquot-{kernel_id}"


def find_hierarchy(may_be_version_1: bool, root: Path = _ROOT) -> CgroupHierarchy | None:
    """Version 2; or, if that will do, version 1's memory controller. None: neither is mounted where it always is."""
    if (root / "cgroup.controllers").exists():
        return CgroupHierarchy(root)
    if may_be_version_1 and (root / "memory").is_dir():
        return CgroupHierarchy(root / "memory", "memory")
    if (root / "unified" / "cgroup.controllers").exists():
        return CgroupHierarchy(root / "unified")
    return None

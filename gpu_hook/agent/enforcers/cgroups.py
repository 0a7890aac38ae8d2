"""The cgroup of a kernel: its runtime's, or one that we make where it has none of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.base.process_facts import Families, read_cgroup

from .base import EnforcerError

_ROOT = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_PREFIX = "aliquot-"  # prefix of the cgroups that we make


class CgroupHierarchy:
    """One mounted hierarchy. ``controller``: a version 1 controller; empty for version 2."""

    def __init__(self, root: Path, controller: str = "", proc: Path = _PROC) -> None:
        self.root = root
        self._controller = controller
        self._proc = proc
        self._leaves: dict[str, Path] = {}

    def unavailable(self) -> str:
        """Return why no cgroup can be made here; empty when it can."""
        here = self.folder_of(os.getpid())
        if here is None:
            return f"this process is in no cgroup under {self.root}"
        return "" if os.access(here, os.W_OK) else f"{here} cannot be written"

    def leaf_of(self, kernel_id: str, pids: Sequence[int]) -> Path:
        """Return the cgroup that holds the kernel's processes and no others. Raises EnforcerError.

        Where they share one with others (kernels as plain processes), they move to a new one below
        it; what they start from then on follows. A process is never moved into or out of a cgroup
        that a runtime made for it: after a restart, the kernel may be in another.
        """
        try:
            leaf = self._leaves.get(kernel_id)
            if leaf is None or (not _is_ours(leaf) and not self._holds(leaf, pids)):
                leaf = self._find_leaf(kernel_id, pids)
            self._leaves[kernel_id] = leaf
            if _is_ours(leaf):
                self._gather(leaf, pids)
        except OSError as error:
            raise EnforcerError(f"cannot give kernel {kernel_id} a cgroup of its own: {error}") from error
        return leaf

    def forget(self, kernel_id: str) -> None:
        """Remove the kernel's cgroup that we made. A runtime removes its own."""
        leaf = self._leaves.pop(kernel_id, None)
        if leaf is not None and _is_ours(leaf):
            with contextlib.suppress(OSError):  # a process in it still lives
                leaf.rmdir()

    def folder_of(self, pid: int) -> Path | None:
        """Return the process's cgroup.

        Return None when the process is gone, or in no cgroup that is visible here.
        """
        for line in read_cgroup(pid, self._proc).splitlines():
            _, controllers, path = line.split(":", 2)
            if self._controller in controllers.split(","):
                folder = self.root / path.lstrip("/")
                # Outside of our cgroup namespace the path begins with "/..".
                return folder if ".." not in folder.parts and folder.is_dir() else None
        return None

    def _holds(self, leaf: Path, pids: Sequence[int]) -> bool:
        folders = [folder for folder in map(self.folder_of, pids) if folder is not None]
        return all(leaf in (folder, *folder.parents) for folder in folders) and leaf.is_dir()

    def _gather(self, leaf: Path, pids: Sequence[int]) -> None:
        leaf.mkdir(exist_ok=True)
        for pid in pids:
            folder = self.folder_of(pid)
            if folder is not None and leaf not in (folder, *folder.parents):
                with contextlib.suppress(ProcessLookupError):
                    (leaf / "cgroup.procs").write_text(str(pid))

    def _find_leaf(self, kernel_id: str, pids: Sequence[int]) -> Path:
        present = next((folder for folder in map(self.folder_of, pids) if folder is not None), None)
        if present is None:
            raise EnforcerError(f"kernel {kernel_id}: none of its processes {list(pids)} is in a cgroup of {self.root}")
        if present.name == _leaf_name(kernel_id):
            return present
        # the cgroup of another kernel, from which this one was started: its limit is not this one's
        while _is_ours(present):
            present = present.parent
        return present if self._is_filled_by(present, kernel_id, pids) else present / _leaf_name(kernel_id)

    def _is_filled_by(self, folder: Path, kernel_id: str, pids: Sequence[int]) -> bool:
        family = Families(dict.fromkeys(pids, kernel_id), {}, self._proc)
        inside = (folder / "cgroup.procs").read_text().split()
        return bool(inside) and all(family.kernel_by_descent(int(pid)) == kernel_id for pid in inside)


def _leaf_name(kernel_id: str) -> str:
    return f"{_PREFIX}{kernel_id}"


def _is_ours(leaf: Path) -> bool:
    return leaf.name.startswith(_PREFIX)


def find_hierarchy(may_be_version_1: bool, root: Path = _ROOT) -> CgroupHierarchy | None:
    """Return version 2, or else, if permitted, version 1's memory controller.

    Return None if neither is mounted at its usual place.
    """
    if (root / "cgroup.controllers").exists():
        return CgroupHierarchy(root)
    if may_be_version_1 and (root / "memory").is_dir():
        return CgroupHierarchy(root / "memory", "memory")
    if (root / "unified" / "cgroup.controllers").exists():
        return CgroupHierarchy(root / "unified")
    return None

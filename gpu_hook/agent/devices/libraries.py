"""The native libraries that kernels get.

These are the package's own, or a copy of them where an engine's host sees it. A copy is named by
its contents, so that an upgrade takes nothing from under a running kernel; files that it lost are
put there again. The agent removes copies that no kernel uses any more. This module loads none of them.
"""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from jupyter_aliquot.gpu_hook.paths import Driver, PathError, unusable_hook_files

log = logging.getLogger(__name__)

PARTS = ("shim", "bin", "softgpu")
_PRELOADED = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libaliquot-preload.so")  # dlsym's stand-in comes last


@dataclass(frozen=True)
class Libraries:
    """The folders of one set of libraries.

    ``folder`` has ``shim``, ``bin`` and ``softgpu``; it is one of several where it ``is_copy``.
    """

    folder: Path
    is_copy: bool

    @property
    def shim(self) -> Path:
        """Return the folder to put first on LD_LIBRARY_PATH."""
        return self.folder / "shim"

    @property
    def audit(self) -> Path:
        """Return the redirector of absolute paths, for LD_AUDIT."""
        return self.shim / "libaliquot-audit.so"

    @property
    def preload_text(self) -> str:
        """Return the text of an ld.so.preload, for places where neither variable can be set."""
        return "".join(f"{self.shim / name}\n" for name in _PRELOADED)

    @property
    def problem(self) -> str:
        """Return why the hook cannot hold kernels to their limits, and what to do; empty where it can."""
        if not (unusable := unusable_hook_files(self.folder)):
            return ""
        names = ", ".join(map(str, unusable))
        return (
            f"The hook cannot hold memory limits: {names} is missing or cannot be read. Install jupyter-aliquot again, "
            "and restart the node agent and the kernels"
        )

    def driver(self, found: Driver) -> Driver:
        """Return the same driver, as kernels reach it: the software GPU is one of the copies."""
        if found.kind != "softgpu":
            return found
        folder = self.folder / "softgpu"
        return replace(found, cuda=folder / found.cuda.name, nvml=folder / found.nvml.name)


def audit_is_cheap() -> bool:
    """Return whether a process may be started with an audit library.

    Before 2.35, glibc then sent every call between libraries through a slow trampoline (bug 15533),
    on aarch64 with cut SIMD arguments. Without the redirector, the self-check reports absolute
    paths as not covered.
    """
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        major, minor = (int(part) for part in version.split(".")[:2])
    except (OSError, ValueError):
        return False
    return name == "glibc" and (major, minor) >= (2, 35)


def installed(native: Path) -> Libraries:
    """Return the package's own libraries."""
    return Libraries(native, is_copy=False)


def publish(native: Path, library_dir: Path) -> Libraries:
    """Copy the libraries below ``library_dir``, unless the same are there and whole. Raises PathError."""
    folder = library_dir / _digest(native)
    try:
        library_dir.mkdir(parents=True, exist_ok=True)
        if not folder.exists():
            _copy(native, folder)
        elif unusable_hook_files(folder):
            _repair(native, folder)
    except OSError as error:
        raise PathError(
            f"cannot publish the libraries of {native} in {library_dir}: {error.strerror or error}; "
            "choose a --library-dir that can be written"
        ) from error
    return Libraries(folder, is_copy=True)


def mounted_folders(libraries: Libraries) -> tuple[Path, ...]:
    """Return the folders that a container has to see: these libraries, and those of older grants.

    The folder around copies is not among them: it is the administrator's, and may be closed to the
    container's user.
    """
    if not libraries.is_copy:
        return tuple(libraries.folder / part for part in PARTS)
    return tuple(_copies(libraries.folder.parent))


def prune(libraries: Libraries, used: Collection[str]) -> None:
    """Remove the copies beside ``libraries`` that are not named in ``used``. Never raises."""
    if not libraries.is_copy:
        return
    with contextlib.suppress(OSError):
        for folder in _copies(libraries.folder.parent):
            if folder != libraries.folder and folder.name not in used:
                log.info("event=libraries_removed folder=%s", folder)
                shutil.rmtree(folder, ignore_errors=True)


def _copies(library_dir: Path) -> list[Path]:
    """Return the copies that are whole, and ours by their form."""
    found = (folder for folder in sorted(library_dir.iterdir()) if not folder.name.startswith("."))
    return [folder for folder in found if all((folder / part).is_dir() for part in PARTS)]


def _copy(native: Path, folder: Path) -> None:
    """Copy the libraries, then rename the copy: a folder with this name is complete."""
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        for part in PARTS:
            shutil.copytree(native / part, new / part)
        new.chmod(0o755)  # readable for any user of a container
        os.rename(new, folder)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        if not folder.exists():  # or another agent was first, with the same copy
            raise


def _repair(native: Path, folder: Path) -> None:
    """Put those files in place that a copy lost. Never raises: the agent serves, and tells what its copy lacks.

    Files are renamed there: running kernels map the ones before.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder.parent, ignore_cleanup_errors=True) as new:
            for part in PARTS:
                (folder / part).mkdir(exist_ok=True)
                for path in sorted(Path(shutil.copytree(native / part, Path(new) / part)).iterdir()):
                    if not _is_same(path, place := folder / part / path.name):
                        path.replace(place)
                        log.warning("event=library_repaired file=%s", place)
    except OSError as error:
        log.error("event=libraries_not_repaired folder=%s error=%r", folder, str(error))


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.stat().st_mode == other.lstat().st_mode and filecmp.cmp(one, other, shallow=False)
    except OSError:  # it is missing, or cannot be read
        return False


def _digest(native: Path) -> str:
    found = hashlib.sha256()
    for part in PARTS:
        for path in sorted((native / part).iterdir()):
            found.update(f"{part}/{path.name}:{path.stat().st_size}\n".encode())
            found.update(path.read_bytes())
    return found.hexdigest()[:12]

"""The sizes as kernelspec files, for clients that read only the disk: nbclient, papermill, VS Code.

It replaces and removes only what it wrote itself, known by a mark in the file's metadata.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from aliquot.gateway.sizes import SizedKernelSpecManager
from aliquot.provisioner.errors import AliquotError
from aliquot.provisioner.grant_record import PROVISIONER_NAME
from jupyter_client.kernelspec import KernelSpec
from jupyter_core.paths import jupyter_data_dir


class KernelSpecFileError(AliquotError):
    """A kernelspec file could not be written, or stands where somebody else's is."""


@dataclass(frozen=True)
class Installed:
    """What one call did: folders written, and folders of ours removed because their size is no longer offered."""

    written: tuple[Path, ...]
    removed: tuple[Path, ...]


def user_folder() -> Path:
    """Kernelspecs of this user."""
    return Path(jupyter_data_dir()) / "kernels"


def sys_prefix_folder() -> Path:
    """Kernelspecs of this Python environment."""
    return Path(sys.prefix) / "share" / "jupyter" / "kernels"


def install_sizes(manager: SizedKernelSpecManager, folder: Path) -> Installed:
    """Write every size that is offered into `folder`, and remove those we wrote before that no longer are.

    Not those of images: what reads only the disk starts processes, and has no container to start one in.
    """
    sizes = [size for size in manager.offered_sizes() if size.image is None]
    offered = {size.name: manager.get_kernel_spec(size.name) for size in sizes}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stale = [path for path in folder.iterdir() if path.name not in offered and is_ours(path)]
        written = tuple(_write(spec, folder / name) for name, spec in offered.items())
        for path in stale:
            shutil.rmtree(path)
    except OSError as error:
        raise KernelSpecFileError(
            f"cannot write kernelspecs to {folder}: {error.strerror or error}; choose a folder that you may write"
        ) from error
    return Installed(written, tuple(stale))


def is_ours(path: Path) -> bool:
    """Whether this kernelspec folder holds a size that we wrote."""
    try:
        metadata = json.loads((path / "kernel.json").read_text(encoding="utf-8"))["metadata"]
        return "aliquot" in metadata and metadata["kernel_provisioner"]["provisioner_name"] == PROVISIONER_NAME
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write(spec: KernelSpec, path: Path) -> Path:
    if path.exists() and not is_ours(path):
        raise KernelSpecFileError(f"asked to write {path}; found a kernelspec there that is not ours. Rename it first")
    path.mkdir(exist_ok=True)
    for logo in sorted(Path(spec.resource_dir).glob("logo-*")):
        shutil.copyfile(logo, path / logo.name)
    new = path / f".kernel.json.{os.getpid()}"
    new.write_text(json.dumps(spec.to_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    new.replace(path / "kernel.json")
    return path

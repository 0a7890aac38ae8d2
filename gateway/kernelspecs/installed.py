"""Sizes as kernelspec files, for clients that read only the disk: nbclient, papermill, VS Code.

A mark in the file's metadata shows which files Aliquot wrote. Only these are replaced and removed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec, NoSuchKernel
from jupyter_core.paths import jupyter_data_dir

from jupyter_aliquot.gateway.sizes.grammar import parse_size_name
from jupyter_aliquot.provisioner.errors import AliquotError, SizeNameError
from jupyter_aliquot.provisioner.grants.codec import PROVISIONER_NAME

from .manager import SizedKernelSpecManager

_BY_NAME = "installed_by_name"  # in Aliquot's part of the metadata


class KernelSpecFileError(AliquotError):
    """A kernelspec file could not be written, or another program's kernelspec is in its place."""


@dataclass(frozen=True)
class Installed:
    """The result of one call: folders written, and folders removed.

    A folder is removed if its size is no longer offered.
    """

    written: tuple[Path, ...]
    removed: tuple[Path, ...]


def user_folder() -> Path:
    """Return the folder of this user's kernelspecs."""
    return Path(jupyter_data_dir()) / "kernels"


def sys_prefix_folder() -> Path:
    """Return the folder of this Python environment's kernelspecs."""
    return Path(sys.prefix) / "share" / "jupyter" / "kernels"


def install_sizes(manager: SizedKernelSpecManager, folder: Path) -> Installed:
    """Write every size on offer into *folder*, and remove those written before that no longer are.

    Sizes of images are left out: a client that reads only the disk starts processes, and has no
    container to start one in. Sizes that a user installed by name stay.

    Raises:
        KernelSpecFileError: the folder cannot be written, or another program's kernelspec has one
            of the names.
    """
    sizes = [size for size in manager.offered_sizes() if size.image is None]
    offered = {size.name: manager.get_kernel_spec(size.name) for size in sizes}
    with _told(folder):
        folder.mkdir(parents=True, exist_ok=True)
        others = [path for path in folder.iterdir() if path.name not in offered]
        stale = [path for path in others if is_ours(path) and not _is_installed_by_name(path)]
        written = tuple(_write(spec, folder / name) for name, spec in offered.items())
        for path in stale:
            shutil.rmtree(path)
    return Installed(written, tuple(stale))


def install_named(manager: SizedKernelSpecManager, folder: Path, names: Sequence[str]) -> Installed:
    """Write these sizes into *folder*, whether they are offered or not.

    All names are read before one is written.

    Args:
        manager: what resolves a name.
        folder: where kernelspecs lie.
        names: kernelspec names such as ``python3.gpu-0.5-8g``.

    Raises:
        KernelSpecFileError: as for `install_sizes`, or a name is no size, or an image's.
    """
    specs = {name.lower(): _named_spec(manager, name) for name in names}
    with _told(folder):
        folder.mkdir(parents=True, exist_ok=True)
        written = tuple(_write(spec, folder / name) for name, spec in specs.items())
    return Installed(written, ())


def _named_spec(manager: SizedKernelSpecManager, name: str) -> KernelSpec:
    try:
        spec = manager.get_kernel_spec(name)
        sized = parse_size_name(name)
    except (NoSuchKernel, SizeNameError) as error:
        raise KernelSpecFileError(str(error)) from error
    if sized is None:
        raise KernelSpecFileError(f"{name!r} has no size; {manager.grammar()}")
    if manager.catalogue.find(sized.base) is not None:
        raise KernelSpecFileError(
            f"{name!r} is a size of an image; a client that reads kernelspecs from the disk has no container to start "
            "it in. Choose a size of an installed kernelspec ('jupyter kernelspec list')"
        )
    spec.metadata["aliquot"][_BY_NAME] = True
    return spec


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Re-raise a failure to write with its folder."""
    try:
        yield
    except OSError as error:
        raise KernelSpecFileError(
            f"cannot write kernelspecs to {folder}: {error.strerror or error}; choose a folder that you may write"
        ) from error


def is_ours(path: Path) -> bool:
    """Return whether this kernelspec folder holds a size that Aliquot wrote."""
    return _own_metadata(path) is not None


def _is_installed_by_name(path: Path) -> bool:
    return bool((_own_metadata(path) or {}).get(_BY_NAME))


def _own_metadata(path: Path) -> dict[str, Any] | None:
    """Return Aliquot's part of the metadata; None for a folder without a size that Aliquot wrote."""
    try:
        metadata = json.loads((path / "kernel.json").read_text(encoding="utf-8"))["metadata"]
        is_ours = metadata["kernel_provisioner"]["provisioner_name"] == PROVISIONER_NAME
        return dict(metadata["aliquot"]) if is_ours else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(spec: KernelSpec, path: Path) -> Path:
    if path.exists() and not is_ours(path):
        raise KernelSpecFileError(f"{path} cannot be written: another program's kernelspec is there. Rename it first.")
    path.mkdir(exist_ok=True)
    for logo in sorted(Path(spec.resource_dir).glob("logo-*")):
        shutil.copyfile(logo, path / logo.name)
    new = path / f".kernel.json.{os.getpid()}"
    new.write_text(json.dumps(spec.to_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    new.replace(path / "kernel.json")
    return path

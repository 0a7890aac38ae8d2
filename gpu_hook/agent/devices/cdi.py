"""CDI specs for container engines: the hook, and the devices of the software GPU.

This module has pure builders, and writes their results. Everything is mounted at the path that it
has on the host, so that a grant's environment is right in both. NVIDIA's own toolkit describes its
devices; the hook comes after them, since it stands before their libraries.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook.base.files import replace_file
from jupyter_aliquot.gpu_hook.paths import Driver, RuntimeDir, softgpu_state_path

from .libraries import Libraries, mounted_folders

HOOK_KIND = "aliquot.dev/hook"
SOFTGPU_KIND = "aliquot.dev/softgpu"
LOADER_FILE = "/etc/ld.so.preload"
_VERSION = "0.5.0"  # the first with device names that begin with a digit; older engines take it, too
_READ_ONLY = ("ro", "nosuid", "nodev", "bind")
_SHARED = ("rw", "nosuid", "nodev", "noexec", "bind")

Spec = Mapping[str, Any]


def hook_spec(libraries: Sequence[Path], loader_file: Path) -> Spec:
    """Return the spec of the hook's devices.

    ``shim``: the container sees the folders of libraries, and the grant's environment leads to
    them. ``preload``: every program of the container loads them, for images that clear the
    environment. A variable names the device in use.
    """
    loader = _mount(loader_file, _READ_ONLY, LOADER_FILE)
    devices = [
        {"name": "shim", "containerEdits": {"env": ["ALIQUOT_CDI_HOOK=shim"]}},
        {"name": "preload", "containerEdits": {"env": ["ALIQUOT_CDI_HOOK=preload"], "mounts": [loader]}},
    ]
    return _spec(HOOK_KIND, devices, [_mount(folder, _READ_ONLY) for folder in libraries])


def softgpu_spec(libraries: Sequence[Path], state: Path, indices: Iterable[int]) -> Spec:
    """Return a spec with a device for each index, and ``all``.

    A kernel's grant says which of them it sees.
    """
    marks = {str(index): f"ALIQUOT_CDI_SOFTGPU_{index}=present" for index in sorted(indices)}
    devices = [{"name": name, "containerEdits": {"env": [mark]}} for name, mark in marks.items()]
    devices.append({"name": "all", "containerEdits": {"env": list(marks.values())}})
    mounts = [_mount(folder, _READ_ONLY) for folder in libraries]
    return _spec(SOFTGPU_KIND, devices, [*mounts, _mount(state.parent, _SHARED)])


def write_specs(folder: Path, specs: Iterable[Spec]) -> None:
    """Replace our specs in the folder by these. Raises OSError.

    Other vendors' specs stay as they are. Ours stay when the agent ends: kernels may start while
    the next agent does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {f"{spec['kind'].replace('/', '-')}.json": spec for spec in specs}
    for name, spec in wanted.items():
        text = json.dumps(spec, indent=2) + "\n"
        replace_file(folder / name, text, mode=0o644, is_durable=False)
    for kind in (HOOK_KIND, SOFTGPU_KIND):
        name = f"{kind.replace('/', '-')}.json"
        if name not in wanted:
            (folder / name).unlink(missing_ok=True)


def _spec(kind: str, devices: list[dict[str, Any]], mounts: list[dict[str, Any]]) -> Spec:
    return {"cdiVersion": _VERSION, "kind": kind, "devices": devices, "containerEdits": {"mounts": mounts}}


def _mount(path: Path, options: tuple[str, ...], target: str | None = None) -> dict[str, Any]:
    return {"hostPath": os.fspath(path), "containerPath": target or os.fspath(path), "options": list(options)}


log = logging.getLogger(__name__)


def write_node_specs(
    folder: Path, runtime: RuntimeDir, libraries: Libraries, driver: Driver, indices: Iterable[int]
) -> None:
    """Write the specs that mount the node's libraries, and its software GPUs of these indices.

    Raises OSError.
    """
    replace_file(runtime.loader_file, libraries.preload_text, mode=0o644, is_durable=False)
    folders = mounted_folders(libraries)
    specs = [hook_spec(folders, runtime.loader_file)]
    if driver.kind == "softgpu":
        specs.append(softgpu_spec(folders, softgpu_state_path(runtime), indices))
    write_specs(folder, specs)
    log.info("event=cdi_written folder=%s kinds=%s", folder, [spec["kind"] for spec in specs])

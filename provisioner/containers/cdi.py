"""Read our own CDI specs and make their edits, for engines that know no CDI over their API.

The reader takes what `aliquot agent --cdi-dir` writes, and refuses fields that it does not know.
Engines read the specs of vendors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_aliquot.provisioner.errors import LaunchError, RequestError
from jupyter_aliquot.provisioner.resources import Grant

from .plan import Mount

SOFTGPU_KIND = "aliquot.dev/softgpu"
HOOK_KIND = "aliquot.dev/hook"
NVIDIA_KIND = "nvidia.com/gpu"
USUAL_FOLDERS = ("/etc/cdi", "/var/run/cdi")
_OURS = "aliquot.dev/"
_KNOWN_EDITS = frozenset(("env", "mounts", "deviceNodes"))


@dataclass(frozen=True)
class Edits:
    """Environment, mounts and devices of a container, as the Docker Engine API writes them."""

    env: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[Mapping[str, str], ...] = ()

    def __add__(self, later: Edits) -> Edits:
        return Edits(self.env + later.env, self.mounts + later.mounts, self.devices + later.devices)


@dataclass(frozen=True)
class CdiSpec:
    """One kind of devices: the edits for any of them, and the edits of each by its name."""

    kind: str
    common: Edits
    devices: Mapping[str, Edits]


def device_names(grant: Grant, hook: str = "shim") -> tuple[str, ...]:
    """Return the CDI devices of a grant: its GPUs, then the hook.

    ``hook`` is shim or preload. The hook's libraries stand before those of the GPUs.
    """
    is_software = any(name == "ALIQUOT_SOFTGPU_STATE" for name, _ in grant.env)
    if is_software:
        gpus = [f"{SOFTGPU_KIND}={quota.index}" for quota in grant.quotas]
    else:
        gpus = [f"{NVIDIA_KIND}={quota.uuid}" for quota in grant.quotas]
    return (*gpus, f"{HOOK_KIND}={hook}")


def load_specs(folders: Iterable[str | Path]) -> tuple[CdiSpec, ...]:
    """Return our own specs in these folders.

    A kind in a later folder replaces the same kind in an earlier one. Raises LaunchError.
    """
    found: dict[str, CdiSpec] = {}
    for folder in folders:
        for file in sorted(Path(folder).glob("*.json")):
            spec = _load(file)
            if spec is not None:
                found[spec.kind] = spec
    return tuple(found.values())


def edits_for(names: Sequence[str], specs: Iterable[CdiSpec], folders: Iterable[str | Path]) -> Edits:
    """Return all edits of these devices in their order, the edits common to a kind once.

    Raises LaunchError.
    """
    by_kind = {spec.kind: spec for spec in specs}
    edits, seen = Edits(), set()
    for name in names:
        kind, _, device = name.partition("=")
        spec = by_kind.get(kind)
        if spec is None or device not in spec.devices:
            known = ", ".join(f"{kind}={each}" for kind, spec in by_kind.items() for each in spec.devices) or "none"
            raise LaunchError(
                f"Requested the device {name} for a container, but {', '.join(map(str, folders))} has "
                f"{known}, and this engine resolves no CDI device over its API. Start the node agent with "
                "--cdi-dir, or set c.KernelContainers.cdi_dirs to the folder that it writes"
            )
        if kind not in seen:
            seen.add(kind)
            edits += spec.common
        edits += spec.devices[device]
    return edits


def read_spec(document: Mapping[str, Any]) -> CdiSpec:
    """Read one spec. Raises ValueError for edits that this reader cannot make."""
    devices = {str(device["name"]): _edits(device.get("containerEdits", {})) for device in document["devices"]}
    return CdiSpec(str(document["kind"]), _edits(document.get("containerEdits", {})), devices)


def _load(file: Path) -> CdiSpec | None:
    try:
        document = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise LaunchError(f"cannot read the CDI spec {file}: {error}; the node agent writes it anew") from error
    if not isinstance(document, dict) or not str(document.get("kind")).startswith(_OURS):
        return None
    try:
        return read_spec(document)
    except (KeyError, TypeError, ValueError, RequestError) as error:
        raise LaunchError(f"cannot read the CDI spec {file}: {error!r}; the node agent writes it anew") from error


def _edits(edits: Mapping[str, Any]) -> Edits:
    unknown = sorted(set(edits) - _KNOWN_EDITS)
    if unknown:
        raise ValueError(f"edits {', '.join(unknown)} are not made here")
    env = tuple((name, value) for name, _, value in (str(word).partition("=") for word in edits.get("env") or ()))
    mounts = tuple(
        Mount(str(mount["hostPath"]), str(mount["containerPath"]), "ro" in (mount.get("options") or ()))
        for mount in edits.get("mounts") or ()
    )
    return Edits(env, mounts, tuple(_device(node) for node in edits.get("deviceNodes") or ()))


def _device(node: Mapping[str, Any]) -> dict[str, str]:
    return {
        "PathOnHost": str(node.get("hostPath") or node["path"]),
        "PathInContainer": str(node["path"]),
        "CgroupPermissions": str(node.get("permissions") or "rwm"),
    }

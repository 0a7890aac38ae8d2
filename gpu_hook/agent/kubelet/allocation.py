"""The answer to the kubelet's Allocate: what one kernel pod gets of the node. Pure.

Everything is mounted at the path that it has on the host, so that a grant's environment is right in
both. A pod's own environment wins over this one, so the gateway leaves these names out of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.devices.cdi import HOOK_KIND, SOFTGPU_KIND
from jupyter_aliquot.gpu_hook.paths import Driver

from .messages import CdiDevice, ContainerAllocateResponse, DeviceSpec, Mount

_NVIDIA_KIND = "nvidia.com/gpu"
# Of all GPUs; each GPU has one of its own beside them.
_SHARED_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_DRIVER_FACTS = Path("/proc/driver/nvidia/gpus")
# The driver loads them by name.
_DRIVER_LIBRARIES = ("libcuda.so*", "libnvidia-ml.so*", "libnvidia-ptxjitcompiler.so*", "libnvidia-nvvm.so*")


@dataclass(frozen=True)
class NodeParts:
    """The parts of the node that every kernel pod gets.

    ``shim`` is the hook's folder for LD_LIBRARY_PATH, in one of ``libraries``. These are read at each
    Allocate: the agent removes those of older releases as it starts. ``softgpu_state`` is the software
    GPU's shared file; None: NVIDIA's driver.
    """

    driver: Driver
    shim: Path
    libraries: Callable[[], tuple[Path, ...]]
    driver_env: Mapping[str, str] = field(default_factory=dict)
    softgpu_state: Path | None = None


@dataclass(frozen=True)
class HeldGpu:
    """A GPU that Aliquot holds on the node. ``minor`` is the number of its device file."""

    uuid: str
    minor: int


def allocation(
    parts: NodeParts, slot: Path, gpus: Iterable[HeldGpu], has_cdi: bool, found: Iterable[Path] = ()
) -> ContainerAllocateResponse:
    """Return what the container with this slot's folder gets.

    ``found`` are the host's files of NVIDIA's driver, which a runtime without CDI does not mount.
    """
    held = sorted(gpus, key=lambda gpu: gpu.minor)
    own = [_mount(slot)]
    if has_cdi:
        return ContainerAllocateResponse(
            envs=_environment(parts, slot),
            mounts=tuple(own),
            cdi_devices=tuple(CdiDevice(name) for name in _cdi_names(parts, held)),
        )
    shared = [_mount(folder) for folder in parts.libraries()]
    if parts.softgpu_state is not None:
        shared.append(_mount(parts.softgpu_state.parent, read_only=False))
        return ContainerAllocateResponse(envs=_environment(parts, slot), mounts=(*shared, *own))
    files = [*_SHARED_DEVICES, *(f"/dev/nvidia{gpu.minor}" for gpu in held)]
    return ContainerAllocateResponse(
        envs=_environment(parts, slot),
        mounts=(*shared, *(_mount(file) for file in found), *own),
        devices=tuple(DeviceSpec(path, path, "rw") for path in files),
    )


def hook_allocation(parts: NodeParts, slot: Path, has_cdi: bool) -> ContainerAllocateResponse:
    """Return the same without GPUs and their driver's files, which the container has by its ResourceClaims."""
    if parts.softgpu_state is not None:
        return allocation(parts, slot, (), has_cdi)
    shared = () if has_cdi else tuple(_mount(folder) for folder in parts.libraries())
    names = (CdiDevice(f"{HOOK_KIND}=shim"),) if has_cdi else ()
    return ContainerAllocateResponse(_environment(parts, slot), (*shared, _mount(slot)), cdi_devices=names)


def device_minors(folder: Path = _DRIVER_FACTS) -> dict[str, int]:
    """Return the numbers of the GPUs' device files by UUID, as NVIDIA's driver tells. Reads the folder."""
    found: dict[str, int] = {}
    for file in sorted(folder.glob("*/information")):
        facts = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
        uuid, minor = facts.get("GPU UUID", "").strip(), facts.get("Device Minor", "").strip()
        if uuid and minor.isdecimal():
            found[uuid] = int(minor)
    return found


def driver_files(driver: Driver) -> tuple[Path, ...]:
    """Return the files of NVIDIA's driver beside its libcuda. Reads the folder."""
    folders = {driver.cuda.parent, driver.nvml.parent}
    return tuple(sorted({path for folder in folders for name in _DRIVER_LIBRARIES for path in folder.glob(name)}))


def _environment(parts: NodeParts, slot: Path) -> dict[str, str]:
    return {
        **parts.driver_env,
        "ALIQUOT_KERNEL_DIR": os.fspath(slot),
        "ALIQUOT_REAL_CUDA": os.fspath(parts.driver.cuda),
        "ALIQUOT_REAL_NVML": os.fspath(parts.driver.nvml),
        "LD_LIBRARY_PATH": os.fspath(parts.shim),
    }


def _cdi_names(parts: NodeParts, held: Iterable[HeldGpu]) -> list[str]:
    """Return the devices' names: the hook comes last, since it stands before the driver's libraries."""
    if parts.softgpu_state is not None:
        return [f"{SOFTGPU_KIND}=all", f"{HOOK_KIND}=shim"]
    return [*(f"{_NVIDIA_KIND}={gpu.uuid}" for gpu in held), f"{HOOK_KIND}=shim"]


def _mount(path: Path, read_only: bool = True) -> Mount:
    """Return a mount. Programs connect to a socket through a read-only one, too."""
    return Mount(os.fspath(path), os.fspath(path), read_only)

"""The facts phase: the properties of the machine. All later results are read against them."""

from __future__ import annotations

import ctypes
import importlib.metadata
import mmap
import os
import platform
import shutil
import sys
from pathlib import Path

import gpu_tests

from .context import Context
from .device_facts import GIB, NvmlError, complaints, read_devices

PACKAGES = (
    *("torch", "triton", "jax", "jaxlib", "cupy-cuda13x", "cupy-cuda12x", "numba", "numba-cuda", "cuda-bindings"),
    *(
        "cudf-cu13",
        "cudf-cu12",
        "nvidia-nccl-cu13",
        "nvidia-ml-py",
        "numpy",
        "pytest",
        "pytest-timeout",
        "pytest-xdist",
    ),
)
TOOLS = ("cc", "gcc", "clang", "cmake", "ninja", "make", "nvcc", "nvidia-smi", "ldconfig", "unshare", "git")
FILES = (
    *("/proc/driver/nvidia/version", "/proc/meminfo", "/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
    *(
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/proc/sys/kernel/yama/ptrace_scope",
        "/proc/sys/vm/overcommit_memory",
    ),
)
SOFT_NEEDED_BYTES = GIB // 2
_ADVICE = {"wipe_on_fork": 18, "populate_read": 22, "populate_write": 23}  # MADV_…
_MEMBARRIER = {"x86_64": 324, "aarch64": 283}


def run(context: Context) -> None:
    uname = os.uname()
    context.tell(
        commit=gpu_tests.commit(),
        system=f"{uname.sysname} {uname.release} {uname.machine}",
        glibc=" ".join(platform.libc_ver()),
        python=sys.version.split()[0], cores=os.cpu_count(), tools={name: shutil.which(name) for name in TOOLS},
        packages={name: version for name in PACKAGES if (version := _version(name))},
        environment={name: os.environ[name] for name in os.environ if name.startswith(("LD_", "CUDA_", "NVIDIA_"))},
    )  # fmt: skip
    context.tell(
        system_calls=probe_system_calls(), numa_nodes=len(list(Path("/sys/devices/system/node").glob("node*")))
    )
    sandbox = gpu_tests.load_source("sandbox")
    if sandbox.is_gvisor():
        context.complain(f"{sandbox.GVISOR}. Phases with the node agent are skipped.", "agent")
    context.tell(files={name: _read(Path(name)) for name in FILES})
    if context.is_soft:
        context.tell(device="the software GPU: compiled GPU code is timed there, not executed")
        return
    driver = gpu_tests.load_paths().nvidia_driver()
    if driver is None:
        context.complain(
            "No NVIDIA driver is here: its two libraries and a device are needed. Phases that need a GPU are skipped.",
            "gpu",
        )
        return
    _tell_device(context, driver.nvml)
    if shutil.which("nvidia-smi"):
        context.file("nvidia-smi.txt").write_text(context.run(["nvidia-smi", "-q"], 10).out)
        context.run(["ldconfig", "-p"], 5)


def _tell_device(context: Context, nvml: Path) -> None:
    try:
        devices = read_devices(nvml)
    except NvmlError as error:
        context.complain(f"{error}. Phases that need a GPU are skipped.", "gpu")
        return
    for facts in devices:
        context.tell(**vars(facts))
    for line, stops in complaints(devices):
        context.complain(line, *stops)


def probe_system_calls() -> dict[str, bool]:
    """Test whether the kernel has the system calls that the hook and the agent need.

    A sandbox may lack some.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    number = _MEMBARRIER.get(platform.machine(), -1)
    found = {"membarrier": libc.syscall(number, 0, 0, 0) > 0}
    descriptor = os.memfd_create("probe", os.MFD_ALLOW_SEALING)
    try:
        import fcntl

        try:
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, 0x10)  # F_SEAL_FUTURE_WRITE
            found["seal_future_write"] = True
        except OSError:
            found["seal_future_write"] = False
    finally:
        os.close(descriptor)
    for name, advice in _ADVICE.items():
        with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as page:
            try:
                page.madvise(advice)
                found[name] = True
            except (OSError, ValueError):
                found[name] = False
    try:
        os.close(os.pidfd_open(os.getpid()))
        found["pidfd"] = True
    except OSError:
        found["pidfd"] = False
    return found


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text()[:400]
    except OSError as error:
        return error.strerror or "cannot be read"

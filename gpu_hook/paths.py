"""Paths on this machine: the runtime folder, our native libraries, the NVIDIA driver.

Only ``find_runtime_dir`` reads the environment. This module creates nothing but the runtime folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_RUNTIME_DIR = 50  # characters: the longest socket below it must stay under the 108 bytes of sun_path
KERNEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,35}")

_SERVICE_DIR = Path("/run/aliquot")
_PASSED = 0o711  # other users can pass through the folder, but not list it
_SHARED_RELAYS = 0o751
_SHARED = 0o1771  # the gateway's group writes, and removes nothing of root's
_DRIVER_DIRS = (
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
)
_PRELOAD_LIBRARY = "libaliquot-preload.so"  # beside each shim
_HOOK_LIBRARIES = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1")
_DRIVER_DEVICES = ("/dev/nvidiactl", "/dev/dxg")


class PathError(Exception):
    """A required folder or library is missing or unusable.

    The message says what was found and what to do.
    """


@dataclass(frozen=True)
class RuntimeDir:
    """The runtime folder and the names in it."""

    path: Path

    @property
    def agent_socket(self) -> Path:
        return self.path / "agent.sock"

    @property
    def agent_lock(self) -> Path:
        return self.path / "agent.lock"

    @property
    def start_lock(self) -> Path:
        return self.path / "start.lock"

    @property
    def agent_info(self) -> Path:
        return self.path / "agent.json"

    @property
    def agent_log(self) -> Path:
        return self.path / "agent.log"

    @property
    def loader_file(self) -> Path:
        """Return the file that a container may have as its ld.so.preload."""
        return self.path / "ld.so.preload"

    @property
    def gateway_socket(self) -> Path:
        return self.path / "gateway.sock"

    @property
    def gateway_lock(self) -> Path:
        return self.path / "gateway.lock"

    @property
    def relay_socket(self) -> Path:
        return self.path / "relay.sock"

    @property
    def relay_lock(self) -> Path:
        return self.path / "relay.lock"

    @property
    def relay_log(self) -> Path:
        return self.path / "relay.log"

    @property
    def relays(self) -> Path:
        return self.path / "relays"

    def relay(self, kernel_id: str) -> Path:
        """The folder of one kernel's relay."""
        return self.relays / kernel_id

    @property
    def kernels(self) -> Path:
        return self.path / "kernels"

    def kernel(self, kernel_id: str) -> Path:
        return self.kernels / kernel_id

    @property
    def closed_kernels(self) -> Path:
        """The folder of kernels in containers, where kernels are of several accounts.

        Their processes have accounts of the containers' own, so their sockets are for all, and the
        folder keeps the machine's other accounts out. A container has its kernel's part of it.
        """
        return self.path / "closed"

    @property
    def slots(self) -> Path:
        """The folder of the slots of kernel pods: a pod's container has one of them, its slot's."""
        return self.path / "slots"

    def kernel_folders(self) -> list[Path]:
        """Return the folders of all kernels. Raises OSError."""
        closed = sorted(self.closed_kernels.iterdir()) if self.closed_kernels.exists() else []
        return [*sorted(self.kernels.iterdir()), *closed]


@dataclass(frozen=True)
class Driver:
    """The libraries below the hook, by absolute path. ``kind`` is ``nvidia`` or ``softgpu``."""

    kind: str
    cuda: Path
    nvml: Path


def find_runtime_dir(environ: Mapping[str, str] | None = None) -> RuntimeDir:
    """Choose the runtime folder; it may not exist yet.

    The order is that of docs/reference/agent-protocol.md.
    """
    env = os.environ if environ is None else environ
    if chosen := env.get("ALIQUOT_RUNTIME_DIR"):
        return RuntimeDir(Path(chosen).absolute())
    service = RuntimeDir(_SERVICE_DIR)
    if _has_our_agent(service) or (os.geteuid() == 0 and os.access("/run", os.W_OK)):
        return service
    return private_runtime_dir(env)


def private_runtime_dir(environ: Mapping[str, str] | None = None) -> RuntimeDir:
    """Return the runtime folder of this account alone; it may not exist yet."""
    env = os.environ if environ is None else environ
    if (session := env.get("XDG_RUNTIME_DIR")) and os.path.isdir(session) and os.access(session, os.W_OK | os.X_OK):
        return RuntimeDir(Path(session).absolute() / "aliquot")
    return RuntimeDir(Path(f"/tmp/aliquot-{os.geteuid()}"))


def _has_our_agent(service: RuntimeDir) -> bool:
    """Return whether an agent of this account has its socket there.

    The folder of another account is no place for this one: its agent turns other accounts away, and
    this account may not even look into the folder.
    """
    try:
        found = service.path.stat()
        return (found.st_uid == os.geteuid() or _is_for_us(found)) and service.agent_socket.exists()
    except OSError:
        return False


def find_door(environ: Mapping[str, str] | None = None) -> RuntimeDir | None:
    """Return the folder of a gateway that may give this account grants, though the folder is not ours.

    That is the folder of a gateway whose kernels have their owners' accounts. An account that chose
    another folder asks there alone.
    """
    env = os.environ if environ is None else environ
    found = RuntimeDir(Path(env.get("ALIQUOT_RUNTIME_DIR") or _SERVICE_DIR).absolute())
    return found if is_anothers(found) else None


def is_anothers(runtime: RuntimeDir) -> bool:
    """Tell whether root made the folder for a gateway's account, and we are neither of the two."""
    try:
        found = runtime.path.lstat()
    except OSError:
        return False
    return _is_roots_for_a_group(found) and os.geteuid() != 0 and not _is_for_us(found)


def is_shared(runtime: RuntimeDir) -> bool:
    """Tell whether root made the folder for a gateway's account, whose kernels have other accounts."""
    try:
        return _is_roots_for_a_group(runtime.path.lstat())
    except OSError:
        return False


def _is_roots_for_a_group(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and found.st_uid == 0 and stat.S_IMODE(found.st_mode) == _SHARED


def _is_for_us(found: os.stat_result) -> bool:
    return _is_roots_for_a_group(found) and found.st_gid in (os.getegid(), *os.getgroups())


def check_runtime_dir(runtime: RuntimeDir) -> None:
    """Raise PathError when the folder's name is too long, or it is not ours alone."""
    if len(os.fsencode(runtime.path)) > MAX_RUNTIME_DIR:
        raise PathError(
            f"the runtime folder {runtime.path} has {len(os.fsencode(runtime.path))} characters, at most "
            f"{MAX_RUNTIME_DIR} fit into a socket's path; set ALIQUOT_RUNTIME_DIR to a shorter one"
        )
    try:
        found = runtime.path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise PathError(f"cannot look at the runtime folder {runtime.path}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise PathError(f"the runtime folder {runtime.path} is no folder; remove it or set ALIQUOT_RUNTIME_DIR")
    if found.st_uid != os.geteuid() and not _is_for_us(found):
        raise PathError(
            f"the runtime folder {runtime.path} belongs to user {found.st_uid}, we are user {os.geteuid()}; "
            "set ALIQUOT_RUNTIME_DIR to a folder of your own"
        )


def prepare_runtime_dir(runtime: RuntimeDir, is_service: bool = False) -> None:
    """Create the folder, private to us. Raises PathError.

    Kernels of an agent that root runs as a service may have accounts of their own. So accounts that
    know a kernel's path from the agent can pass to its ``hook.sock``, and the way stays open. They
    cannot list it.
    """
    check_runtime_dir(runtime)
    try:
        runtime.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_runtime_dir(runtime)  # again: another process may have made it first
        shares = is_shared(runtime)
        if not shares and stat.S_IMODE(runtime.path.stat().st_mode) != _PASSED:
            runtime.path.chmod(0o700)
        runtime.kernels.mkdir(mode=0o700, exist_ok=True)
        passed = (runtime.kernels, runtime.path) if is_service and os.geteuid() == 0 else ()
        is_ours = runtime.kernels.stat().st_uid == os.geteuid()
        if shares and is_ours:
            runtime.closed_kernels.mkdir(mode=0o700, exist_ok=True)
        for folder in (runtime.kernels,) if shares and is_ours else passed:
            folder.chmod(_PASSED)
        problem = None if os.access(runtime.path, os.W_OK | os.X_OK) else "it is not writable"
    except OSError as error:
        problem = error.strerror
    if problem is not None:
        raise PathError(
            f"cannot write into the runtime folder {runtime.path}: {problem}; "
            "make it writable or set ALIQUOT_RUNTIME_DIR"
        )


def prepare_shared_runtime_dir(runtime: RuntimeDir, gid: int) -> None:
    """Create the folder for the gateway of the group *gid*, with the relays' folder. Raises PathError.

    Called by root. The gateway's account makes files in it and cannot take the relays' folder away;
    other accounts pass through it to their own kernels' sockets.
    """
    check_runtime_dir(runtime)
    try:
        runtime.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_runtime_dir(runtime)
        _share(runtime.path, gid, _SHARED)
        with contextlib.suppress(FileExistsError):
            runtime.relays.mkdir(mode=0o700)
        _share(runtime.relays, gid, _SHARED_RELAYS)
    except OSError as error:
        raise PathError(f"cannot prepare the runtime folder {runtime.path}: {error.strerror or error}") from error


def _share(folder: Path, gid: int, mode: int) -> None:
    """Give a folder of root a group and a mode. Raises OSError and PathError.

    By its descriptor: the gateway's account, which writes beside it, may put a link in its place.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise PathError(f"{folder} is not a folder of root; remove it") from None
    try:
        if os.fstat(descriptor).st_uid != 0:
            raise PathError(f"{folder} is not a folder of root; remove it")
        os.fchown(descriptor, 0, gid)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def private_opener(path: str, flags: int) -> int:
    """Open a file of the runtime folder, for ``open``: no other account may read it.

    That also holds for a file that was there before.
    """
    descriptor = os.open(path, flags, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def softgpu_state_path(runtime: RuntimeDir) -> Path:
    """Return the shared file that is the software GPU of this runtime folder, and of no other.

    Containers get its folder.
    """
    name = hashlib.sha256(os.fsencode(runtime.path.resolve())).hexdigest()[:8]
    return Path("/dev/shm") / f"aliquot-{os.geteuid()}-{name}" / "machine" / "state"


def native_dir() -> Path:
    """Return ``jupyter_aliquot/native``, beside the packages.

    The path is not resolved, since an editable install is a folder of links.
    """
    return Path(__file__).absolute().parent.parent / "native"


def unusable_hook_files(native: Path) -> tuple[Path, ...]:
    """Return the files of the hook below *native* that are missing, or that this account may not use.

    Without them kernels start, and their memory limits are not held.
    """
    libraries = [path for name in _HOOK_LIBRARIES if not os.access(path := native / "shim" / name, os.R_OK)]
    program = native / "bin" / "aliquot-kernel-start"
    return (*libraries, *(() if os.access(program, os.R_OK | os.X_OK) else (program,)))


def shim_dir() -> Path:
    """Return the folder of the hook's libraries, to put first on LD_LIBRARY_PATH."""
    return native_dir() / "shim"


def softgpu_driver() -> Driver:
    """Return the software GPU's libraries. Raises PathError when they were not built."""
    folder = native_dir() / "softgpu"
    driver = Driver("softgpu", folder / "libcuda.so.1", folder / "libnvidia-ml.so.1")
    for library in (driver.cuda, driver.nvml):
        if not library.exists():
            raise PathError(f"the software GPU's {library} is missing; install aliquot again (pip install .)")
    return driver


def nvidia_driver() -> Driver | None:
    """Return the NVIDIA driver of this machine.

    Return None where its libraries or its device are missing.
    """
    if not any(os.path.exists(device) for device in _DRIVER_DEVICES):
        return None
    cuda, nvml = _find_library("libcuda.so.1"), _find_library("libnvidia-ml.so.1")
    return Driver("nvidia", cuda, nvml) if cuda and nvml else None


def choose_driver(kind: str = "auto") -> Driver:
    """Return the NVIDIA driver where there is one, or else the software GPU. Raises PathError."""
    if kind not in ("auto", "nvidia", "softgpu"):
        raise PathError(f"The driver {kind!r} does not exist. Choose auto, nvidia or softgpu")
    if kind == "softgpu":
        return softgpu_driver()
    found = nvidia_driver()
    if found is None and kind == "nvidia":
        raise PathError(
            "Requested the NVIDIA driver, but this machine has no libcuda.so.1 and libnvidia-ml.so.1 "
            f"with one of {', '.join(_DRIVER_DEVICES)}. Install the driver, or use --driver softgpu"
        )
    return found or softgpu_driver()


def _find_library(name: str) -> Path | None:
    """Find a library in the loader's order.

    A libcuda for forward compatibility may come before the driver's own.
    """
    chosen = [Path(folder) / name for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    candidates = [Path(folder) / name for folder in _DRIVER_DIRS]
    for path in [*chosen, *_cached_libraries(name), *candidates]:
        if path.is_file() and not _is_ours(path.parent):
            return path
    return None


def _is_ours(folder: Path) -> bool:
    """Return whether the folder has a hook's libraries or our software GPU's.

    The hook's may be those of another installation. No driver is in such a folder.
    """
    ours = (shim_dir().resolve(), (native_dir() / "softgpu").resolve())
    return folder.resolve() in ours or (folder / _PRELOAD_LIBRARY).exists()


def _cached_libraries(name: str) -> list[Path]:
    """Return the paths of ``name`` in the loader's cache, for this machine's architecture."""
    for tool in ("/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"):
        try:
            listing = subprocess.run([tool, "-p"], capture_output=True, text=True, timeout=10, check=False).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        lines = (line.strip() for line in listing.splitlines())
        found = [line.split(" => ") for line in lines if line.startswith(f"{name} ") and " => " in line]
        tag = {"x86_64": "x86-64", "aarch64": "AArch64"}.get(platform.machine(), "")
        return [Path(path) for label, path in found if tag in label]
    return []

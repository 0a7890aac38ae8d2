"""Checks of this machine: versions, folders, libraries, sockets and their owners.

They change nothing.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from jupyter_aliquot.gateway.base.sockets import peer_words
from jupyter_aliquot.gateway.base.version import installed_version
from jupyter_aliquot.gateway.terminal.gateway_tables import lowered_by_teams, overcommit_lines
from jupyter_aliquot.gateway.terminal.rest_client import GatewayRefusal, NoGatewayHere, OwnGateway
from jupyter_aliquot.gpu_hook.client.client import AgentClientError, query
from jupyter_aliquot.gpu_hook.paths import (
    PathError,
    RuntimeDir,
    check_runtime_dir,
    find_door,
    find_runtime_dir,
    native_dir,
    nvidia_driver,
    softgpu_driver,
    unusable_hook_files,
)
from jupyter_aliquot.gpu_hook.sandbox import GVISOR, is_gvisor
from jupyter_aliquot.provisioner.listener import account_name
from jupyter_aliquot.provisioner.resources import Bytes

from .runner import FAIL, OK, WARN, Finding

_NEEDED = ("jupyter-server", "jupyter-client", "ipykernel", "nvidia-ml-py", "traitlets", "tornado")
_EXTRAS = ("jupyterlab", "nbclient", "cuda-bindings", "cuda-core")
_LEAST_SHARED_BYTES = 16 << 20
_DRIVER_VERSION_FILE = Path("/proc/driver/nvidia/version")
_STATUS_SECONDS = 5.0


def check_versions() -> list[Finding]:
    """Check the versions of Aliquot, Python and the packages that it needs."""
    versions = {name: _version(name) for name in (*_NEEDED, *_EXTRAS)}
    known = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    findings = [
        Finding("aliquot", OK, f"{installed_version()} on Python {platform.python_version()}, {platform.machine()}"),
        Finding("packages", OK, known),
    ]
    for name, version in versions.items():
        if version is None and name in _EXTRAS:
            remedy = f"pip install {name} if you want it"
            findings.append(Finding("packages", WARN, f"{name} is not installed", remedy))
        elif version is None:
            findings.append(Finding("packages", FAIL, f"{name} is not installed", f"pip install {name}"))
    return findings


def check_runtime_folder(environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """Check the folder of the agent's sockets, and name the reason for it."""
    runtime = find_runtime_dir(environ)
    try:
        check_runtime_dir(runtime)
    except PathError as error:
        return [Finding("runtime folder", FAIL, str(error))]
    if environ.get("ALIQUOT_RUNTIME_DIR"):
        reason = "ALIQUOT_RUNTIME_DIR names it"
    elif runtime.path == Path("/run/aliquot"):
        reason = "an agent's socket is there" if runtime.agent_socket.exists() else "we are root, and /run is writable"
    elif runtime.path.name == "aliquot":
        reason = "XDG_RUNTIME_DIR names the folder above it"
    else:
        reason = "no other place was found"
    state = "" if runtime.path.exists() else "; not made yet"
    return [Finding("runtime folder", OK, f"{runtime.path} ({reason}){state}")]


def check_driver() -> list[Finding]:
    """Check the NVIDIA driver and its path; without one kernels get the software GPU."""
    findings = []
    if is_gvisor():
        findings.append(Finding("kernel", FAIL, GVISOR, "use another container runtime, or a machine"))
    driver = nvidia_driver()
    if driver is None:
        found = "no NVIDIA driver here: kernels get the software GPU, on which compiled GPU code is timed, not executed"
        remedy = "for a real GPU install NVIDIA's driver for CUDA 12.4 or newer"
        return [*findings, Finding("driver", WARN, found, remedy)]
    version = ""
    if _DRIVER_VERSION_FILE.exists():
        version = f"; {_DRIVER_VERSION_FILE.read_text().splitlines()[0]}"
    return [*findings, Finding("driver", OK, f"NVIDIA: {driver.cuda}, {driver.nvml}{version}")]


def check_native_libraries() -> list[Finding]:
    """Check the libraries of Aliquot: the hook and the software GPU."""
    missing = ", ".join(map(str, unusable_hook_files(native_dir())))
    findings = [Finding("hook", OK, f"libraries in {native_dir() / 'shim'}")]
    if missing:
        findings = [Finding("hook", FAIL, f"missing or not readable: {missing}", "install again: pip install .")]
    try:
        findings.append(Finding("software GPU", OK, f"libraries in {softgpu_driver().cuda.parent}"))
    except PathError as error:
        findings.append(Finding("software GPU", FAIL, str(error)))
    return findings


def check_agent() -> list[Finding]:
    """Check the node agent of the runtime folder, and name its user."""
    path = find_runtime_dir().agent_socket
    if not os.path.exists(path):  # a folder that this account may not enter has none for it
        if (door := find_door()) is not None:
            return [Finding("node agent", OK, f"none of this account runs; it needs none beside {door.path}")]
        return [Finding("node agent", OK, f"none runs ({path}); aliquot lab, serve and agent start one")]
    try:
        query("hello", seconds=3, version=1, name="aliquot doctor")
        status = query("status", seconds=3)
    except AgentClientError as error:
        return [_unanswered("node agent", path, str(error))]
    found = f"{peer_words(path)}, driver {status.get('driver')}, {len(status.get('kernels', []))} kernels, at {path}"
    findings = [Finding("node agent", OK, found)]
    if problem := status.get("driver_problem"):
        remedy = "see nvidia-smi, and restart the agent once the driver answers there"
        findings.append(Finding("devices", FAIL, f"the node agent counts them as lost: {problem}", remedy))
    if problem := status.get("hook_problem"):  # of the agent's libraries, which may be a copy
        findings.append(Finding("hook", FAIL, f"the node agent says: {problem}", "do so, and run aliquot doctor again"))
    return findings


def check_gateway() -> list[Finding]:
    """Check the gateway that owns this node's queue, and name its user."""
    path = find_runtime_dir().gateway_socket
    if not os.path.exists(path):  # a folder that this account may not enter has none for it
        if (door := find_door()) is not None:
            return [_of_the_machine(door)]
        found = f"none runs ({path}); kernels started outside of one ask the node agent"
        return [Finding("gateway", OK, found)]
    peer = peer_words(path)
    if not peer:
        return [_unanswered("gateway", path, "no gateway answers")]
    running = Finding("gateway", OK, f"{peer}, at {path}")
    try:
        status = OwnGateway.find(find_runtime_dir()).ask("status", seconds=_STATUS_SECONDS)
        told, lines = status["node"]["message"], overcommit_lines(lowered_by_teams(status["devices"]))
    except (NoGatewayHere, GatewayRefusal, KeyError, TypeError):
        return [running]  # another user's, or one with users: its own status tells
    lowered = [Finding("gateway", OK, line) for line in lines]
    # Without these variables it is the gateway whose messages are a check of their own.
    is_other = bool(OwnGateway.elsewhere(os.environ))
    says = [Finding("gateway", WARN, f"it says: {told}", "do what each line says")] if told and is_other else []
    return [running, *says, *lowered]


def _of_the_machine(door: RuntimeDir) -> Finding:
    """Find the gateway of another account, which starts this account's kernels with a GPU size."""
    if peer := peer_words(door.gateway_socket):
        return Finding("gateway", OK, f"the machine's: {peer}, at {door.gateway_socket}")
    remedy = "ask the administrator, who sees more by: aliquot doctor --hub"
    return Finding("gateway", WARN, f"the machine's does not answer at {door.gateway_socket}", remedy)


def check_shared_memory() -> list[Finding]:
    """Check the space in /dev/shm, which holds the software GPU's state."""
    try:
        free = Bytes(shutil.disk_usage("/dev/shm").free)
    except OSError as error:
        return [Finding("shared memory", FAIL, f"/dev/shm cannot be used: {error.strerror}", "mount a tmpfs there")]
    if free < _LEAST_SHARED_BYTES:
        remedy = "remove what is not needed there, or give the container more (docker run --shm-size=256m)"
        return [Finding("shared memory", FAIL, f"only {free} are free in /dev/shm", remedy)]
    return [Finding("shared memory", OK, f"{free} free in /dev/shm")]


def check_container_engine(environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """Check for Docker or Podman. Without an engine kernels are processes."""
    programs = [program for name in ("docker", "podman") if (program := shutil.which(name))]
    sockets = [path for path in _engine_sockets(environ) if _answers(path)]
    if sockets:
        return [Finding("container engine", OK, f"answers at {', '.join(map(str, sockets))}")]
    if programs:
        remedy = "start its service if you want it; kernels run as processes without it"
        return [Finding("container engine", WARN, f"{', '.join(programs)}, but no engine answers", remedy)]
    return [Finding("container engine", OK, "none found, and none is needed: kernels run as processes")]


def _engine_sockets(environ: Mapping[str, str]) -> list[Path]:
    paths = [Path("/run/docker.sock"), Path("/run/podman/podman.sock")]
    if session := environ.get("XDG_RUNTIME_DIR"):
        paths += [Path(session) / "docker.sock", Path(session) / "podman" / "podman.sock"]
    if (host := environ.get("DOCKER_HOST", "")).startswith("unix://"):
        paths.insert(0, Path(host.removeprefix("unix://")))
    return paths


def _unanswered(about: str, path: Path, reason: str) -> Finding:
    owner = path.lstat().st_uid
    if owner != os.geteuid():
        remedy = f"ask {account_name(owner)}, whose socket it is, or set ALIQUOT_RUNTIME_DIR to a folder of your own"
        return Finding(about, FAIL, reason, remedy)
    return Finding(about, WARN, f"a stale socket: {reason}", f"the next start replaces it; or: rm {path}")


def _answers(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(2)
            connection.connect(os.fspath(path))
    except OSError:
        return False
    return True


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None

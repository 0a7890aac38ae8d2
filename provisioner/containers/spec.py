"""Build an engine's "create" request from a launch, its plan, the image and the node's devices.

The result is the body of the Docker Engine API's "create", hardened unless the plan says otherwise.
Pure: this module asks no engine.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jupyter_aliquot.provisioner.errors import LaunchError
from jupyter_aliquot.provisioner.framework_defaults import with_framework_defaults
from jupyter_aliquot.provisioner.launch_spec import KERNEL_ID_VARIABLE, add_grant, add_own_driver
from jupyter_aliquot.provisioner.resources import Grant

from .cdi import Edits
from .plan import LABEL_PREFIX, ContainerPlan, Mount

KERNEL_LABEL = f"{LABEL_PREFIX}kernel-id"
GATEWAY_LABEL = f"{LABEL_PREFIX}gateway"
OWNER_LABEL = f"{LABEL_PREFIX}owner"
KERNELSPEC_LABEL = f"{LABEL_PREFIX}kernelspec"
GLIBC_LABEL = f"{LABEL_PREFIX}glibc"  # a label of an image: the version of its C library, such as 2.36
CUDA_COMPAT_LABEL = f"{LABEL_PREFIX}cuda-compat"  # the folder of its own libcuda, for forward compatibility
RUNTIME_DIR_LABEL = f"{LABEL_PREFIX}runtime-dir"

_CHEAP_AUDIT = (2, 35)
_NO_HOME = "/home/kernel"
# PyTorch and Numba compile programs there and run them. So not noexec, the engines' default.
_TMPFS = "rw,exec,nosuid,nodev,mode=1777"
_LOG_BYTES = "1m"


@dataclass(frozen=True)
class ImageFacts:
    """The properties of an image. ``glibc`` and ``cuda_compat``: its labels' values, empty without them."""

    env: tuple[tuple[str, str], ...] = ()
    entrypoint: tuple[str, ...] = ()
    glibc: str = ""
    cuda_compat: str = ""

    @property
    def compat_folder(self) -> str:
        """Return the folder of the image's own libcuda; empty without a label, and for one that is no path."""
        return self.cuda_compat if self.cuda_compat.startswith("/") and ":" not in self.cuda_compat else ""

    @property
    def may_audit(self) -> bool:
        """Tell whether an audit library costs nothing in this image.

        With an older glibc, an audit library slows every call between libraries.
        """
        try:
            major, minor = (int(part) for part in self.glibc.split(".")[:2])
        except ValueError:
            return False
        return (major, minor) >= _CHEAP_AUDIT


@dataclass(frozen=True)
class Devices:
    """The kernel's devices and the hook.

    They come in by CDI names for the engine, or by our own edits from the same specs.
    """

    cdi_names: tuple[str, ...] = ()
    edits: Edits = field(default_factory=Edits)


@dataclass(frozen=True)
class ContainerLaunch:
    """The parts of a launch that a container needs.

    ``cwd`` is the host's folder. ``inherited`` is the gateway's own environment, of which nothing
    gets in. ``folder`` is the part of the relay's folder that the kernel sees. ``user`` is the
    result of container_user.
    """

    kernel_id: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    program: str
    cwd: str | None = None
    inherited: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    user: str = ""


@dataclass(frozen=True)
class ContainerSpec:
    """The request to an engine, as a value. ``body`` is its API's; ``name`` belongs to one kernel.

    Engines silently drop fields that they do not know. So the started container must hold
    ``hook_program`` (empty: no hook), and with ``maps_users`` its users must be others on the host.
    """

    kernel_id: str
    name: str
    image: str
    body: Mapping[str, Any]
    hook_program: str = ""
    maps_users: bool = False


def container_spec(
    launch: ContainerLaunch, plan: ContainerPlan, image: ImageFacts, grant: Grant | None, devices: Devices
) -> ContainerSpec:
    """Return the request for the container of one kernel."""
    mounts = _mounts(launch, plan, grant, devices)
    home = plan.home or _NO_HOME
    body = {
        "Image": plan.image,
        "Entrypoint": [],
        "Cmd": list(command_line(launch.argv, launch.program, grant)),
        "Env": [f"{name}={value}" for name, value in sorted(_env(launch, plan, image, grant, devices, home).items())],
        "WorkingDir": _workdir(launch.cwd, plan, home),
        "Labels": {**dict(plan.labels), **launch.labels, KERNEL_LABEL: launch.kernel_id},
        "NetworkDisabled": plan.network == "none",
        "HostConfig": {
            **_hardening(plan),
            **_limits(plan),
            "Mounts": [_bind(mount) for mount in mounts],
            "Tmpfs": {path: _TMPFS for path in _tmpfs(plan, mounts, home)},
            "Devices": list(devices.edits.devices),
            "DeviceRequests": _device_requests(devices),
        },
    }
    if launch.user:
        body["User"] = launch.user
    return ContainerSpec(
        launch.kernel_id,
        container_name(launch.kernel_id),
        plan.image,
        body,
        hook_program=start_program(grant) or "" if grant is not None else "",
        maps_users=plan.userns not in ("", "host"),
    )


def container_name(kernel_id: str) -> str:
    return f"aliquot-{kernel_id}"


def container_user(asked: str, own: tuple[int, int], is_rootless: bool) -> str:
    """Return the user that the kernel runs as; empty for the image's own user.

    ``own`` is the gateway's user and group. A relay that does not run as root opens only the
    sockets of its own user; an engine without root maps that user to root. Raises LaunchError.
    """
    if own[0] == 0:
        return asked
    reachable = "0:0" if is_rootless else f"{own[0]}:{own[1]}"
    if asked and asked.partition(":")[0] != reachable.partition(":")[0]:
        raise LaunchError(
            f"Requested a container of user {asked}, but this gateway is user {own[0]}, whose relays "
            "cannot reach a kernel of another user. Leave the image's user empty or write "
            f"{reachable!r}, or run the gateway as root"
        )
    return asked or reachable


def start_program(grant: Grant) -> str | None:
    """Return the self-check program beside the hook's libraries that the grant names.

    The agent published both.
    """
    for name, value in grant.env:
        if name.startswith("LD_LIBRARY_PATH"):
            return posixpath.join(posixpath.dirname(value), "bin", "aliquot-kernel-start")
    return None


def command_line(argv: tuple[str, ...], program: str, grant: Grant | None) -> tuple[str, ...]:
    """Return the kernel's command line, with the node's self-check program in the place of the gateway's.

    What the gateway put before the kernel's *program* belongs to its machine. A kernelspec of an image names
    its program by a path, because Jupyter replaces a bare ``python3`` with the gateway's own.
    """
    words = argv[argv.index(program) :] if program in argv else argv
    first = None if grant is None else start_program(grant)
    return words if first is None else (first, *words)


def _env(
    launch: ContainerLaunch,
    plan: ContainerPlan,
    image: ImageFacts,
    grant: Grant | None,
    devices: Devices,
    home: str,
) -> dict[str, str]:
    """Return the environment; later sources win.

    Their order is: defaults for frameworks, the image, the kernel, the plan, the devices, the grant.
    """
    own = {name: value for name, value in launch.env if launch.inherited.get(name) != value}
    for name, _ in () if grant is None else grant.env:
        own.pop(name.removesuffix("_PREPEND"), None)  # the gateway's machine set it
    env = {**dict(image.env), "HOME": home, **own, **dict(plan.env), **dict(devices.edits.env)}
    if grant is not None:
        env = add_grant(with_framework_defaults(env), grant if image.may_audit else _without_audit(grant))
        env = add_own_driver(env, grant, plan.cuda_compat or image.compat_folder)
    return {**env, KERNEL_ID_VARIABLE: launch.kernel_id}


def _without_audit(grant: Grant) -> Grant:
    """Return the grant without LD_AUDIT, which the agent decided by its own glibc.

    The self-check then reports that absolute paths are not covered.
    """
    return replace(grant, env=tuple((name, value) for name, value in grant.env if not name.startswith("LD_AUDIT")))


def _workdir(cwd: str | None, plan: ContainerPlan, home: str) -> str:
    """Return the notebook's folder in the container.

    Without a mount of it, return the home folder.
    """
    if plan.workdir:
        return plan.workdir
    for mount in sorted(plan.mounts, key=lambda mount: len(mount.source), reverse=True):
        if cwd is not None and (cwd == mount.source or cwd.startswith(mount.source.rstrip("/") + "/")):
            return posixpath.normpath(posixpath.join(mount.target, os.path.relpath(cwd, mount.source)))
    return home


def _mounts(launch: ContainerLaunch, plan: ContainerPlan, grant: Grant | None, devices: Devices) -> tuple[Mount, ...]:
    """Return the mounts, those within another one after it.

    The kernel sees only its own folder of the agent, at the path that its environment names. Raises
    LaunchError.
    """
    mounts = [*devices.edits.mounts]
    if launch.folder:
        mounts.append(Mount(launch.folder, launch.folder, read_only=False))
    if grant is not None:
        # Programs can connect to a socket through a read-only mount.
        mounts.append(Mount(grant.kernel_dir, grant.kernel_dir))
    for mount in plan.mounts:
        _check_covers_nothing(mount, mounts)
    mounts += plan.mounts
    # A mount within another one comes after it.
    return tuple(sorted(dict.fromkeys(mounts), key=lambda mount: (mount.target.count("/"), mount.target)))


def _check_covers_nothing(mount: Mount, own: Iterable[Mount]) -> None:
    """Check that a user's mount neither replaces nor surrounds a folder of the container's own.

    A folder of a user over the hook would take its place, and the engine would make its own folders
    in one around it. A mount at the same path as on the host has them already. Raises LaunchError.
    """
    for other in own:
        lies_within = f"{mount.target}/".startswith(f"{other.target}/") or f"{other.target}/".startswith(
            f"{mount.target}/"
        )
        if lies_within and mount.source != mount.target:
            raise LaunchError(
                f"Requested to mount {mount.source!r} at {mount.target!r}, but the container needs "
                f"{other.target!r} there for itself. Choose another target"
            )


def _bind(mount: Mount) -> dict[str, Any]:
    # "Mounts" and not "Binds": for a missing source, engines make a folder of root's with "Binds".
    options: dict[str, Any] = {"Propagation": "rprivate"}
    if mount.identity is not None:
        # The gateway did not check what else is mounted below a shared folder, and not every engine
        # makes it read-only.
        options["NonRecursive"] = True
    return {
        "Type": "bind",
        "Source": mount.source,
        "Target": mount.target,
        "ReadOnly": mount.read_only,
        "BindOptions": options,
    }


def _tmpfs(plan: ContainerPlan, mounts: Iterable[Mount], home: str) -> tuple[str, ...]:
    """Return the folders that programs expect to write to when the root is read-only."""
    has_home = any(home == mount.target or home.startswith(f"{mount.target}/") for mount in mounts)
    return ("/run", "/tmp") if has_home else ("/run", "/tmp", home)


def _hardening(plan: ContainerPlan) -> dict[str, Any]:
    """Return the hardening.

    The default seccomp profile is the engine's: no option turns it off here.
    """
    return {
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "ReadonlyRootfs": plan.read_only_root,
        "NetworkMode": plan.network,
        "UsernsMode": plan.userns,
        "GroupAdd": [str(group) for group in plan.groups],
        "IpcMode": "private",
        # The init process passes signals to the kernel, and reaps the kernel's grandchildren.
        "Init": True,
        "Privileged": False,
        "RestartPolicy": {"Name": "no"},
        "LogConfig": {"Type": "json-file", "Config": {"max-size": _LOG_BYTES}},
    }


def _limits(plan: ContainerPlan) -> dict[str, Any]:
    limits = plan.limits
    result: dict[str, Any] = {}
    if limits.memory is not None:
        # Equal values mean no swap: the system ends a kernel over its limit, and the node does not
        # slow down.
        result |= {"Memory": int(limits.memory), "MemorySwap": int(limits.memory)}
    if limits.cpus is not None:
        result["NanoCpus"] = round(limits.cpus * 1e9)
    if limits.pids is not None:
        result["PidsLimit"] = limits.pids
    if limits.shm is not None:
        result["ShmSize"] = int(limits.shm)
    return result


def _device_requests(devices: Devices) -> list[dict[str, Any]]:
    if not devices.cdi_names:
        return []
    return [{"Driver": "cdi", "DeviceIDs": list(devices.cdi_names)}]

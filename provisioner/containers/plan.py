"""The gateway's decisions about a kernel's container: image, mounts, user, network, limits.

The values are frozen and checked. This module knows neither engine nor grant: `spec` joins the plan
with them, and the container runtime acts.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field, replace
from enum import Enum

from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.resources import Bytes

LABEL_PREFIX = "aliquot.dev/"
# One past the largest uid and gid: -1 means "leave as it is" to Linux's system calls.
_MAX_ID = (1 << 32) - 1
_USER = re.compile(r"(\d{1,10}):(\d{1,10})", re.ASCII)
_USERNS = re.compile(r"host|auto|keep-id|private|")
_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_IMAGE = re.compile(r"[A-Za-z0-9][\w.:/@-]{0,511}", re.ASCII)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The engines' own names for networks of other containers and of the host: a kernel never gets one.
_SHARED_NETWORKS = ("host", "container", "ns")
# The system's folders in a container: a mount over one would hide the image, or the engine's own
# parts.
_TAKEN_TARGETS = frozenset(("/", "/proc", "/sys", "/dev", "/etc", "/run", "/tmp"))
# Engines refuse less than 6 MiB; Python and ipykernel alone take about 60.
SMALLEST_MEMORY = Bytes(64 << 20)
_SMALLEST_CPUS = 0.01
_SMALLEST_PIDS = 16
# Engines read 64 bits with a sign, and CPUs in billionths; Linux has no more pids.
_LARGEST_MEMORY = Bytes(1 << 62)
_LARGEST_CPUS = 100_000.0
_LARGEST_PIDS = 1 << 22


class Pull(str, Enum):
    """The policy by which an engine fetches an image from its registry."""

    MISSING = "missing"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True)
class FolderIdentity:
    """The identity of a folder, whatever path leads to it.

    No other folder has the same identity as long as this one exists.
    """

    device: int
    inode: int


@dataclass(frozen=True)
class Mount:
    """A folder or file of the host, and its path in the container. Absolute paths without ``..``.

    ``identity`` is what lay at the source when the gateway checked it; mount_check compares it with
    what the engine mounted. A kernel starts without a mount that ``is_optional`` and whose folder
    went or was replaced since: it is another user's.
    """

    source: str
    target: str
    read_only: bool = True
    identity: FolderIdentity | None = None
    is_optional: bool = False

    def __post_init__(self) -> None:
        for what, path in (("source", self.source), ("target", self.target)):
            if not path.startswith("/") or posixpath.normpath(path) != path or ":" in path or _is_odd(path):
                raise RequestError(
                    f"Requested to mount {self.source!r} at {self.target!r}, but the {what} is not a plain "
                    "absolute path. Write it from / on, without .., //, a colon or a control character"
                )
        if self.target in _TAKEN_TARGETS:
            raise RequestError(
                f"Requested to mount {self.source!r} at {self.target!r}, but the container needs that "
                "folder itself. Choose one below it, or another such as /home or /data"
            )


@dataclass(frozen=True)
class ContainerLimits:
    """The most that one kernel may take of its host. None: no limit of that kind."""

    memory: Bytes | None = None
    cpus: float | None = None
    pids: int | None = 1024
    shm: Bytes | None = None

    def __post_init__(self) -> None:
        checks = (
            ("memory", self.memory, SMALLEST_MEMORY, _LARGEST_MEMORY),
            ("CPUs", self.cpus, _SMALLEST_CPUS, _LARGEST_CPUS),
            ("processes", self.pids, _SMALLEST_PIDS, _LARGEST_PIDS),
            ("shared memory", self.shm, Bytes(1 << 20), _LARGEST_MEMORY),
        )
        for what, asked, least, most in checks:
            if asked is not None and asked < least:
                raise RequestError(
                    f"Requested a limit of {asked} {what} for a kernel's container, but a kernel needs "
                    f"{least} or more. Use a larger one"
                )
            if asked is not None and asked > most:
                raise RequestError(
                    f"Requested a limit of {asked} {what} for a kernel's container, but engines take {most} "
                    "at most. Use a smaller one"
                )


@dataclass(frozen=True)
class ContainerPlan:
    """One kernel's container.

    ``user`` is ``uid:gid``, empty for the image's own; ``groups`` are further groups of that user.
    ``userns`` is empty for the engine's.
    ``env`` also holds what the kernelspec sets: a container gets nothing of the gateway's own
    environment. ``cuda_compat`` is the folder of the image's own libcuda, for a newer CUDA than the
    node's driver supports; empty: the image's label.
    """

    image: str
    pull: Pull = Pull.MISSING
    mounts: tuple[Mount, ...] = ()
    user: str = ""
    userns: str = ""
    network: str = "none"
    env: tuple[tuple[str, str], ...] = ()
    limits: ContainerLimits = field(default_factory=ContainerLimits)
    read_only_root: bool = True
    home: str = ""
    workdir: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    groups: tuple[int, ...] = ()
    cuda_compat: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pull", _pull(self.pull))
        _check_image(self.image)
        _check_user(self.user, self.userns)
        _check_network(self.network)
        _check_mounts(self.mounts)
        for what, path in (("home", self.home), ("workdir", self.workdir), ("cuda_compat", self.cuda_compat)):
            if path and (not path.startswith("/") or posixpath.normpath(path) != path or _is_odd(path)):
                raise RequestError(
                    f"The {what} {path!r} of a container is not a plain absolute path. Write it from / on"
                )
        if ":" in self.cuda_compat:
            raise RequestError(f"The cuda_compat {self.cuda_compat!r} is not one folder. Write one, without a colon")
        for name, _ in self.env:
            if not _ENV_NAME.fullmatch(name):
                raise RequestError(f"The environment variable {name!r} has no valid name. Use letters, digits and _")
        for name, _ in self.labels:
            if name.startswith(LABEL_PREFIX):
                raise RequestError(
                    f"The label {name!r} is reserved: Aliquot writes {LABEL_PREFIX}… itself. Choose another name"
                )

    def without_optional(self) -> ContainerPlan:
        """Return the plan with the mounts that its kernel needs, and a working folder that is not in another."""
        kept = tuple(mount for mount in self.mounts if not mount.is_optional)
        left = [mount.target for mount in self.mounts if mount.is_optional]
        is_lost = any(f"{self.workdir}/".startswith(f"{target}/") for target in left)
        return replace(self, mounts=kept, workdir="" if is_lost else self.workdir)


def _pull(value: Pull | str) -> Pull:
    try:
        return Pull(value)
    except ValueError:
        choices = ", ".join(pull.value for pull in Pull)
        raise RequestError(f"The pull policy {value!r} does not exist. Choose one of {choices}") from None


def _check_image(image: str) -> None:
    if not _IMAGE.fullmatch(image):
        raise RequestError(f"{image!r} is not the name of an image. Write it like registry.example/team/pytorch:2.11")


def _check_user(user: str, userns: str) -> None:
    match = _USER.fullmatch(user)
    if user and (match is None or max(map(int, match.groups())) >= _MAX_ID):
        raise RequestError(f"The user {user!r} of a container is not uid:gid. Use two numbers such as 1000:1000")
    if not _USERNS.fullmatch(userns):
        raise RequestError(
            f"The user namespace {userns!r} does not exist. Choose host, auto, keep-id, private, or "
            "nothing for the engine's own"
        )


def _check_network(network: str) -> None:
    if not _NETWORK.fullmatch(network) or network in _SHARED_NETWORKS:
        raise RequestError(
            f"The network {network!r} cannot be a kernel's: it is shared, or is not the name of a "
            "network. Choose none, bridge, or the name of a network that was made for kernels"
        )


def _check_mounts(mounts: tuple[Mount, ...]) -> None:
    by_target: dict[str, Mount] = {}
    for mount in mounts:
        other = by_target.setdefault(mount.target, mount)
        if other != mount:
            raise RequestError(
                f"Requested to mount {mount.source!r} and {other.source!r} at {mount.target!r}, but one "
                "place holds one folder. Give each its own"
            )


def _is_odd(text: str) -> bool:
    return any(ord(letter) < 32 or ord(letter) == 127 for letter in text)

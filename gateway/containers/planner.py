"""From a start in an image of the catalogue to the ContainerPlan that goes down. Starts nothing.

Whatever reaches a kernel's environment passes here: the request's own variables by an allow-list, none of the server's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.folders.registry import Folders, working_folder
from jupyter_aliquot.gateway.folders.rules import seen_inside
from jupyter_aliquot.gateway.sizes.grammar import parse_plain_name, parse_size_name
from jupyter_aliquot.provisioner.containers.limits import LimitRules, NodeTotals, limits_for
from jupyter_aliquot.provisioner.containers.plan import ContainerLimits, ContainerPlan, Mount
from jupyter_aliquot.provisioner.errors import LaunchError, SizeNameError
from jupyter_aliquot.provisioner.resources import GpuShare

from .environment import allowed_env
from .images import CatalogueImage, ImageCatalogue

# Among a kernel's start arguments: the variables of the request that started it.
REQUEST_ENV = "request_env"
SESSION_VARIABLE = "JPY_SESSION_NAME"
# What Jupyter's gateway clients tell of where the notebook lies on their side.
WORKING_VARIABLE = "KERNEL_WORKING_DIR"


@dataclass(frozen=True)
class ContainerStart:
    """One start, or restart, as the gateway knows it. ``env`` is the request's own, before the allow-list."""

    kernel_name: str
    owner: str
    share: GpuShare | None = None
    folder: str = ""
    session: str = ""
    env: tuple[tuple[str, str], ...] = ()


class ContainerPlanner:
    """Makes the plans of one server. ``node`` is asked at each start: devices come and go."""

    def __init__(
        self,
        catalogue: ImageCatalogue,
        rules: LimitRules,
        node: Callable[[], NodeTotals],
        folders: Folders,
        user_named: Callable[[str], User],
    ) -> None:
        self._catalogue = catalogue
        self._rules = rules
        self._node = node
        self._folders = folders
        self._user_named = user_named

    @property
    def has_images(self) -> bool:
        """Whether there is any image to start kernels in."""
        return bool(self._catalogue.images)

    def wants(self, kernel_name: str) -> bool:
        """Whether kernels of this kernelspec run in a container."""
        return self._catalogue.find(base_of(kernel_name)) is not None

    def allowed_env(self, env: Mapping[str, str]) -> dict[str, str]:
        """What of a request's variables its kernel gets, and what is kept of them."""
        return allowed_env(env, self._catalogue.allowed_env)

    async def plan(self, start: ContainerStart) -> ContainerPlan | None:
        """The container of a kernel; None for one whose kernelspec is no image. Raises AliquotError."""
        image = self._catalogue.find(base_of(start.kernel_name))
        if image is None:
            return None
        # Off the loop: a home may lie on a network's disk.
        mounts = await asyncio.to_thread(self._folders.mounts_of, self._user_named(start.owner), image.container.user)
        env = {**dict(image.container.env), **self.allowed_env(dict(start.env))}
        if start.session:
            env[SESSION_VARIABLE] = session_inside(start.session, mounts)
        home = self._folders.settings.home_target if self._folders.settings.home else ""
        return replace(
            image.container,
            mounts=mounts,
            env=tuple(sorted(env.items())),
            limits=self._limits(image, start.share),
            home=home,
            workdir=await asyncio.to_thread(working_folder, _notebooks_folder(start), mounts, home),
        )

    def limits_of(self, kernel_name: str, share: GpuShare) -> ContainerLimits | None:
        """The limits of a running kernel with another share; None where it has no container. Raises RequestError."""
        image = self._catalogue.find(base_of(kernel_name))
        return None if image is None else self._limits(image, share)

    def _limits(self, image: CatalogueImage, share: GpuShare | None) -> ContainerLimits:
        return image_limits(image, limits_for(share, self._node(), self._rules))


def session_inside(session: str, mounts: Iterable[Mount]) -> str:
    """The notebook's path as its kernel sees it; its name alone where the kernel does not see it."""
    seen = seen_inside(session, [(mount.source, mount.target) for mount in mounts])
    return seen or os.path.basename(session)


def base_of(kernel_name: str) -> str:
    """The kernelspec that a name stands on: itself, if it is no size."""
    if (plain := parse_plain_name(kernel_name)) is not None:
        return plain
    try:
        sized = parse_size_name(kernel_name)
    except SizeNameError:
        return kernel_name
    return kernel_name if sized is None else sized.base


def image_limits(image: CatalogueImage, limits: ContainerLimits) -> ContainerLimits:
    """The limits of a share, with those that the image's entry sets itself in their place."""
    own = image.limits
    return ContainerLimits(
        memory=own.memory or limits.memory,
        cpus=own.cpus or limits.cpus,
        pids=own.pids or limits.pids,
        shm=own.shm or limits.shm,
    )


def _notebooks_folder(start: ContainerStart) -> str:
    """Where the notebook lies: as a client says it, whose own path may be that of a folder it shares with us."""
    folder = dict(start.env).get(WORKING_VARIABLE) or start.folder
    return folder if folder.startswith("/") and os.path.normpath(folder) == folder else ""


def refuse_without_planner(kernel_name: str, image: str) -> LaunchError:
    """Where no extension joined the parts: an image's kernel must not become a process of the server's account."""
    return LaunchError(
        f"asked {kernel_name!r}, a kernel in a container of {image}; found that this server starts no containers; "
        "load the extension jupyter_aliquot.gateway"
    )

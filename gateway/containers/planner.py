"""The plan of a kernel's container: from a start in an image of the catalogue to a ContainerPlan.

It starts nothing.

A kernel gets the variables of its request by an allow-list, and none of the server's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.folders.registry import Folders, working_folder
from jupyter_aliquot.gateway.folders.rules import lies_in, seen_inside
from jupyter_aliquot.gateway.sizes.grammar import base_of, carries_folder
from jupyter_aliquot.provisioner.accounts import Account
from jupyter_aliquot.provisioner.containers.limits import (
    LimitRules,
    NodeTotals,
    cpu_choice,
    limits_for,
    memory_choice,
)
from jupyter_aliquot.provisioner.containers.plan import ContainerLimits, ContainerPlan, Mount
from jupyter_aliquot.provisioner.errors import LaunchError
from jupyter_aliquot.provisioner.kernel_accounts import check_kernel_account
from jupyter_aliquot.provisioner.resources import NO_HOST_PART, GpuShare, HostPart

from .environment import allowed_env
from .host_choice import HostOffer
from .images import CatalogueImage, ImageCatalogue

# The variables of the request, among a kernel's start arguments.
REQUEST_ENV = "request_env"
SESSION_VARIABLE = "JPY_SESSION_NAME"
# The folder of the notebook on the client's side, as Jupyter's gateway clients send it.
WORKING_VARIABLE = "KERNEL_WORKING_DIR"


@dataclass(frozen=True)
class ContainerStart:
    """The gateway's facts of one start or restart.

    ``env`` is the request's own, before the allow-list.
    """

    kernel_name: str
    owner: str
    share: GpuShare | None = None
    host: HostPart = NO_HOST_PART
    folder: str = ""
    session: str = ""
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class _Identity:
    """The account of a kernel inside its container, as far as it is not the image's own."""

    user: str
    groups: tuple[int, ...]
    mounts: tuple[Mount, ...]
    home: str
    env: Mapping[str, str]


class ContainerPlanner:
    """The maker of the plans of one server.

    It calls *node* at each start, because devices come and go, and *account_named* for images whose
    kernels run as their owner's account, and *invited_mounts* for the folders that others share with
    the owner. *node* returns None where kernels run on other machines, whose CPUs and memory nothing
    here knows.
    """

    def __init__(
        self,
        catalogue: ImageCatalogue,
        rules: LimitRules,
        node: Callable[[], NodeTotals | None],
        folders: Folders,
        user_named: Callable[[str], User],
        account_named: Callable[[str], Account],
        invited_mounts: Callable[[User], tuple[Mount, ...]] = lambda _: (),
    ) -> None:
        self._catalogue = catalogue
        self._rules = rules
        self._node = node
        self._folders = folders
        self._user_named = user_named
        self._account_named = account_named
        self._invited_mounts = invited_mounts

    @property
    def has_images(self) -> bool:
        """Return whether the catalogue has an image."""
        return bool(self._catalogue.images)

    def wants(self, kernel_name: str) -> bool:
        """Return whether kernels of this kernelspec run in a container."""
        return self._catalogue.find(base_of(kernel_name)) is not None

    def allowed_env(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a request that its kernel gets, and that are kept."""
        return allowed_env(env, self._catalogue.allowed_env)

    async def plan(self, start: ContainerStart) -> ContainerPlan | None:
        """Plan the container of a kernel; None for one whose kernelspec is no image.

        Raises AliquotError.
        """
        image = self._catalogue.find(base_of(start.kernel_name))
        if image is None:
            return None
        # In a thread: a home may lie on a network disk.
        identity = await asyncio.to_thread(self._identity, image, start.owner)
        mounts, home = self._chosen(identity.mounts, start), identity.home
        env = {**dict(image.container.env), **self.allowed_env(dict(start.env)), **identity.env}
        if start.session:
            env[SESSION_VARIABLE] = session_inside(start.session, mounts)
        return replace(
            image.container,
            mounts=mounts,
            user=identity.user,
            groups=identity.groups,
            env=tuple(sorted(env.items())),
            limits=self._limits(image, start.share, start.host),
            home=home,
            workdir=await asyncio.to_thread(working_folder, _notebooks_folder(start), mounts, home),
        )

    def check_owner(self, kernel_name: str, owner: str) -> None:
        """Refuse a kernel as its owner's account for an owner without one. Raises AccountError."""
        image = self._catalogue.find(base_of(kernel_name))
        if image is not None and image.runs_as_owner:
            self._account_of(owner)

    def _identity(self, image: CatalogueImage, owner: str) -> _Identity:
        """Return user, home and folders of a kernel. Blocks. Raises AliquotError."""
        user, settings = self._user_named(owner), self._folders.settings
        if not image.runs_as_owner:
            mounts = self._folders.mounts_of(user, image.container.user)
            mounts += self._invited_mounts(user)
            return _Identity(image.container.user, (), mounts, settings.home_target if settings.home else "", {})
        account = self._account_of(owner)
        groups = tuple(sorted({*os.getgrouplist(account.name, account.gid)} - {account.gid}))
        mounts = self._folders.mounts_of_account(user, account, groups) + self._invited_mounts(user)
        names = {"USER": account.name, "LOGNAME": account.name}
        return _Identity(f"{account.uid}:{account.gid}", groups, mounts, mounts[0].target, names)

    def _chosen(self, mounts: tuple[Mount, ...], start: ContainerStart) -> tuple[Mount, ...]:
        """Return the mounts without the shared folders that the kernel's user did not choose.

        No kernelspec's name carries a folder of another user, so a choice leaves these out.
        """
        chosen, settings = start.host.folders, self._folders.settings
        if chosen is None:
            return mounts
        if settings.user_roots:  # without them an administrator's folder may lie at this target
            mounts = tuple(mount for mount in mounts if not lies_in(mount.target, settings.invited_target))
        shared = self._folders.of(self._user_named(start.owner))
        left_out = {folder.target for folder in shared if folder.name not in chosen}
        return tuple(mount for mount in mounts if mount.target not in left_out)

    def _account_of(self, owner: str) -> Account:
        """Return the account of a kernel's owner, if root's list of accounts allows it. Raises AccountError."""
        account = self._account_named(owner)
        if account.uid != os.geteuid():  # a gateway of one person starts that person's kernels
            check_kernel_account(account)
        return account

    def host_offer(self, kernel_name: str, share: GpuShare | None, who: User, why_no_process: str) -> HostOffer:
        """Return what a user may choose of the host for a kernel of this kernelspec and size.

        *why_no_process* says why kernels outside of containers have no limits; empty where they have.
        Raises RequestError.
        """
        image = self._catalogue.find(base_of(kernel_name))
        if image is None and why_no_process:
            return HostOffer(None, None, reason=why_no_process)
        folders = None if image is None else tuple(folder.name for folder in self._folders.of(who))
        return self._offer(image, share, None if folders is None else tuple(filter(carries_folder, folders)))

    def nearest_part(self, kernel_name: str, share: GpuShare, host: HostPart) -> HostPart:
        """Return the nearest part of the host that a kernel of this size may have; its folders stay."""
        return self._offer(self._catalogue.find(base_of(kernel_name)), share, host.folders).nearest(host)

    def _offer(
        self, image: CatalogueImage | None, share: GpuShare | None, folders: tuple[str, ...] | None
    ) -> HostOffer:
        node = self._node()
        cpus, memory = cpu_choice(share, node, self._rules), memory_choice(share, node, self._rules)
        if image is None:
            return HostOffer(cpus, memory, folders)
        own = image.limits  # they hold for every size
        return HostOffer(None if own.cpus else cpus, None if own.memory else memory, folders)

    def group_limits(self, share: GpuShare | None, host: HostPart = NO_HOST_PART) -> ContainerLimits:
        """Return the limits of a kernel that is its owner's process. Raises RequestError."""
        return limits_for(share, self._node(), self._rules, host)

    def limits_of(self, kernel_name: str, share: GpuShare, host: HostPart = NO_HOST_PART) -> ContainerLimits | None:
        """Return the limits of a running kernel with another share; None if it has no container.

        Raises RequestError.
        """
        image = self._catalogue.find(base_of(kernel_name))
        return None if image is None else self._limits(image, share, host)

    def _limits(self, image: CatalogueImage, share: GpuShare | None, host: HostPart) -> ContainerLimits:
        return image_limits(image, limits_for(share, self._node(), self._rules, host))


def session_inside(session: str, mounts: Iterable[Mount]) -> str:
    """Return the notebook's path inside the container, or its name alone if it is not there."""
    seen = seen_inside(session, [(mount.source, mount.target) for mount in mounts])
    return seen or os.path.basename(session)


def image_limits(image: CatalogueImage, limits: ContainerLimits) -> ContainerLimits:
    """Return the limits of a share, replaced by those that the image's entry sets."""
    own = image.limits
    return ContainerLimits(
        memory=own.memory or limits.memory,
        cpus=own.cpus or limits.cpus,
        pids=own.pids or limits.pids,
        shm=own.shm or limits.shm,
    )


def _notebooks_folder(start: ContainerStart) -> str:
    """Return the notebook's folder: the client's own, if it sent one.

    The client may share that folder with this machine.
    """
    folder = dict(start.env).get(WORKING_VARIABLE) or start.folder
    return folder if folder.startswith("/") and os.path.normpath(folder) == folder else ""


def refuse_without_planner(kernel_name: str, image: str) -> LaunchError:
    """Return the error of a server without the extension.

    An image's kernel must not become a process of its account.
    """
    return LaunchError(
        f"Requested {kernel_name!r}, a kernel in a container of {image}, but this server starts "
        "no containers. Load the extension jupyter_aliquot.gateway"
    )

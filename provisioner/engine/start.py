"""Start a container step by step, in a worker thread, and remove it when a step fails.

This module knows how each engine treats a wrong request. It decides nothing about what a container
is.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import requests
from docker import APIClient
from docker.errors import APIError, DockerException

from jupyter_aliquot.provisioner.containers.mount_check import ContainerNotVisible, check_mounts
from jupyter_aliquot.provisioner.containers.plan import ContainerPlan, Mount
from jupyter_aliquot.provisioner.containers.spec import KERNEL_LABEL, ContainerSpec
from jupyter_aliquot.provisioner.errors import EngineError, FolderError, InterceptionError, LaunchError

from .client import has_ended, inspect_container, refusal, remove_container

_LOG = logging.getLogger(__name__)
_LAST_LINES = 20
_SETTLE_SECONDS = 0.1
_WRITTEN_SECONDS = 2.0  # an engine records the end of a process within this time
_ALL_USERS = ["0", "0", str((1 << 32) - 1)]  # a uid_map in which each user is itself
_INIT_FAILURE = "failed to exec pid1:"  # catatonit's


def check_sources(plan: ContainerPlan) -> None:
    """Check that the mounts' sources exist: one engine's API would make the missing folders.

    Raises FolderError.
    """
    for mount in plan.mounts:
        try:
            os.lstat(mount.source)
        except (FileNotFoundError, NotADirectoryError):
            raise FolderError(
                f"Requested to mount {mount.source} at {mount.target} in a kernel's container, but there "
                "is no such folder or file. Create it, or remove it from the configuration"
            ) from None
        except OSError:
            continue  # this user may not look there: the engine will report it


def create_and_start(client: APIClient, spec: ContainerSpec, mounts: tuple[Mount, ...] = ()) -> dict[str, Any]:
    """Create and start a container, and remove it if it cannot be started. Runs in a worker thread.

    ``mounts`` with an identity must still be the checked folders, because the engine followed their
    paths only now. Raises AliquotError.
    """
    try:
        return _create_and_start(client, spec, mounts)
    except APIError as error:
        words = refusal(error)
        if spec.hook_program and spec.hook_program in words:
            raise _no_hook(spec) from error
        if any(mount.is_optional and mount.source in words for mount in mounts):
            raise FolderError(f"Requested folders in a container, but the engine refused one: {words}") from error
        raise LaunchError(f"Requested a container of {spec.image}, but the engine refused: {words}") from error


def _create_and_start(client: APIClient, spec: ContainerSpec, mounts: tuple[Mount, ...]) -> dict[str, Any]:
    try:
        container = _create(client, spec)
    except requests.RequestException:
        _remove_made(client, spec)
        raise
    try:
        client.start(container)
        return _checked(client, container, spec, mounts)
    except BaseException:
        with _best_effort(spec):
            remove_container(client, container)
        raise


def _checked(client: APIClient, container: str, spec: ContainerSpec, mounts: tuple[Mount, ...]) -> dict[str, Any]:
    """Return the engine's description of the started container, once it is as requested."""
    deadline = time.monotonic() + _WRITTEN_SECONDS
    while True:
        found = _look(client, container)
        if found is None:
            raise EngineError(
                f"Requested the container {spec.name}, but it was removed while it started. Start the kernel again"
            )
        if has_ended(found["State"]["Status"]):
            if found["State"]["ExitCode"] != 0:
                raise _ended_at_once(client, found, spec)
            return found  # it did its work: its ending says so
        try:
            _check_what_engines_drop(found, spec)
        except ProcessLookupError:
            if time.monotonic() < deadline:
                continue
        _compare(found, mounts)
        return found


def _look(client: APIClient, container: str) -> dict[str, Any] | None:
    """Return the engine's description of a container after its start.

    A process that is not visible has ended, which the engine records a moment later, or is in
    another pid namespace than ours.
    """
    found = inspect_container(client, container)
    if found is not None and found["State"]["Pid"] and not is_in(found["State"]["Pid"], container):
        time.sleep(_SETTLE_SECONDS)
        found = inspect_container(client, container)
    return found


def _remove_made(client: APIClient, spec: ContainerSpec) -> None:
    """Remove a container that the engine may have made although it did not answer.

    If this does not find it, the kernel's next start removes it by its name, or the next gateway by
    its labels.
    """
    with _best_effort(spec):
        found = inspect_container(client, spec.name)
        if found is not None and _is_of(found, spec) and found["State"]["Status"] == "created":
            remove_container(client, found["Id"])


@contextmanager
def _best_effort(spec: ContainerSpec) -> Iterator[None]:
    """Log a failure to remove, so that the caller gets the reason why the start failed."""
    try:
        yield
    except (DockerException, requests.RequestException) as error:
        _LOG.warning("container=%s removed=no reason=%s", spec.name, error)


def _ended_at_once(client: APIClient, found: Mapping[str, Any], spec: ContainerSpec) -> LaunchError:
    words = last_words(client, found).strip()
    if spec.hook_program and spec.hook_program in words and "No such file" in words:
        return _no_hook(spec)
    return LaunchError(
        f"Started {' '.join(spec.body['Cmd'])!r} in {spec.image}, but it ended at once with exit "
        f"code {found['State']['ExitCode']}: {words or 'it printed nothing'}"
    )


def _create(client: APIClient, spec: ContainerSpec) -> str:
    """Create a container, after removing one that an earlier start of this kernel left by its name.

    Raises APIError, LaunchError.
    """
    try:
        return ask_to_create(client, dict(spec.body), spec.name)
    except APIError as error:
        left = inspect_container(client, spec.name)
        if left is None:
            raise
        # Its gateway may have been killed before it could start it.
        is_idle = left["State"]["Status"] == "created" or has_ended(left["State"]["Status"])
        if not _is_of(left, spec) or not is_idle:
            raise LaunchError(
                f"Requested a container named {spec.name}, but one that is not Aliquot's, or still runs, "
                f"has this name ({left['Id'][:12]}, {left['State']['Status']}). Remove it, or start "
                "another kernel"
            ) from error
    remove_container(client, left["Id"])
    return ask_to_create(client, dict(spec.body), spec.name)


def ask_to_create(client: APIClient, body: dict[str, Any], name: str) -> str:
    """Return the new container's id. Raises APIError."""
    created = client.create_container_from_config(body, name)  # type: ignore[no-untyped-call]  # of types-docker
    return str(created["Id"])


def _is_of(found: Mapping[str, Any], spec: ContainerSpec) -> bool:
    labels: Mapping[str, str] = found["Config"].get("Labels") or {}
    return labels.get(KERNEL_LABEL) == spec.kernel_id


def _check_what_engines_drop(found: Mapping[str, Any], spec: ContainerSpec) -> None:
    """Check that the engine dropped neither devices nor the mode of user namespaces.

    One engine silently drops requests for devices, another unknown modes. The self-check covers
    what is not visible from here. Raises LaunchError.
    """
    process = Path("/proc", str(found["State"]["Pid"]))
    if not found["State"]["Pid"] or not is_in(found["State"]["Pid"], str(found["Id"])):
        return
    if spec.hook_program and _lacks(process, spec.hook_program):
        raise _no_hook(spec)
    with suppress(OSError):
        if spec.maps_users and (process / "uid_map").read_text().split() == _ALL_USERS:
            raise LaunchError(
                f"Requested to map the users of a container of {spec.image} (user namespace "
                f"{spec.body['HostConfig']['UsernsMode']!r}), but the engine did not, and reported no "
                "error. Choose a mode that it knows, or have the engine map all users (Docker: "
                "userns-remap)"
            )


def _lacks(process: Path, path: str) -> bool:
    """Tell whether a container lacks a file.

    False if we may not look there: the self-check will report it.

    Raises ProcessLookupError when the process has ended meanwhile.
    """
    root = os.path.join(process, "root")
    try:
        os.lstat(f"{root}{path}")
    except FileNotFoundError:
        if not os.path.exists(root):
            raise ProcessLookupError(process) from None
        return True
    except OSError:
        return False
    return False


def _no_hook(spec: ContainerSpec) -> InterceptionError:
    return InterceptionError(
        f"Requested a container with the hook, but it has no {spec.hook_program}: the engine did "
        "not make the edits of the CDI device aliquot.dev/hook, and reported no error. Set "
        "c.KernelContainers.devices to 'mounts'"
    )


def _compare(found: Mapping[str, Any], mounts: tuple[Mount, ...]) -> None:
    """Compare the mounts with the checked folders. Raises FolderError.

    If the container is not visible from here, they cannot be compared, and the log says so.
    """
    pid = int(found["State"]["Pid"])
    if not pid or not any(mount.identity for mount in mounts):
        return
    try:
        if not is_in(pid, str(found["Id"])):
            raise ContainerNotVisible("its process is in another pid namespace")
        check_mounts(pid, mounts)
    except ContainerNotVisible as reason:
        _LOG.warning("container=%s folders=not-compared reason=%s", found["Id"][:12], reason)


def is_in(pid: int, container: str) -> bool:
    """Tell whether a pid is that container's: in another pid namespace it is another process's."""
    try:
        return container in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


def last_words(client: APIClient, found: Mapping[str, Any]) -> str:
    """Return the container's last output, completed with the name of a program that was not found.

    One engine's init process does not name it.
    """
    try:
        words = bytes(client.logs(found["Id"], tail=_LAST_LINES)).decode(errors="replace")
    except APIError:
        return ""
    return words.replace(_INIT_FAILURE, f"{_INIT_FAILURE} {found['Path']} {' '.join(found['Args'])}")

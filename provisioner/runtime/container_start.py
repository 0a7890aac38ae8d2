"""The start of a container, step by step, in a worker thread: what was made is removed when a step fails.

Knows what each engine does with a wrong request; decides nothing about what a container is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aliquot.provisioner.container_plan import ContainerPlan, Mount
from aliquot.provisioner.container_spec import KERNEL_LABEL, ContainerSpec
from aliquot.provisioner.errors import EngineError, InterceptionError, LaunchError
from aliquot.provisioner.mount_check import ContainerNotVisible, check_mounts
from docker import APIClient
from docker.errors import APIError

from .container_engine import inspect_container, remove_container

_LOG = logging.getLogger(__name__)
_LAST_LINES = 20
_INIT_FAILURE = "failed to exec pid1:"  # catatonit's


def check_sources(plan: ContainerPlan) -> None:
    """One engine's API makes a folder where a source is missing. Raises LaunchError."""
    for mount in plan.mounts:
        try:
            os.lstat(mount.source)
        except (FileNotFoundError, NotADirectoryError):
            raise LaunchError(
                f"asked to mount {mount.source} at {mount.target} in a kernel's container; found no such folder "
                "or file here; make it, or take it out of the configuration"
            ) from None
        except OSError:
            continue  # not ours to look at: the engine will say


def create_and_start(
    client: APIClient, spec: ContainerSpec, marker: str | None, mounts: tuple[Mount, ...] = ()
) -> dict[str, Any]:
    """In a worker thread. What was made is removed when it cannot be started. Raises APIError, AliquotError.

    ``marker`` is a file that the devices bring in: one engine's API drops requests for devices without a word.
    ``mounts`` with an identity have to be what was checked: the engine followed their paths only now.
    """
    container = _create(client, spec)
    try:
        client.start(container)
        found = inspect_container(client, container)
        if found is None:
            raise EngineError(f"asked for the container {spec.name}; it was removed while it started")
        if marker is not None and not _sees(found, marker):
            raise no_hook(marker)
        _compare(found, mounts)
        if found["State"]["Status"] == "exited":
            raise LaunchError(
                f"asked to run {' '.join(spec.body['Cmd'])!r} in {spec.image}; it ended at once with exit code "
                f"{found['State']['ExitCode']}: {last_words(client, found).strip() or 'it said nothing'}"
            )
    except BaseException:
        remove_container(client, container)
        raise
    return found


def _create(client: APIClient, spec: ContainerSpec) -> str:
    """A container that an earlier start of this very kernel left has its name. Raises APIError, LaunchError."""
    try:
        return _ask_to_create(client, spec)
    except APIError as error:
        left = inspect_container(client, spec.name)
        if left is None:
            raise
        labels = left["Config"].get("Labels") or {}
        if labels.get(KERNEL_LABEL) != spec.kernel_id or left["State"]["Status"] in ("running", "paused"):
            raise LaunchError(
                f"asked for a container named {spec.name}; found one that is not ours or still runs "
                f"({left['Id'][:12]}, {left['State']['Status']}); remove it, or start another kernel"
            ) from error
    remove_container(client, left["Id"])
    return _ask_to_create(client, spec)


def _ask_to_create(client: APIClient, spec: ContainerSpec) -> str:
    created = client.create_container_from_config(dict(spec.body), spec.name)  # type: ignore[no-untyped-call]  # of types-docker
    return str(created["Id"])


def no_hook(marker: str) -> InterceptionError:
    return InterceptionError(
        f"asked the engine for a container with the hook; found no {marker} in it: the engine did not make "
        "the edits of the CDI device aliquot.dev/hook, and said nothing; set c.KernelContainers.devices to 'mounts'"
    )


def _sees(found: Mapping[str, Any], path: str) -> bool:
    """Whether the container has a file; what cannot be looked at is left to the self-check."""
    pid = int(found["State"]["Pid"])
    if not pid or not is_in(pid, str(found["Id"])):
        return True
    root = Path("/proc", str(pid), "root")
    return os.path.lexists(f"{root}{path}") or not root.exists()


def _compare(found: Mapping[str, Any], mounts: tuple[Mount, ...]) -> None:
    """Raises FolderError. Where the container is not to be seen from here, nobody can compare, and the log says so."""
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
    """In a pid namespace that is not the engine's, its pids are somebody else's here."""
    try:
        return container in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


def last_words(client: APIClient, found: Mapping[str, Any]) -> str:
    """What it wrote last. One engine's init process does not name the program that it did not find."""
    try:
        words = bytes(client.logs(found["Id"], tail=_LAST_LINES)).decode(errors="replace")
    except APIError:
        return ""
    return words.replace(_INIT_FAILURE, f"{_INIT_FAILURE} {found['Path']} {' '.join(found['Args'])}")

"""Change the limits of a running container.

This never ends a kernel: a memory limit below what the kernel uses is not applied, and the answer
says so. `containers.limits` decides the limits; this module asks the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import requests
from docker import APIClient
from docker.errors import APIError, create_api_error_from_http_exception

from jupyter_aliquot.provisioner.containers.plan import ContainerLimits
from jupyter_aliquot.provisioner.resources import Bytes

from .client import refusal

_SECONDS = 30.0
# Memory that a kernel takes between our look and the engine's change must not end it.
_MARGIN = 1.1
_PODMAN = "/v4.3.0/libpod"
_PERIOD = 100_000  # microseconds


def resize_container(client: APIClient, container: str, limits: ContainerLimits) -> str:
    """Apply ``limits``, save shared memory, whose size stays.

    Returns in words what could not be changed, else an empty string. Raises APIError for a
    container that is gone.
    """
    made: Mapping[str, Any] = client.inspect_container(container)["HostConfig"]
    left = []
    if limits.shm is not None and limits.shm != made.get("ShmSize"):
        left.append(f"shared memory of {limits.shm} needs a restart")
    changes = _in_engines_words(limits)
    if limits.memory is not None:
        used = _used(client, container)
        is_safe = limits.memory > (made.get("Memory") or 0) if used is None else used * _MARGIN <= limits.memory
        if not is_safe:
            del changes["Memory"], changes["MemorySwap"]
            found = "an unknown amount" if used is None else str(Bytes(used))
            left.append(f"its host memory limit stays as it was: requested {limits.memory}, but it uses {found}")
    if changes:
        try:
            _update(client, container, changes)
        except APIError as error:
            left.append(f"the engine does not change limits of a container that runs: {refusal(error)}")
    return "; ".join(left)


def _in_engines_words(limits: ContainerLimits) -> dict[str, int]:
    """Return all limits as engines name them.

    Podman shows those that a container was made with, not those in force.
    """
    words: dict[str, int] = {}
    if limits.memory is not None:
        words |= {"Memory": int(limits.memory), "MemorySwap": int(limits.memory)}
    if limits.cpus is not None:
        words["NanoCpus"] = round(limits.cpus * 1e9)
    if limits.pids is not None:
        words["PidsLimit"] = limits.pids
    return words


def _used(client: APIClient, container: str) -> int | None:
    """Return the used memory without what Linux frees by itself.

    None if the engine does not report it.
    """
    memory = client.stats(container, stream=False, one_shot=True).get("memory_stats") or {}
    if not memory.get("usage"):
        return None
    parts = memory.get("stats") or {}
    return int(memory["usage"]) - int(parts.get("inactive_file", parts.get("total_inactive_file", 0)))


def _update(client: APIClient, container: str, changes: Mapping[str, int]) -> None:
    """Send the changes: the package's update_container lacks NanoCpus and PidsLimit.

    Raises APIError.
    """
    path = f"/v{client.api_version}/containers/{container}/update"
    answer = client.post(f"{client.base_url}{path}", json=dict(changes), timeout=_SECONDS)
    if answer.status_code == requests.codes.not_found:
        # Podman before 5 has the update only in its own API, in the words of the OCI runtime.
        path = f"{_PODMAN}/containers/{container}/update"
        answer = client.post(f"{client.base_url}{path}", json=_podman_words(changes), timeout=_SECONDS)
    try:
        answer.raise_for_status()
    except requests.HTTPError as error:
        create_api_error_from_http_exception(error)


def _podman_words(changes: Mapping[str, int]) -> dict[str, dict[str, int]]:
    words: dict[str, dict[str, int]] = {}
    if "Memory" in changes:
        words["memory"] = {"limit": changes["Memory"], "swap": changes["MemorySwap"]}
    if "NanoCpus" in changes:
        words["cpu"] = {"period": _PERIOD, "quota": changes["NanoCpus"] * _PERIOD // 1_000_000_000}
    if "PidsLimit" in changes:
        words["pids"] = {"limit": changes["PidsLimit"]}
    return words

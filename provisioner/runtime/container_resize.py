"""Other limits for a container that runs. Never ends a kernel: memory below what it uses is left as it is, and said.

Asks the engine; what the limits are to be is container_limits' decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import requests
from aliquot.provisioner.container_plan import ContainerLimits
from aliquot.provisioner.resources import Bytes
from docker import APIClient
from docker.errors import APIError, create_api_error_from_http_exception

from .container_engine import refusal

_SECONDS = 30.0
# What a kernel takes between our look and the engine's change must not end it.
_MARGIN = 1.1


def resize_container(client: APIClient, container: str, limits: ContainerLimits) -> str:
    """Put ``limits`` in force but for shared memory, whose size stays. Tells what could not be changed; else empty.

    Raises APIError for a container that is gone.
    """
    now: Mapping[str, Any] = client.inspect_container(container)["HostConfig"]
    changes, left = _changes(now, limits)
    memory = changes.get("Memory")
    if memory is not None and 0 < memory < (now.get("Memory") or 1 << 62):
        used = _used(client, container)
        if used is None or used * _MARGIN > memory:
            del changes["Memory"], changes["MemorySwap"]
            found = "nobody knows how much" if used is None else str(Bytes(used))
            left.append(f"its host memory stays limited as it was: asked {Bytes(memory)}, it uses {found}")
    if changes:
        try:
            _update(client, container, changes)
        except APIError as error:
            left.append(f"the engine does not change limits of a container that runs: {refusal(error)}")
    return "; ".join(left)


def _changes(now: Mapping[str, Any], limits: ContainerLimits) -> tuple[dict[str, int], list[str]]:
    """What differs, in the engine's words. No limit at all cannot be asked for: that stays as it is."""
    wanted: dict[str, int] = {}
    if limits.memory is not None and limits.memory != now.get("Memory"):
        wanted |= {"Memory": int(limits.memory), "MemorySwap": int(limits.memory)}
    if limits.cpus is not None and round(limits.cpus * 1e9) != _nano_cpus(now):
        wanted["NanoCpus"] = round(limits.cpus * 1e9)
    if limits.pids is not None and limits.pids != now.get("PidsLimit"):
        wanted["PidsLimit"] = limits.pids
    is_other = limits.shm is not None and limits.shm != now.get("ShmSize")
    return wanted, [f"shared memory of {limits.shm} needs a restart"] if is_other else []


def _nano_cpus(now: Mapping[str, Any]) -> int:
    """Podman tells them as a quota of a period."""
    period = now.get("CpuPeriod") or 0
    return int(now.get("NanoCpus") or (1e9 * (now.get("CpuQuota") or 0) / period if period else 0))


def _used(client: APIClient, container: str) -> int | None:
    """Without what Linux gives back by itself. None: the engine does not tell."""
    memory = client.stats(container, stream=False).get("memory_stats") or {}
    if not memory.get("usage"):
        return None
    parts = memory.get("stats") or {}
    return int(memory["usage"]) - int(parts.get("inactive_file", parts.get("total_inactive_file", 0)))


def _update(client: APIClient, container: str, changes: Mapping[str, int]) -> None:
    """By hand: the package's own update_container knows neither NanoCpus nor PidsLimit. Raises APIError."""
    address = f"{client.base_url}/v{client.api_version}/containers/{container}/update"
    answer = client.post(address, json=dict(changes), timeout=_SECONDS)
    try:
        answer.raise_for_status()
    except requests.HTTPError as error:
        create_api_error_from_http_exception(error)

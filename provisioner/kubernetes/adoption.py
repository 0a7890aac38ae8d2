"""The kernels that a gateway finds on its pods after a restart, and the differences later. Pure.

Labels and annotations alone tell them. A gateway that cannot see a pod now takes no kernel for ended:
only objects of a current watch are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jupyter_aliquot.provisioner.errors import StateError

from .client import Object
from .record import KernelRecord, read_kernel
from .states import PodState, pod_state


@dataclass(frozen=True)
class FoundKernel:
    """A kernel as its pod tells it."""

    record: KernelRecord
    pod: str
    uid: str
    state: PodState


@dataclass(frozen=True)
class Found:
    """The kernels by id, and a sentence for each pod that cannot be read and is left as it is."""

    kernels: Mapping[str, FoundKernel]
    problems: tuple[str, ...] = ()


def find_kernels(pods: Iterable[Object], gateway: str) -> Found:
    """Return the kernels of this gateway on these pods.

    Of two pods of one kernel, the older one counts; the other is a problem to be told.
    """
    kernels: dict[str, FoundKernel] = {}
    problems: list[str] = []
    for pod in sorted(pods, key=_age):
        metadata = pod["metadata"]
        try:
            record = read_kernel(metadata)
        except StateError as error:
            problems.append(str(error))
            continue
        if record.gateway != gateway:
            continue
        found = FoundKernel(record, metadata["name"], metadata["uid"], pod_state(pod))
        if record.kernel_id in kernels:
            problems.append(
                f"The pod {found.pod} has the record of the kernel {record.kernel_id}, which the older pod "
                f"{kernels[record.kernel_id].pod} has, too. The gateway leaves it as it is"
            )
            continue
        kernels[record.kernel_id] = found
    return Found(kernels, tuple(problems))


def gone_kernels(known: Iterable[str], found: Found, *, is_current: bool) -> tuple[str, ...]:
    """Return the known kernels whose pods are gone; none while the gateway may not see all pods."""
    return tuple(sorted(set(known) - set(found.kernels))) if is_current else ()


def _age(pod: Object) -> tuple[str, str]:
    return str(pod["metadata"].get("creationTimestamp", "")), str(pod["metadata"]["name"])

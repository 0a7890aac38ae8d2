"""Changes of size of running kernels: on which devices, and whether they need capacity there. Pure.

A change of size keeps a kernel's devices, because CUDA has numbered them. Only their parts change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jupyter_aliquot.gpu_hook.client.reports import KernelStatus
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE, Part, Refusal, format_gpus
from jupyter_aliquot.provisioner.errors import GrantError
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request, WorkloadClass

from .capacity import Capacity, Held


def held_of(grant: Grant) -> Held:
    """Return the parts of a grant, as placement takes them."""
    return Held(
        tuple(
            Part(
                uuid=quota.uuid,
                index=quota.index,
                hundredths=quota.share.hundredths,
                quota_bytes=int(quota.memory),
                guarantee_bytes=None if quota.guarantee is None else int(quota.guarantee),
                is_kept=grant.request.residency == "off",
            )
            for quota in grant.quotas
        ),
        grant.request.workload_class,
    )


def quota_of(part: Part) -> Quota:
    """Return the quota that a part becomes when it is granted: the inverse of `held_of`."""
    guarantee = None if part.guarantee_bytes is None else Bytes(part.guarantee_bytes)
    return Quota(part.uuid, part.index, GpuShare(part.hundredths), Bytes(part.quota_bytes), guarantee)


def check_devices(held: Held, request: Request) -> None:
    """Refuse a size that takes another number of devices. Raises GrantError."""
    has, takes = len(held.parts), -(-request.gpus.hundredths // WHOLE)
    if takes != has:
        size = format_gpus(sum(part.hundredths for part in held.parts))
        raise GrantError(
            f"Requested {format_gpus(request.gpus.hundredths)}, which takes {_devices(takes)}; the kernel has "
            f"{size} on {_devices(has)}, and a kernel keeps its devices while it runs. Choose a size on "
            f"{_devices(has)}, or start a kernel of the other size"
        )


def needs_capacity(capacity: Capacity, held: Held, request: Request) -> bool:
    """Return whether the change needs room.

    It does if it takes more of a device than the kernel has there, or changes the class of its
    part.
    """
    rule = capacity.room_of(held.parts).rule
    placed = capacity.emptied().take(held.parts, held.workload_class).place(request, held)
    if isinstance(placed, Refusal) or (
        request.workload_class is not held.workload_class and rule.production != rule.opportunistic
    ):
        return True
    before = {part.uuid: part for part in held.parts}
    return any(
        part.hundredths > before[part.uuid].hundredths or part.reserved_bytes > before[part.uuid].reserved_bytes
        for part in placed
    )


def _devices(count: int) -> str:
    return f"{count} device" + ("s" if count != 1 else "")


@dataclass(frozen=True)
class ResizeRequest:
    """A request to resize a kernel. None stands for a value that stays.

    ``memory_limit`` 0 removes the kernel's own limit, so that its share decides.
    """

    gpus: GpuShare | None = None
    memory_limit: Bytes | None = None
    workload_class: WorkloadClass | None = None

    def applied_to(self, request: Request) -> Request:
        """Return the whole request after the change."""
        limit = request.memory_limit if self.memory_limit is None else self.memory_limit or None
        share, workload_class = self.gpus or request.gpus, self.workload_class or request.workload_class
        return replace(request, gpus=share, memory_limit=limit, workload_class=workload_class)


def no_gpu(kernel_id: str) -> GrantError:
    """Return the error of a request to change a kernel without a GPU."""
    return GrantError(
        f"Kernel {kernel_id} holds no GPU that could be changed. A kernel gets its GPU when it starts: start one of a "
        "kernelspec with a size, such as python3.gpu-0.25"
    )


def quotas_of(kernel: KernelStatus) -> tuple[Quota, ...]:
    """Return what a kernel has of each device, as the agent tells it."""
    return tuple(
        Quota(
            device.uuid,
            device.index,
            GpuShare(device.hundredths),
            Bytes(device.quota_bytes),
            None if device.guarantee_bytes is None else Bytes(device.guarantee_bytes),
        )
        for device in kernel.devices
    )

"""Tools for agents that work in notebooks: few questions, and answers of few words.

An agent reads every field that it gets, so each answer has what a decision needs, and no more. The
names and docstrings here are what the agent's model reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_aliquot.gateway.reports.kernel import Kernel
from jupyter_aliquot.gateway.reports.status import DryRun

from .aio import AsyncClient
from .errors import ClientError
from .operations import UNCHANGED, Priority

_MOST_SIZES = 64  # of one question about sizes
_SIZE_MARK = ".gpu-"


@dataclass(frozen=True)
class KernelLine:
    """One kernel. Memory is in bytes; null is what is not known yet."""

    kernel_id: str
    notebook: str
    kernelspec: str
    gpus: float | None
    priority: str | None
    state: str
    memory_limit_bytes: int | None
    used_bytes: int | None
    is_mine: bool
    reason: str | None
    queue_position: int | None
    expected_start: str | None


@dataclass(frozen=True)
class DeviceLine:
    """One GPU."""

    name: str
    memory_bytes: int
    used_bytes: int
    reserved_gpus: float
    utilization_percent: float | None


@dataclass(frozen=True)
class GpuStatus:
    """The GPUs, the user's kernels on them, and the queue."""

    user: str
    held_gpus: float | None
    left_gpus: float | None
    problem: str | None
    devices: list[DeviceLine]
    kernels: list[KernelLine]
    queue_length: int


@dataclass(frozen=True)
class SizeOffer:
    """One size, and what a request for it would get now: ``starts``, ``queued`` or ``never``."""

    size: str
    gpus: float
    memory_limit_bytes: int | None
    priority: str
    outcome: str
    queue_position: int | None
    message: str


@dataclass(frozen=True)
class WaitEstimate:
    """The place, reason and expected start of a kernel that waits, or of its change of size.

    The start is null where it is not known.
    """

    state: str
    queue_position: int | None
    queue_length: int | None
    reason: str | None
    expected_start: str | None


class AgentTools:
    """The tools, on one server and as its token's user."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def gpu_status(self) -> GpuStatus:
        """Show the GPUs, the kernels that the user may see with their memory and state, and the queue's length."""
        status = await self._client.status()
        limit = status["user"]["gpu_limit"]
        devices = [
            DeviceLine(
                one["name"], one["memory_bytes"], one["used_bytes"], one["reserved_gpus"], one["utilization_percent"]
            )
            for one in status["devices"]
        ]
        return GpuStatus(
            user=status["user"]["name"],
            held_gpus=None if limit is None else limit["held_gpus"],
            left_gpus=None if limit is None else limit["left_gpus"],
            problem=status["node"]["message"],
            devices=devices,
            kernels=[_line(kernel) for kernel in status["kernels"] if kernel["state"] != "ended"],
            queue_length=status["queue"]["length"],
        )

    async def gpu_sizes(self) -> list[SizeOffer]:
        """List the sizes that a kernel may ask for, each with what it would get now.

        A kernelspec's name with a dot and the size, such as ``python3.gpu-0.25``, starts one.
        """
        listed = (await self._client.sizes())["sizes"]
        names = dict.fromkeys(one["name"].removeprefix(f"{one['kernelspec']}.") for one in listed)
        return [_offer(one) for one in await self._client.dry_runs(list(names)[:_MOST_SIZES])]

    async def gpu_wait_estimate(self, kernel_id: str | None = None, size: str | None = None) -> WaitEstimate:
        """Say how long a queued kernel or a change of size waits, or what a new request for a size would get.

        Args:
            kernel_id: A kernel of the status. Name this or a size.
            size: A size such as ``gpu-0.5`` or ``gpu-0.3-6g-low``.
        """
        if (kernel_id is None) == (size is None):
            raise ClientError("Requested a wait of both or neither. Pass kernel_id or size")
        if kernel_id is not None:
            kernel = await self._client.kernel(kernel_id)
            line, resize = _line(kernel), kernel["resize"]
            length = kernel["queue_length"] if resize is None else resize["queue_length"]
            return WaitEstimate(line.state, line.queue_position, length, line.reason, line.expected_start)
        [outcome] = await self._client.dry_runs([str(size)])
        return WaitEstimate(outcome["outcome"], outcome["position"], None, outcome["message"], None)

    async def gpu_resize(
        self, kernel_id: str, gpus: float | None = None, memory: str | None = None, priority: Priority | None = None
    ) -> KernelLine:
        """Give a running kernel of the user another size. It keeps its variables, and is never restarted.

        Args:
            kernel_id: A kernel of the status.
            gpus: The new share, such as 0.5; left out, it stays.
            memory: The new memory limit, such as ``8GiB``; left out, it stays.
            priority: ``normal`` or ``low``; left out, it stays.
        """
        await self._require_own(kernel_id)
        limit = UNCHANGED if memory is None else memory
        return _line(await self._client.resize_kernel(kernel_id, gpus, limit, priority))

    async def gpu_start_kernel(self, kernelspec: str, path: str = "") -> KernelLine:
        """Start a kernel with a size. It may wait in the queue: ask gpu_wait_estimate.

        Args:
            kernelspec: A kernelspec's name, a dot and a size: ``python3.gpu-0.25``.
            path: The notebook or folder that it is for.
        """
        if _SIZE_MARK not in kernelspec.lower():
            raise ClientError(
                f"Requested the kernelspec {kernelspec!r}, which names no size. Append a dot and a size of gpu_sizes, "
                "as in python3.gpu-0.25"
            )
        started = await self._client.start_kernel(kernelspec, path)
        try:
            return _line(await self._client.kernel(started["id"]))
        except ClientError as error:
            # The kernel is there: without its id, the agent would start another one.
            return _unread(started["id"], kernelspec, path, error)

    async def gpu_end_kernel(self, kernel_id: str) -> str:
        """End a kernel of the user, or withdraw it from the queue. Its variables are lost.

        Args:
            kernel_id: A kernel of the status.
        """
        await self._require_own(kernel_id)
        await self._client.end_kernel(kernel_id)
        return f"Kernel {kernel_id} was ended."

    async def _require_own(self, kernel_id: str) -> None:
        """Raise ClientError for a kernel of another user, which an administrator's token may change."""
        kernel = await self._client.kernel(kernel_id)
        if kernel["access"] != "own":
            raise ClientError(
                f"Requested a change of kernel {kernel_id}, which is {kernel['owner']}'s. These tools change kernels "
                "of their own user alone. Pass a kernel of gpu_status with is_mine"
            )


def _line(kernel: Kernel) -> KernelLine:
    resize = kernel["resize"]
    return KernelLine(
        kernel_id=kernel["id"],
        notebook=kernel["label"],
        kernelspec=kernel["name"],
        gpus=kernel["gpus"],
        priority=kernel["priority"],
        state=kernel["state"],
        memory_limit_bytes=kernel["memory_limit_bytes"],
        used_bytes=kernel["used_bytes"],
        is_mine=kernel["access"] == "own",
        reason=kernel["reason"] if resize is None else f"A change of size waits: {resize['reason']}",
        queue_position=kernel["queue_position"] if resize is None else resize["position"],
        expected_start=kernel["expected_start"] if resize is None else resize["expected_start"],
    )


def _unread(kernel_id: str, kernelspec: str, path: str, error: ClientError) -> KernelLine:
    """Return the line of a kernel that was started, and whose report could not be read."""
    return KernelLine(
        kernel_id=kernel_id,
        notebook=path,
        kernelspec=kernelspec,
        gpus=None,
        priority=None,
        state="unknown",
        memory_limit_bytes=None,
        used_bytes=None,
        is_mine=True,
        reason=f"The kernel was started, but its state could not be read: {error}",
        queue_position=None,
        expected_start=None,
    )


def _offer(outcome: DryRun) -> SizeOffer:
    return SizeOffer(
        size=outcome["suffix"],
        gpus=outcome["gpus"],
        memory_limit_bytes=outcome["memory_limit_bytes"],
        priority=outcome["priority"],
        outcome=outcome["outcome"],
        queue_position=outcome["position"],
        message=outcome["message"],
    )

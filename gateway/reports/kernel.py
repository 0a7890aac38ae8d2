"""The report of one kernel, and its parts.

Times are ISO 8601 in UTC, amounts are bytes, shares are numbers of GPUs. api/openapi.yaml says what
each field means, and lists the words of enumerations. tools/reference_pages.py makes this file of it.
"""

from __future__ import annotations

from typing import TypedDict


class Compute(TypedDict):
    """A kernel's part of a device's time in the last second or so."""

    fair_share: float | None
    share_used: float | None
    own_seconds: float
    slowdown: float | None
    throttled_seconds: float
    max_delay_seconds: float | None
    pace: str
    throttle_reason: str | None
    paused: bool
    has_hard_limit: bool


class Load(TypedDict):
    """A kernel's use of a device while it works there."""

    gpu: float
    memory: float
    seconds: float
    alone: bool


class KernelDevice(TypedDict):
    """The part of one device that a kernel has."""

    uuid: str
    index: int
    gpus: float
    memory_limit_bytes: int
    guaranteed_memory_bytes: int
    used_bytes: int
    peak_bytes: int
    required_bytes: int | None
    busy_seconds: float
    context_bytes: int
    compute: Compute | None
    load: Load | None


class MemoryQueue(TypedDict):
    """A kernel's wait for memory: to be restored, or for a larger allocation."""

    reason: str
    seconds: float
    ahead: int
    expected_seconds: float | None


class Moving(TypedDict):
    """A copy of memory that is under way."""

    done_bytes: int
    total_bytes: int


class Unswappable(TypedDict):
    """Memory that a swap-out leaves on the device, and the reason."""

    reason: str
    bytes: int


class Residency(TypedDict):
    """The place of a kernel's memory: on the GPU, swapped out, or moving."""

    mode: str
    state: str
    since: str | None
    swapped_bytes: int
    swappable_bytes: int
    unswappable: list[Unswappable]
    not_swappable: str | None
    refusal: str | None
    queued: MemoryQueue | None
    moving: Moving | None
    restore_seconds: float | None
    evict_reason: str | None
    swaps_out: int
    swaps_in: int
    waited_seconds: float


class HostMemory(TypedDict):
    """Host memory that a kernel has page-locked."""

    limit_bytes: int | None
    used_bytes: int
    peak_bytes: int
    failed_allocations: int


class UncontrolledProcess(TypedDict):
    """A process of a kernel with memory on a device that no hook counts."""

    pid: int
    name: str
    index: int
    used_bytes: int | None
    charged_bytes: int
    why: str


class Requested(TypedDict):
    """The amounts that a queued request needs."""

    gpus: float
    memory_bytes: int | None


class Free(TypedDict):
    """The free amounts of the device that has the most free."""

    gpus: float | None
    memory_bytes: int | None
    device: int | None


class HostShortage(TypedDict):
    """Host memory that copies of swapped-out kernels would need, and the amount reserved for them."""

    required_bytes: int
    budget_bytes: int


class WaitReason(TypedDict):
    """The reason why a request is queued, in numbers."""

    code: str
    requested: Requested
    free: Free
    host_memory: HostShortage | None


class PredictedStart(TypedDict):
    """The times between which a request probably starts."""

    earliest: str
    latest: str


class Resize(TypedDict):
    """A change of size that is queued."""

    state: str
    gpus: float
    requested_memory_bytes: int | None
    priority: str
    reason: str
    position: int
    queue_length: int
    wait_reason: WaitReason
    expected_start: str | None
    since: str


class Termination(TypedDict):
    """The reason and the time of a kernel's end."""

    code: str
    message: str
    at: str
    exit_code: int | None
    signal: int | None
    by: str


class ScheduledTermination(TypedDict):
    """An end that the gateway has announced."""

    at: str
    message: str
    can_postpone: bool


class Share(TypedDict):
    """One user or team that a kernel is shared with."""

    kind: str
    name: str
    access: str


class OwnerMessage(TypedDict):
    """A message of an administrator to a kernel's owner."""

    text: str
    by: str
    at: str


class DroppedMessages(TypedDict):
    """Counts of messages that were not sent to browsers, by reason."""

    rate_limit: int
    closed_socket: int
    too_large: int
    unreadable: int
    relay: int
    unsent: int


class Usage(TypedDict):
    """A kernel's grant and usage: the part of its report that the node agent supplies."""

    memory_limit_bytes: int
    guaranteed_memory_bytes: int
    used_bytes: int
    over_limit_bytes: int
    peak_bytes: int
    busy_seconds: float
    context_bytes: int
    failed_allocations: int
    required_bytes: int | None
    last_failed_allocation_at: str | None
    interception: str
    enforcement: str
    uncontrolled_processes: list[UncontrolledProcess]
    host_memory: HostMemory | None
    residency: Residency | None
    devices: list[KernelDevice]


class Kernel(Usage):
    """One kernel, as one user may see it."""

    id: str
    name: str
    owner: str
    access: str
    shares: list[Share] | None
    label: str
    gpus: float
    requested_memory_bytes: int | None
    priority: str
    state: str
    reason: str | None
    queue_position: int | None
    queue_length: int | None
    wait_reason: WaitReason | None
    expected_start: str | None
    predicted_start: PredictedStart | None
    execution_state: str | None
    interrupted_at: str | None
    idle_since: str | None
    resize: Resize | None
    dropped_messages: DroppedMessages | None
    created: str | None
    termination: Termination | None
    last_crash: Termination | None
    scheduled_termination: ScheduledTermination | None
    owner_message: OwnerMessage | None

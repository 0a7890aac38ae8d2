"""The control operations about residency: swap_out, wake, hint, watch, evict, readmit, vacate, move, moved.

They make requests; the lease keeper decides. Each answers at once. The kernel's status, and the
events for its watchers, show the outcome of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jupyter_aliquot.gpu_hook.agent.kernels.evictions import Evictions
from jupyter_aliquot.gpu_hook.agent.kernels.relocations import Relocations
from jupyter_aliquot.gpu_hook.agent.kernels.reservations import Refused
from jupyter_aliquot.gpu_hook.agent.scheduling.keeper import LeaseKeeper
from jupyter_aliquot.gpu_hook.agent.scheduling.records import LeaseRecord, read_moment
from jupyter_aliquot.gpu_hook.agent.scheduling.views import HINT_SECONDS, Reason, Wait
from jupyter_aliquot.gpu_hook.agent.swap.facts import ResidencyFacts, describe_residency
from jupyter_aliquot.gpu_hook.agent.swap.table import KernelState

from .request_fields import read_devices, read_kernel_id, read_text

_WORDS = {
    Reason.COMING: "its memory is being copied back",
    Reason.LINK: "another kernel's memory is being copied",
    Reason.MOVING: "others' memory is being moved out",
    Reason.HOLD: "others came in a moment ago",
    Reason.TURN: "others have their turn",
    Reason.QUEUE: "others came before",
    Reason.BUSY: "those that hold the room are busy",
    Reason.HOST: "host memory for what would have to leave is full",
    Reason.COMPUTE: "production works on its device, and it could not be held back enough beside that",
    Reason.EVICTED: "it was evicted from its GPU, and waits until it has one again",
    Reason.RELOCATING: "it is being moved to another GPU of its node",
    Reason.REFUSED: "its memory could not come back; the node agent tries again. If that lasts, restart the kernel",
    Reason.LOST: "its GPU memory is lost. Restart the kernel",
    Reason.STUCK: "what holds the room cannot be moved, or does not answer",
}

Operation = Callable[[Mapping[str, Any], int], dict[str, Any]]
Send = Callable[[int, dict[str, Any]], None]


class LeaseOperations:
    """The operations about leases.

    ``send`` hands an event to a connection; ``watch_node`` enters a connection that watches all
    kernels.
    """

    def __init__(
        self,
        leases: LeaseKeeper,
        evictions: Evictions,
        relocations: Relocations,
        send: Send,
        watch_node: Callable[[int], None],
    ) -> None:
        self._leases = leases
        self._evictions = evictions
        self._relocations = relocations
        self._send = send
        self._watch_node = watch_node
        self._watchers: dict[str, set[int]] = {}
        self.table: Mapping[str, Operation] = {
            "swap_out": self._swap_out,
            "wake": self._wake,
            "hint": self._hint,
            "watch": self._watch,
            "evict": self._evict,
            "readmit": self._readmit,
            "vacate": self._vacate,
            "move": self._move,
            "moved": self._moved,
        }

    def tell(self, kernel_id: str) -> None:
        """Send an event to a kernel's watchers: its state or wait changed, or it still waits."""
        self._evictions.look(kernel_id)
        self._relocations.look(kernel_id)
        for connection in tuple(self._watchers.get(kernel_id, ())):
            self._send(connection, {"event": "lease", **self._describe(kernel_id)})

    def drop_connection(self, connection: int) -> None:
        for kernel_id, watchers in list(self._watchers.items()):
            watchers.discard(connection)
            if not watchers:
                del self._watchers[kernel_id]

    def _swap_out(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        kernel_id = read_kernel_id(request)
        record = self._find(kernel_id)
        now = read_moment()
        record.view(now)
        facts = record.facts
        if not facts.is_swappable:
            raise Refused("conflict", f"kernel {kernel_id} cannot be swapped out: {facts.mode_reason}")
        if facts.state is KernelState.STARTING and not record.kernel.is_expecting:
            told = f"kernel {kernel_id} has no GPU memory: there is nothing to swap out before it uses CUDA"
            raise Refused("conflict", told)
        if record.is_resident and record.idle_since is None:
            raise Refused("conflict", f"kernel {kernel_id} is busy: {record.idle_reason}; try again when it is idle")
        if record.wants_since is not None:
            raise Refused("conflict", f"kernel {kernel_id} is wanted: it waits for room; try again when it is idle")
        record.asked_out_at = now.monotonic if record.is_resident else None
        record.is_asked_in, record.hinted_until = False, 0.0
        self._leases.notify()
        return {"state": facts.state.value}

    def _wake(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        record = self._find(read_kernel_id(request))
        record.is_asked_in, record.asked_out_at = not record.is_resident, None
        self._leases.notify()
        return {"state": record.residency.state.value}

    def _evict(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        return {"is_out": self._evictions.evict(read_kernel_id(request))}

    def _readmit(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        self._evictions.readmit(read_kernel_id(request))
        return {}

    def _vacate(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        return {"devices": self._leases.vacate(read_devices(request))}

    def _move(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        self._relocations.begin(read_kernel_id(request), read_text(request, "device"))
        return {}

    def _moved(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        state, reason = self._relocations.outcome(read_kernel_id(request), read_text(request, "device"))
        return {"state": state, "reason": reason}

    def _hint(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        record = self._find(read_kernel_id(request))
        record.hinted_until = read_moment().monotonic + HINT_SECONDS
        self._leases.notify()
        return {"state": record.residency.state.value}

    def _watch(self, request: Mapping[str, Any], connection: int) -> dict[str, Any]:
        if "kernel_id" not in request:
            self._watch_node(connection)
            return {}
        kernel_id = read_kernel_id(request)
        self._find(kernel_id)
        self._watchers.setdefault(kernel_id, set()).add(connection)
        return self._describe(kernel_id)

    def _find(self, kernel_id: str) -> LeaseRecord:
        record = self._leases.record(kernel_id)
        if record is None:
            raise Refused("not_found", f"no kernel {kernel_id} is reserved here")
        return record

    def _describe(self, kernel_id: str) -> dict[str, Any]:
        record, wait = self._leases.record(kernel_id), self._leases.wait(kernel_id)
        since = None if record is None or wait is None else record.wants_since
        calls = 0 if record is None else sum(page.waiting_calls for page in record.facts.telemetry)
        growing = 0 if record is None else len(record.kernel.credit_queues.wanted_bytes)
        return {
            "kernel_id": kernel_id,
            "state": "ended" if record is None else record.residency.state.value,
            "waits_seconds": None if since is None else round(read_moment().monotonic - since, 3),
            "waiting_calls": calls + growing,
            "position": None if wait is None else wait.position,
            "before": 0 if wait is None else len(wait.before),
            "reason": None if wait is None else wait.reason.value,
            "expected_seconds": _seconds(wait),
        }


def describe_lease(
    leases: LeaseKeeper, facts: ResidencyFacts, host_bytes: int, *, has_ages: bool = True
) -> dict[str, Any] | None:
    """Describe one kernel's residency and its wait, for the status.

    ``host_bytes`` are the memory of its copies.
    ``has_ages``: with figures that grow by themselves while it is idle. They make each description
    differ from the last.
    """
    kernel_id = facts.kernel_id
    record, wait = leases.record(kernel_id), leases.wait(kernel_id)
    if record is None:
        return None
    now = read_moment()
    since = now.monotonic if record.wants_since is None else record.wants_since
    waits = None
    if wait is not None:
        waits = {
            "reason": _reason_text(wait.reason, facts),
            "seconds": round(now.monotonic - since, 3),
            "position": wait.position,
            "before": len(wait.before),
            "expected_seconds": _seconds(wait),
        }
    idle = None if record.idle_since is None else round(now.monotonic - record.idle_since, 3)
    return {
        **describe_residency(facts, host_bytes, now),
        **({"idle_seconds": idle} if has_ages else {}),
        "idle_since": record.idle_at,
        "idle_reason": record.idle_reason,
        "left_for": None if record.left_for is None else record.left_for.value,
        "swap_out_waits_for": leases.why_asked_out_waits(kernel_id),
        "restore_seconds": _restore_seconds(leases, kernel_id, wait),
        "waits": waits,
    }


def _reason_text(reason: Reason, facts: ResidencyFacts) -> str:
    """Return what a kernel waits for; with the driver's answer where its memory could not come back."""
    refusal = "" if facts.refusal is None else facts.refusal.text
    if reason is Reason.LOST and refusal:
        return refusal
    return f"{_WORDS[reason]} ({refusal})" if reason is Reason.REFUSED and refusal else _WORDS[reason]


def _restore_seconds(leases: LeaseKeeper, kernel_id: str, wait: Wait | None) -> float | None:
    """Return how long a cell of a kernel that is out has to wait for its memory; that of a waiting one is known."""
    if wait is not None:
        return _seconds(wait)
    expected = leases.restore_seconds(kernel_id)
    return None if expected is None else round(expected, 1)


def _seconds(wait: Wait | None) -> float | None:
    return None if wait is None or wait.expected_seconds is None else round(max(0.0, wait.expected_seconds), 1)

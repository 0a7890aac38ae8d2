"""Gather what this server knows of its own GPU kernels. Keeps nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

from jupyter_aliquot.gateway.culling.policy import Announcement
from jupyter_aliquot.gateway.relays.activity import Activity
from jupyter_aliquot.gateway.scheduling.admission import AdmissionSnapshot
from jupyter_aliquot.gateway.scheduling.ledger import Holding
from jupyter_aliquot.gateway.scheduling.queue import QueueEntry
from jupyter_aliquot.gateway.sharing.shares import UNSHARED
from jupyter_aliquot.gateway.sizes.kernel_request import request_of
from jupyter_aliquot.provisioner.resources import Request

from .report import PLAIN, LocalKernel

# The most remembered values of kernels that no longer exist.
_SPARE = 64


class Activities(Protocol):
    """The kernels' activity, as their relays report it. None stands for a kernel without a relay."""

    def of(self, kernel_id: str) -> Activity | None:
        """Return the kernel's activity."""
        ...

    def dropped_messages(self, kernel_id: str) -> Mapping[str, int] | None:
        """Return how many messages were not sent to browsers, by reason."""
        ...

    def interrupted_at(self, kernel_id: str) -> float | None:
        """Return when the running cell was last interrupted; None if it was not, or none runs."""
        ...


class KernelManagers(Protocol):
    """The part of our kernel manager that knows kernels, their owners and their states."""

    def __contains__(self, kernel_id: str, /) -> bool:
        """Return whether there is such a kernel."""
        ...

    def get_kernel(self, kernel_id: str) -> Any:
        """Return Jupyter's manager of one kernel."""
        ...

    def owner_of(self, kernel_id: str) -> str | None:
        """Return the owner's name."""
        ...

    def kernel_state(self, kernel_id: str) -> tuple[str, str | None]:
        """Return the state and the reason."""
        ...

    @property
    def activity(self) -> Activities:
        """Return the activity of the kernels that have a relay."""
        ...


class KernelMemo:
    """The values made last: among a thousand kernels, few change between two looks."""

    def __init__(self) -> None:
        self._made: dict[str, LocalKernel] = {}

    def same(self, kernel: LocalKernel) -> LocalKernel:
        """Return the object made before if it is equal, else this one."""
        found = self._made.get(kernel.id)
        if found is None or found != kernel:
            found = self._made[kernel.id] = kernel
        return found

    def forget_others(self, there: Collection[str]) -> None:
        """Drop values of kernels that no longer exist, except for a few.

        Called at each look with the ids of all kernels.
        """
        if len(self._made) > len(there) + _SPARE:
            self._made = {one: kernel for one, kernel in self._made.items() if one in there}


def local_kernels(
    manager: KernelManagers,
    ids: Iterable[str],
    snapshot: AdmissionSnapshot,
    labels: Mapping[str, str],
    announced: Mapping[str, Announcement],
    memo: KernelMemo | None = None,
) -> Iterator[LocalKernel]:
    """Yield the kernels that request a GPU, or have news or an announced end, and are there when it comes to them."""
    queue = {entry.kernel_id: entry for entry in snapshot.starts}
    holdings, memo = snapshot.ledger.holdings, memo or KernelMemo()
    for kernel_id in filter(manager.__contains__, ids):
        kernel = manager.get_kernel(kernel_id)
        waiting, holding = queue.get(kernel_id), holdings.get(kernel_id)
        request = _asked(holding, waiting) or request_of(kernel)
        if request is None and not (kernel_id in announced or _has_news(kernel)):
            continue
        state, reason = manager.kernel_state(kernel_id)
        yield memo.same(
            LocalKernel(
                id=kernel_id,
                name=kernel.kernel_name,
                owner=manager.owner_of(kernel_id) or "",
                label=labels.get(kernel_id, ""),
                request=request or PLAIN,
                state=state,
                reason=reason or (None if holding is None else holding.doubt),
                queue=waiting,
                execution_state=getattr(kernel, "execution_state", None),
                created=waiting.since if waiting else holding.since if holding else None,
                quotas=holding.grant.quotas if holding else (),
                last_crash=getattr(kernel, "last_crash", None),
                ending_soon=announced.get(kernel_id),
                dropped_messages=manager.activity.dropped_messages(kernel_id),
                activity=manager.activity.of(kernel_id),
                interrupted_at=manager.activity.interrupted_at(kernel_id),
                shares=getattr(kernel, "shares", UNSHARED),
                owner_message=getattr(kernel, "owner_message", None),
            )
        )


def _has_news(kernel: Any) -> bool:
    """Return whether its user is told of it although it has no GPU."""
    return any(getattr(kernel, name, None) for name in ("last_crash", "owner_message", "was_shared"))


def _asked(holding: Holding | None, waiting: QueueEntry | None) -> Request | None:
    """Return the kernel's request from its grant or its queue entry; None if it has neither.

    Reading it from the kernelspec takes longer than all the rest.
    """
    return holding.grant.request if holding else waiting.request if waiting else None


def waiting_elsewhere(
    snapshot: AdmissionSnapshot, known: Iterable[LocalKernel], kernel_id: str | None = None
) -> tuple[LocalKernel, ...]:
    """Return kernels that other programs of this machine start and that wait in this queue.

    ``kernel_id``: return this kernel alone.
    """
    ids = {kernel.id for kernel in known}
    waiting = (entry for entry in snapshot.starts if kernel_id in (None, entry.kernel_id))
    return tuple(_requester_elsewhere(entry) for entry in waiting if entry.kernel_id not in ids)


def _requester_elsewhere(entry: QueueEntry) -> LocalKernel:
    return LocalKernel(
        id=entry.kernel_id,
        name="",
        owner=entry.owner,
        label=entry.label,
        request=entry.request,
        state="queued",
        reason=entry.reason,
        queue=entry,
        created=entry.since,
    )

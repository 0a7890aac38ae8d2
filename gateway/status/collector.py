"""Gather what this server knows of its own GPU kernels. Keeps nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

from jupyter_aliquot.gateway.culling.policy import Announcement
from jupyter_aliquot.gateway.kernels.kernel import NOT_REPORTED, ManagedKernel
from jupyter_aliquot.gateway.relays.activity import Activity
from jupyter_aliquot.gateway.reports.kernel import OwnerMessage
from jupyter_aliquot.gateway.scheduling.admission import AdmissionSnapshot
from jupyter_aliquot.gateway.scheduling.ledger import Holding
from jupyter_aliquot.gateway.scheduling.queue import QueueEntry
from jupyter_aliquot.gateway.sharing.shares import Shares
from jupyter_aliquot.gateway.sizes.kernel_request import request_of
from jupyter_aliquot.provisioner.resources import Request
from jupyter_aliquot.provisioner.terminations import Ending

from .report import PLAIN, LocalKernel

# The most remembered values of kernels that no longer exist.
_SPARE = 64


# A value that equals an earlier one of a kernel while its manager and its relay's link show the same; None: ask them.
Mark = tuple[Any, ...] | None


class Activities(Protocol):
    """The kernels' activity, as their relays report it."""

    def marked(self, kernel_ids: Iterable[str]) -> Iterator[tuple[str, Any, Mark]]:
        """Yield those of the kernels that are there when it comes to them: id, Jupyter's manager and mark."""
        ...

    def seen(self, kernel_id: str) -> tuple[Activity | None, Mapping[str, int] | None, float | None]:
        """Return what the kernel does, its messages not sent by reason, and when its running cell was interrupted.

        None three times for a kernel without a relay.
        """
        ...


class KernelManagers(Protocol):
    """The part of our kernel manager that knows kernels, their owners and their states."""

    @property
    def owners(self) -> Mapping[str, str]:
        """Return the owners' names by the kernels' ids."""
        ...

    def state_of(self, kernel_id: str, kernel: Any) -> tuple[str, str | None, str | None]:
        """Return the state and the reason of one of the kernels, and Jupyter's word for its state."""
        ...

    @property
    def activity(self) -> Activities:
        """Return the activity of the kernels that have a relay."""
        ...


# All that a kernel's value is made of: the arguments of `_local` after the id.
Causes = tuple[Any, ...]


class KernelMemo:
    """The values made last, with their causes: among a thousand kernels, few change between two looks."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Causes, LocalKernel]] = {}
        self._marked: dict[str, tuple[Causes, LocalKernel]] = {}

    def same(self, kernel_id: str, signs: Causes) -> LocalKernel | None:
        """Return the value that was noted with equal signs; None for none."""
        found = self._marked.get(kernel_id)
        return found[1] if found is not None and found[0] == signs else None

    def note(self, kernel_id: str, signs: Causes, made: LocalKernel) -> None:
        """Note the signs by which `same` knows that nothing of a kernel has changed, without its causes."""
        self._marked[kernel_id] = signs, made

    def of(self, kernel_id: str, causes: Causes) -> LocalKernel:
        """Return the value that was made of equal causes, else a new one."""
        found = self._made.get(kernel_id)
        if found is None or found[0] != causes:
            found = self._made[kernel_id] = causes, _local(kernel_id, *causes)
        return found[1]

    def forget_others(self, there: Collection[str]) -> None:
        """Drop values of kernels that no longer exist, except for a few.

        Called at each look with the ids of all kernels.
        """
        if len(self._made) > len(there) + _SPARE:
            self._made = {one: made for one, made in self._made.items() if one in there}
            self._marked = {one: made for one, made in self._marked.items() if one in there}


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
    holdings, owners, activity, memo = snapshot.ledger.holdings, manager.owners, manager.activity, memo or KernelMemo()
    for kernel_id, kernel, mark in activity.marked(ids):
        waiting, holding, told = queue.get(kernel_id), holdings.get(kernel_id), announced.get(kernel_id)
        owner, label = owners.get(kernel_id, ""), labels.get(kernel_id, "")
        signs = mark, holding, waiting, told, owner, label
        # All that nothing was changed of, nearly: a thousand times in each status of an administrator.
        same = None if mark is None else memo.same(kernel_id, signs)
        if same is not None:
            yield same
            continue
        # Only a kernel with neither has to be asked, which takes longer than all the rest.
        request = request_of(kernel) if holding is None and waiting is None else None
        of_ours = kernel.reported if isinstance(kernel, ManagedKernel) else NOT_REPORTED
        shown = (*manager.state_of(kernel_id, kernel), *activity.seen(kernel_id), *of_ours)
        made = memo.of(kernel_id, (kernel.kernel_name, owner, label, request, holding, waiting, told, *shown))
        if holding is None and waiting is None and request is None and not _has_news(made, kernel):
            continue
        # The reason of a kernel that is not ready, and the request of one without a grant, may change by themselves.
        if mark is not None and holding is not None and kernel.ready.done():
            memo.note(kernel_id, signs, made)
        yield made


def _has_news(made: LocalKernel, kernel: Any) -> bool:
    """Return whether its user is told of it although it has no GPU."""
    is_told = made.ending_soon is not None or made.last_crash is not None or made.owner_message is not None
    return is_told or bool(getattr(kernel, "was_shared", False))


def _local(
    kernel_id: str,
    name: str,
    owner: str,
    label: str,
    request: Request | None,
    holding: Holding | None,
    waiting: QueueEntry | None,
    announced: Announcement | None,
    state: str,
    reason: str | None,
    execution_state: str | None,
    activity: Activity | None,
    dropped_messages: Mapping[str, int] | None,
    interrupted_at: float | None,
    last_crash: Ending | None,
    shares: Shares,
    owner_message: OwnerMessage | None,
) -> LocalKernel:
    requested = holding.grant.request if holding else waiting.request if waiting else request
    return LocalKernel(
        kernel_id,
        name,
        owner,
        label,
        requested or PLAIN,
        state,
        reason or (None if holding is None else holding.doubt),
        queue=waiting,
        execution_state=execution_state,
        created=waiting.since if waiting else holding.since if holding else None,
        quotas=holding.grant.quotas if holding else (),
        last_crash=last_crash,
        ending_soon=announced,
        dropped_messages=dropped_messages,
        activity=activity,
        interrupted_at=interrupted_at,
        shares=shares,
        owner_message=owner_message,
    )


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

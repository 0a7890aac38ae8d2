"""Reports of devices and kernels: one pure function from the snapshot to what one user may see.

It reads nothing by itself and decides nothing; node/watcher.py and collector.py supply the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import NamedTuple

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import iso, iso_moment
from jupyter_aliquot.gateway.base.steps import in_steps
from jupyter_aliquot.gateway.culling.policy import Announcement
from jupyter_aliquot.gateway.node.unhooked import count_processes
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.nodes.remote_node import RemoteNodeView
from jupyter_aliquot.gateway.relays.activity import Activity
from jupyter_aliquot.gateway.reports import to_json
from jupyter_aliquot.gateway.reports.invitation import OpenInvitation
from jupyter_aliquot.gateway.reports.kernel import (
    DroppedMessages,
    Kernel,
    OwnerMessage,
    Resize,
    ScheduledTermination,
    Termination,
)
from jupyter_aliquot.gateway.reports.status import Node, Status, UserGpuLimit
from jupyter_aliquot.gateway.reports.usage import Budget
from jupyter_aliquot.gateway.scheduling.cordons import Cordon
from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.planner import Pending
from jupyter_aliquot.gateway.scheduling.queue import QueueEntry
from jupyter_aliquot.gateway.scheduling.quotas import GpuCaps, gpu_limit_report
from jupyter_aliquot.gateway.sharing.rights import access_for
from jupyter_aliquot.gateway.sharing.shares import UNSHARED, Shares
from jupyter_aliquot.gateway.terminations.store import EndedKernel
from jupyter_aliquot.gpu_hook.client.reports import KernelStatus
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Quota, Request, WorkloadClass
from jupyter_aliquot.provisioner.terminations import Ending

from .expected_starts import predicted_report
from .node_schedule import cordon_report
from .nodes import nodes_report
from .report_cache import Made, ReportMemo
from .residency import host_copies_report, shown_state, waiting_text
from .usage import idle_since, kernel_usage
from .user_metrics import UsageCounter

# The request of a kernel without a GPU.
PLAIN = Request(GpuShare(0))
LAST_ENDED = 20
# The report of another program's kernel; the reports of our own have their access level as key.
FOREIGN = "foreign"
_NOT_RUNNING = ("queued", "starting", "ended")
# Of a thousand kernels, the property is slow.
_WORDS = {access: access.word for access in Access}


class LocalKernel(NamedTuple):
    """A kernel of this server as the server knows it.

    Attributes:
        quotas: What the kernel was granted; empty for a kernel without a GPU.
        dropped_messages: Counts of messages not sent to browsers, by reason; None without a relay.
        activity: What runs in the kernel; None without a relay.
        needed_bytes: The memory limit that would have been enough, for a kernel that has ended
            because its limit was too small.
    """

    id: str
    name: str
    owner: str
    label: str
    request: Request
    state: str
    reason: str | None = None
    queue: QueueEntry | None = None
    execution_state: str | None = None
    created: float | None = None
    quotas: tuple[Quota, ...] = ()
    ending: Ending | None = None
    last_crash: Ending | None = None
    ending_soon: Announcement | None = None
    dropped_messages: Mapping[str, int] | None = None
    activity: Activity | None = None
    interrupted_at: float | None = None
    needed_bytes: int | None = None
    shares: Shares = UNSHARED
    owner_message: OwnerMessage | None = None


def no_budgets(who: User) -> list[Budget]:
    """Return no budget: none is set."""
    return []


def no_invitations(who: User) -> list[OpenInvitation]:
    """Return no invitation: another server has them, or none."""
    return []


@dataclass(frozen=True)
class StatusSnapshot:
    """All that the server knows at one moment.

    Attributes:
        ended: Kernels that have ended, the last one first.
        resizes: Queued resizes of running kernels, by kernel.
        ledger, pending, caps: The ledger, the pending requests and the GPU limits of admission.
        grants: Whether this server grants GPUs.
        counts: How requests left the queue since the server started.
        endings: How kernels ended since the server started; ``failures``: by class.
        usage: Returns the GPU time since the server started, for the metrics.
        budgets_of: Returns the budgets that count for a user.
        invitations_of: Returns the invitations that a user has not answered.
        refusals: How often each of c.Limits refused or delayed something.
    """

    version: str
    node: NodeView = field(default_factory=NodeView)
    # Nodes on other machines.
    nodes: tuple[RemoteNodeView, ...] = ()
    # By the node's name.
    cordons: Mapping[str, Cordon] = field(default_factory=dict)
    kernels: tuple[LocalKernel, ...] = ()
    queue_length: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    endings: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    ended: tuple[EndedKernel, ...] = ()
    resizes: Mapping[str, QueueEntry] = field(default_factory=dict)
    ledger: LedgerSnapshot = field(default_factory=LedgerSnapshot)
    pending: tuple[Pending, ...] = ()
    caps: GpuCaps = field(default_factory=GpuCaps)
    grants: bool = True
    refusals: Mapping[str, int] = field(default_factory=dict)
    usage: Callable[[], Sequence[UsageCounter]] = tuple
    budgets_of: Callable[[User], list[Budget]] = no_budgets
    invitations_of: Callable[[User], list[OpenInvitation]] = no_invitations
    # Reports that were made of earlier snapshots.
    memo: ReportMemo = field(default_factory=ReportMemo, compare=False, repr=False)


def status_report(snapshot: StatusSnapshot, who: User, ended: int = LAST_ENDED) -> Status:
    """Return the answer of GET /aliquot/api/v1/status.

    Every user gets the aggregates; kernels go to their owner and to administrators. Clients request
    it every few seconds, so of the ended kernels it has the last few that the user did not end.
    """
    report = _without_kernels(snapshot, who)
    report["kernels"] = kernel_reports(snapshot, who, ended, but_by=who.name)
    return report


def _without_kernels(snapshot: StatusSnapshot, who: User) -> Status:
    status = snapshot.node.status
    return {
        "version": snapshot.version,
        "user": {
            "name": who.name,
            "role": who.role,
            "gpu_limit": _gpu_limit(snapshot, who),
            "budgets": snapshot.budgets_of(who),
            "invitations": snapshot.invitations_of(who),
        },
        "node": node_report(snapshot),
        "nodes": nodes_report(snapshot.nodes, who.name, snapshot.memo, snapshot.cordons, snapshot.ledger),
        "devices": snapshot.memo.devices(status).reports(who.name, snapshot.ledger) if status else [],
        "queue": {"length": snapshot.queue_length},
        "kernels": [],
    }


def status_text(snapshot: StatusSnapshot, who: User) -> bytes:
    """Return the status report as JSON.

    A kernel's JSON is made once for all users who see the same of it.
    """
    return b"".join(_parts(snapshot, who, list(_texts(snapshot, who))))


async def status_parts(snapshot: StatusSnapshot, who: User) -> list[bytes]:
    """Return the parts of the same text, for many kernels: the loop serves others between some and the next."""
    return _parts(snapshot, who, await in_steps(_texts(snapshot, who)))


def _texts(snapshot: StatusSnapshot, who: User) -> Iterator[bytes]:
    return (made.text() for made in _each_made(snapshot, who, LAST_ENDED, who.name))


def _parts(snapshot: StatusSnapshot, who: User, kernels: Sequence[bytes]) -> list[bytes]:
    parts = [b", "] * (2 * len(kernels) - 1)
    parts[::2] = kernels
    return [to_json(_without_kernels(snapshot, who)).removesuffix("]}").encode(), *parts, b"]}"]


def node_report(snapshot: StatusSnapshot) -> Node:
    """Return the report of this machine as a whole."""
    status = snapshot.node.status
    return {
        "name": status.node if status else "",
        "driver": status.driver if status else None,
        "enforcer": status.enforcer if status else None,
        "untracked_processes": count_processes(status.foreign_processes) if status else 0,
        "overcommit": status.oversubscription if status else 1.0,
        "host_copies": host_copies_report(status.host_copies) if status else None,
        "agent": "ok" if status else "unavailable",
        "message": "\n".join(snapshot.node.problems) or None,
        "cordon": cordon_report(snapshot.cordons.get(status.node)) if status else None,
    }


def _gpu_limit(snapshot: StatusSnapshot, who: User) -> UserGpuLimit | None:
    return (
        gpu_limit_report(snapshot.caps, snapshot.ledger, snapshot.pending, who.name, who.teams)
        if snapshot.grants
        else None
    )


def kernel_reports(
    snapshot: StatusSnapshot, who: User, ended: int | None = None, *, but_by: str | None = None
) -> list[Kernel]:
    """Return the kernels of `each_kernel` as a list."""
    return list(each_kernel(snapshot, who, ended, but_by=but_by))


def each_kernel(
    snapshot: StatusSnapshot, who: User, ended: int | None = None, *, but_by: str | None = None
) -> Iterator[Kernel]:
    """Yield the reports of the kernels that this user may see.

    They are those of this server, of other programs, and the last ``ended`` ones that ended.

    Args:
        snapshot: All that the server knows.
        who: The user.
        ended: The most ended kernels to yield; None for all that are remembered.
        but_by: Leave out ended kernels that this user ended.
    """
    return (made.report for made in _each_made(snapshot, who, ended, but_by))


def _each_made(snapshot: StatusSnapshot, who: User, ended: int | None, but_by: str | None) -> Iterator[Made]:
    memo, status, resizes = snapshot.memo, snapshot.node.status, snapshot.resizes
    known, local = memo.known(status, snapshot.nodes), {kernel.id for kernel in snapshot.kernels}
    failed = {kernel.id for kernel in snapshot.kernels if kernel.state == "ended"}
    why = (
        {one.id: one.ending for one in snapshot.ended if one.id in failed and one.ending.by != but_by} if failed else {}
    )
    of_all = Access.OWN if who.is_admin else None
    for kernel in snapshot.kernels:
        if access := of_all or access_for(who, kernel.owner, kernel.shares):
            told = _with_ending(kernel, why) if failed else kernel
            causes = (told, known.get(told.id), access, resizes.get(told.id))
            yield memo.report(told.id, _WORDS[access], causes, _of_local)
    for other in memo.kernels(status).values() if who.is_admin else memo.owned(status, who.name):
        if other.kernel_id not in local and access_for(who, other.owner):
            yield memo.report(other.kernel_id, FOREIGN, (other, resizes.get(other.kernel_id)), _of_foreign)
    # A thousand, perhaps, most of them other users': the cheapest check comes first.
    his = (one for one in snapshot.ended if one.owner == who.name or who.is_admin)
    news = (one for one in his if one.ending.by != but_by and one.id not in local)
    gone = (one for one in news if access_for(who, one.owner))
    for one in islice(gone, ended):
        yield _remembered(snapshot, _as_local(one), None, Access.OWN)


@dataclass(frozen=True)
class OneKernel:
    """One kernel as a user may see it: its state, and its report, which is made when it is asked for."""

    state: str
    made: Callable[[], Made]

    def report(self) -> Kernel:
        return self.made().report


def find_kernel(snapshot: StatusSnapshot, who: User, kernel_id: str) -> OneKernel | None:
    """Find one of the kernels of `kernel_reports`. ``snapshot`` may hold this kernel alone.

    Returns:
        None for a kernel that does not exist, and for one that this user may not see.
    """
    local = next((kernel for kernel in snapshot.kernels if kernel.id == kernel_id), None)
    ended = next((one for one in snapshot.ended if one.id == kernel_id), None)
    memo, status = snapshot.memo, snapshot.node.status
    known = (memo.kernels(status) if local is None else memo.known(status, snapshot.nodes)).get(kernel_id)
    if local is not None:
        if ended is not None:
            local = _with_ending(local, {kernel_id: ended.ending})
    elif known is not None:
        if not access_for(who, known.owner):
            return None
        causes = (known, snapshot.resizes.get(kernel_id))
        make = partial(memo.report, kernel_id, FOREIGN, causes, _of_foreign)
        return OneKernel(shown_state(_foreign_state(known), known), make)
    elif ended is not None:
        local = _as_local(ended)
    access = Access.NONE if local is None else access_for(who, local.owner, local.shares)
    if local is None or not access:
        return None
    return OneKernel(shown_state(local.state, known), partial(_remembered, snapshot, local, known, access))


def _remembered(snapshot: StatusSnapshot, kernel: LocalKernel, known: KernelStatus | None, access: Access) -> Made:
    """Return the kernel's report for users with this access.

    All of them get the same object until something in it changes.
    """
    causes = (kernel, known, access, snapshot.resizes.get(kernel.id))
    return snapshot.memo.report(kernel.id, _WORDS[access], causes, _of_local)


def _of_local(kernel: LocalKernel, known: KernelStatus | None, access: Access, resize: QueueEntry | None) -> Kernel:
    entry, limit = kernel.queue, kernel.request.memory_limit
    state = shown_state(kernel.state, known)
    return {
        "id": kernel.id,
        "name": kernel.name,
        "owner": kernel.owner,
        "access": access.word,
        "shares": kernel.shares.report() if access is Access.OWN else None,  # for its owner alone
        "label": kernel.label,
        "gpus": float(kernel.request.gpus),
        "requested_memory_bytes": None if limit is None else int(limit),
        "priority": kernel.request.workload_class.priority,
        "state": state,
        "reason": kernel.reason or waiting_text(known.residency if known else None),
        "queue_position": None if entry is None else entry.position,
        "queue_length": None if entry is None else entry.length,
        "wait_reason": None if entry is None else entry.why.report(),
        "expected_start": None if entry is None else iso(entry.expected_start),
        "predicted_start": None if entry is None else predicted_report(entry.predicted),
        "execution_state": kernel.execution_state,
        "interrupted_at": iso(kernel.interrupted_at),
        "idle_since": None if state in _NOT_RUNNING else iso(idle_since(kernel.activity, known)),
        "resize": None if resize is None else _resize_report(resize),
        "dropped_messages": None if kernel.dropped_messages is None else _dropped_report(kernel.dropped_messages),
        "created": iso(known.created if known is not None else kernel.created),
        "termination": None if kernel.ending is None else _termination_report(kernel.ending),
        "last_crash": None if kernel.last_crash is None else _termination_report(kernel.last_crash),
        "scheduled_termination": None if kernel.ending_soon is None else _announcement(kernel.ending_soon),
        "owner_message": kernel.owner_message if access is Access.OWN else None,  # as the shares
        **kernel_usage(known, kernel.quotas, kernel.needed_bytes, runs=state not in _NOT_RUNNING),
    }


def _of_foreign(known: KernelStatus, resize: QueueEntry | None) -> Kernel:
    """Return the report of a kernel that another program of this machine started, as nbclient does."""
    limit = None if known.memory_limit is None else Bytes(known.memory_limit)
    kernel = LocalKernel(
        id=known.kernel_id,
        name=dict(known.attributes).get("kernelspec", ""),
        owner=known.owner,
        label=known.label,
        request=Request(GpuShare(known.hundredths), limit, WorkloadClass(known.workload_class)),
        state=_foreign_state(known),
    )
    return _of_local(kernel, known, Access.OWN, resize)


def _with_ending(kernel: LocalKernel, why: Mapping[str, Ending]) -> LocalKernel:
    """Return the kernel with its ending, if its start failed.

    Jupyter still lists such a kernel, and may start it again.
    """
    ending = why.get(kernel.id) if kernel.state == "ended" else None
    return kernel if ending is None else kernel._replace(reason=ending.message, ending=ending)


def _as_local(ended: EndedKernel) -> LocalKernel:
    """Return an ended kernel in the form of a listed one."""
    return LocalKernel(
        id=ended.id,
        name=ended.name,
        owner=ended.owner,
        label=ended.label,
        request=ended.request or PLAIN,
        state="ended",
        reason=ended.ending.message,
        ending=ended.ending,
        needed_bytes=ended.needed_bytes,
    )


def _resize_report(entry: QueueEntry) -> Resize:
    """Return the report of a queued resize."""
    limit = entry.request.memory_limit
    return {
        "state": "queued",
        "gpus": float(entry.request.gpus),
        "requested_memory_bytes": None if limit is None else int(limit),
        "priority": entry.request.workload_class.priority,
        "reason": entry.reason,
        "position": entry.position,
        "queue_length": entry.length,
        "wait_reason": entry.why.report(),
        "expected_start": iso(entry.expected_start),
        "since": iso_moment(entry.since),
    }


def _termination_report(ending: Ending) -> Termination:
    """Return the reason and the time of an end, for people and for programs."""
    return {
        "code": ending.code.value,
        "message": ending.message,
        "at": iso_moment(ending.at),
        "exit_code": ending.exit_code,
        "signal": ending.signal,
        "by": ending.by,
    }


def _announcement(told: Announcement) -> ScheduledTermination:
    return {"at": iso_moment(told.at), "message": told.reason, "can_postpone": told.can_keep}


def _foreign_state(known: KernelStatus) -> str:
    """Return the state that its program and processes show; `shown_state` adds its memory's place."""
    return "ended" if known.ending else "on_gpu" if known.pids else "starting"


def _dropped_report(counts: Mapping[str, int]) -> DroppedMessages:
    return {
        "rate_limit": counts["rate_limit"],
        "closed_socket": counts["closed_socket"],
        "too_large": counts["too_large"],
        "unreadable": counts["unreadable"],
        "relay": counts["relay"],
        "unsent": counts["unsent"],
    }

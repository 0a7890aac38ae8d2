"""The operations of the API, each as a call: its method, path, query, body and the type of its answer.

A function has the name of its `operationId` in gateway/api/openapi.yaml. A test compares all of them
with that file. The socket of node agents (`agents`) is left out: it takes agents' tokens alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Literal, TypeAlias, TypedDict

from jupyter_aliquot.gateway.reports.history import History
from jupyter_aliquot.gateway.reports.holders import Holders
from jupyter_aliquot.gateway.reports.invitation import Invitation, Invitations
from jupyter_aliquot.gateway.reports.kernel import Kernel, Share
from jupyter_aliquot.gateway.reports.moves import MovePlan
from jupyter_aliquot.gateway.reports.outputs import RunningCells
from jupyter_aliquot.gateway.reports.quota import Queue, Quota
from jupyter_aliquot.gateway.reports.status import (
    DryRun,
    Folder,
    Nodes,
    NodeSchedule,
    RemoteNode,
    SessionOptions,
    Sizes,
    Status,
)
from jupyter_aliquot.gateway.reports.usage import UsageReport

from .exchange import PREFIX, Call, path_part

Query = tuple[tuple[str, str], ...]

Priority = Literal["normal", "low"]
ShareKind = Literal["users", "teams"]
InvitedKind = Literal["user", "team"]
Access = Literal["read", "write"]
HistoryRange = Literal["hour", "day", "week"]
UsageGroup = Literal["user", "team", "size", "priority", "model", "day"]


class Unchanged(Enum):
    """The type of `UNCHANGED`: a memory limit that a request does not name."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED
Memory: TypeAlias = str | int | Unchanged | None


class _Kernels(TypedDict):
    kernels: list[Kernel]


class _DryRuns(TypedDict):
    dry_runs: list[DryRun]


class _Shares(TypedDict):
    shares: list[Share]


class _Folders(TypedDict):
    folders: list[Folder]


def status() -> Call[Status]:
    """Return the node, its devices, and the kernels that the requester may see."""
    return _get("status", Status)


def sizes() -> Call[Sizes]:
    """Return the sizes that are listed, and the grammar of all others."""
    return _get("sizes", Sizes)


def session_options(
    kernelspec: str, cpus: str | None = None, ram: str | None = None, folders: str | None = None
) -> Call[SessionOptions]:
    """Return what may be chosen beside the size of a new kernel, and the name that asks for a choice.

    Args:
        kernelspec: In a size, such as ``pytorch.gpu-0.25``.
        cpus: CPUs of the host, such as ``4``.
        ram: Memory of the host, such as ``16GiB``.
        folders: Names of shared folders with commas between, or ``none``.
    """
    query = _query(kernelspec=kernelspec, cpus=cpus, ram=ram, folders=folders)
    return _get("session-options", SessionOptions, query=query)


def dry_run(
    gpus: float | None = None,
    memory: Memory = UNCHANGED,
    priority: Priority | None = None,
    kernel: str | None = None,
    replaces: str | None = None,
    models: str | None = None,
) -> Call[DryRun]:
    """Return what a request for this size would get now. It reserves nothing.

    Args:
        gpus: The share; it may be left out with *kernel*.
        memory: The limit, such as ``6GiB``; None for the share's part.
        priority: ``normal`` or ``low``.
        kernel: A running kernel, whose new size this would be.
        replaces: A kernel that would end for the new one.
        models: The GPU models that a new kernel takes, the preferred one first, such as ``H200,A100``.
    """
    limit = None if isinstance(memory, Unchanged) else "null" if memory is None else str(memory)
    query = _query(gpus=gpus, memory=limit, priority=priority, kernel=kernel, replaces=replaces, models=models)
    return _get("dry-run", DryRun, query=query)


def dry_runs(
    size: Iterable[str], kernel: str | None = None, replaces: str | None = None, models: str | None = None
) -> Call[list[DryRun]]:
    """Return what each of these sizes would get now, in the order of the question.

    Args:
        size: Sizes as kernelspecs' names end, such as ``gpu-0.25``; at most 64.
        kernel: A running kernel, whose new size each would be.
        replaces: A kernel that would end for the new one.
        models: The GPU models that a new kernel takes, the preferred one first, such as ``H200,A100``.
    """
    query = _query(size=list(size), kernel=kernel, replaces=replaces, models=models)
    return _get("dry-runs", _DryRuns, "dry_runs", query)


def kernels() -> Call[list[Kernel]]:
    """Return the kernels that the requester may see, and all remembered ones that ended."""
    return _get("kernels", _Kernels, "kernels")


def kernel(kernel_id: str) -> Call[Kernel]:
    """Return one kernel."""
    return _get(_kernel(kernel_id), Kernel)


def resize_kernel(
    kernel_id: str, gpus: float | None = None, memory: Memory = UNCHANGED, priority: Priority | None = None
) -> Call[Kernel]:
    """Give a running kernel another size or priority. What is left out stays.

    Args:
        kernel_id: The kernel.
        gpus: The share of each of its devices, in all.
        memory: The limit, such as ``8GiB``, or bytes; None for the share's part.
        priority: ``normal`` or ``low``.

    Returns:
        The kernel. Its `resize` is set while the change waits for room.
    """
    body: dict[str, object] = {name: one for name, one in (("gpus", gpus), ("priority", priority)) if one is not None}
    if memory is not UNCHANGED:
        body["memory"] = memory
    return _call("PATCH", _kernel(kernel_id), Kernel, body=body)


def withdraw_resize(kernel_id: str) -> Call[None]:
    """Withdraw a change of size that waits for room."""
    return _call("DELETE", _kernel(kernel_id, "resize"), None)


def swap_out_kernel(kernel_id: str) -> Call[Kernel]:
    """Move the kernel's memory to the host. It comes back with the next use."""
    return _call("POST", _kernel(kernel_id, "swap-out"), Kernel)


def restore_kernel(kernel_id: str) -> Call[Kernel]:
    """Move the kernel's memory back to its devices as soon as there is room."""
    return _call("POST", _kernel(kernel_id, "restore"), Kernel)


def prefetch_kernel(kernel_id: str) -> Call[None]:
    """Announce a use of the kernel: its memory comes back if only idle kernels must leave."""
    return _call("POST", _kernel(kernel_id, "prefetch"), None)


def postpone_culling(kernel_id: str) -> Call[None]:
    """Postpone the end of an idle kernel: its idle time begins anew."""
    return _call("POST", _kernel(kernel_id, "postpone-culling"), None)


def message_owner(kernel_id: str, text: str) -> Call[None]:
    """Send a message to the kernel's owner, in place of an earlier one. For administrators."""
    return _call("POST", _kernel(kernel_id, "message"), None, body={"text": text})


def kernel_shares(kernel_id: str) -> Call[list[Share]]:
    """Return the users and teams that a kernel is shared with."""
    return _get(_kernel(kernel_id, "shares"), _Shares, "shares")


def share_kernel(kernel_id: str, kind: ShareKind, name: str, access: Access) -> Call[list[Share]]:
    """Share a kernel with a user or team, or change the permission. Returns all shares."""
    path = _kernel(kernel_id, f"shares/{path_part(kind)}/{path_part(name)}")
    return _call("PUT", path, _Shares, "shares", body={"access": access})


def unshare_kernel(kernel_id: str, kind: ShareKind, name: str) -> Call[list[Share]]:
    """Take back what a user or team was given. Returns the shares that are left."""
    path = _kernel(kernel_id, f"shares/{path_part(kind)}/{path_part(name)}")
    return _call("DELETE", path, _Shares, "shares")


def kernel_outputs(
    kernel_id: str, messages: bool = True, session: str | None = None, sent: Iterable[str] = ()
) -> Call[RunningCells]:
    """Return the cells that run in a kernel or ended a short while ago, with their output.

    Args:
        kernel_id: The kernel.
        messages: Whether the answer has the messages, too.
        session: The ``session_id`` of the client's websocket to the kernel.
        sent: The ids of earlier requests of the client; `not_received` tells which are lost.
    """
    query = _query(messages=None if messages else "no", session=session, sent=list(sent))
    return _get(_kernel(kernel_id, "outputs"), RunningCells, query=query)


def nodes() -> Call[list[RemoteNode]]:
    """Return the nodes on other machines."""
    return _get("nodes", Nodes, "nodes")


def node(name: str) -> Call[NodeSchedule]:
    """Return whether kernels start on a node, and the kernels there. For administrators."""
    return _get(f"nodes/{path_part(name)}", NodeSchedule)


def cordon_node(name: str, reason: str | None = None) -> Call[NodeSchedule]:
    """Let nothing new start on a node. For administrators."""
    return _call("POST", f"nodes/{path_part(name)}/cordon", NodeSchedule, body={"reason": reason})


def drain_node(name: str, reason: str | None = None) -> Call[NodeSchedule]:
    """Cordon a node, and have its kernels swapped out. For administrators."""
    return _call("POST", f"nodes/{path_part(name)}/drain", NodeSchedule, body={"reason": reason})


def uncordon_node(name: str) -> Call[NodeSchedule]:
    """Let kernels start on a node again. For administrators."""
    return _call("POST", f"nodes/{path_part(name)}/uncordon", NodeSchedule)


def moves(size: str | None = None, node: str | None = None) -> Call[MovePlan]:
    """Return a plan of moves of kernels between GPUs, and how the last one ran. For administrators.

    Args:
        size: The size that is to fit, such as ``gpu-1``.
        node: The node; None for any.
    """
    return _get("moves", MovePlan, query=_query(size=size, node=node))


def run_moves(digest: str, size: str | None = None, node: str | None = None) -> Call[MovePlan]:
    """Run the plan of moves that was answered with this digest. For administrators."""
    return _call("POST", "moves", MovePlan, body={"digest": digest, "size": size, "node": node})


def history(
    range: HistoryRange = "hour",
    kernel: Iterable[str] = (),
    device: Iterable[str] = (),
) -> Call[History]:
    """Return the use of devices and kernels in steps.

    Args:
        range: ``hour``, ``day`` or ``week``.
        kernel: Ids of kernels; none for all.
        device: Uuids of devices; none for all.
    """
    query = _query(range=range, kernel=list(kernel), device=list(device), format="json")
    return _get("history", History, query=query)


def history_csv(
    range: HistoryRange = "hour",
    kernel: Iterable[str] = (),
    device: Iterable[str] = (),
) -> Call[str]:
    """Return the same as CSV, one line for each step."""
    query = _query(range=range, kernel=list(kernel), device=list(device), format="csv")
    return _get("history", str, query=query)


def usage(
    month: str | None = None,
    begin: str | None = None,
    end: str | None = None,
    by: Iterable[UsageGroup] = ("user",),
    user: Iterable[str] = (),
    team: Iterable[str] = (),
) -> Call[UsageReport]:
    """Return GPU-hours, and the budgets that they count for.

    Args:
        month: Such as ``2026-11``; without it and the days, the present month.
        begin: The first day, such as ``2026-11-01``, or a moment with an offset from UTC.
        end: The day after the last one, or such a moment.
        by: What rows are by.
        user: Users; none for all that the requester may see.
        team: Teams; none for all.
    """
    days = {"month": month, "from": begin, "to": end}
    query = _query(**days, by=list(by), user=list(user), team=list(team), format="json")
    return _get("usage", UsageReport, query=query)


def usage_csv(
    month: str | None = None,
    begin: str | None = None,
    end: str | None = None,
    by: Iterable[UsageGroup] = ("user",),
    user: Iterable[str] = (),
    team: Iterable[str] = (),
) -> Call[str]:
    """Return the same as CSV, one line for each row."""
    days = {"month": month, "from": begin, "to": end}
    query = _query(**days, by=list(by), user=list(user), team=list(team), format="csv")
    return _get("usage", str, query=query)


def folders() -> Call[list[Folder]]:
    """Return the folders that the requester's kernels in containers get."""
    return _get("folders", _Folders, "folders")


def share_folder(
    name: str,
    source: str,
    target: str,
    users: Iterable[str] = (),
    teams: Iterable[str] = (),
    read_only: bool = True,
) -> Call[Folder]:
    """Share a folder, or change one that was shared by REST. For administrators.

    Args:
        name: The folder's name.
        source: Its path on the host, in one of the configured roots.
        target: Its path in the container.
        users: Names of users; ``*`` is everybody.
        teams: Names of teams.
        read_only: Whether kernels may only read.
    """
    body = {"source": source, "target": target, "users": list(users), "teams": list(teams), "read_only": read_only}
    return _call("PUT", f"folders/{path_part(name)}", Folder, body=body)


def unshare_folder(name: str) -> Call[Folder]:
    """Stop sharing a folder. For administrators. Returns the folder as it was."""
    return _call("DELETE", f"folders/{path_part(name)}", Folder)


def invitations() -> Call[Invitations]:
    """Return the folders that the requester shares, and those shared with the requester by other users."""
    return _get("invitations", Invitations)


def invite_to_folder(
    path: str,
    kind: InvitedKind,
    invited: str,
    access: Access = "read",
    name: str = "",
    until: str = "",
) -> Call[Invitation]:
    """Invite a user or team to a folder of the requester, or change access and end of such an invitation.

    Args:
        path: The folder, as the requester's kernels in containers find it; ``~`` is the home.
        kind: ``user`` or ``team``.
        invited: The name of the user or team.
        access: ``read`` or ``write``.
        name: The folder's name for collaborators; empty for the last part of the path.
        until: The moment of its end, such as ``2026-12-01T12:00:00Z``; empty: it does not end by itself.
    """
    body = {"path": path, "kind": kind, "invited": invited, "access": access, "name": name, "until": until}
    return _call("POST", "invitations", Invitation, body=body)


def end_invitation(id: str) -> Call[Invitation]:
    """End an invitation. Returns it as it was. Kernels that run keep the folder until their end."""
    return _call("DELETE", f"invitations/{path_part(id)}", Invitation)


def accept_invitation(id: str) -> Call[Invitation]:
    """Accept an invitation: kernels that the requester starts from now on get the folder."""
    return _call("POST", f"invitations/{path_part(id)}/accept", Invitation)


def decline_invitation(id: str) -> Call[Invitation]:
    """Decline an invitation, also one that was accepted."""
    return _call("POST", f"invitations/{path_part(id)}/decline", Invitation)


def quota() -> Call[Quota]:
    """Return the teams' quotas."""
    return _get("quota", Quota)


def reload_quota() -> Call[Quota]:
    """Make the gateway read the quota file again. For administrators."""
    return _call("POST", "quota/reload", Quota)


def queue() -> Call[Queue]:
    """Return the requests that wait, in the order in which they are served."""
    return _get("queue", Queue)


def holders() -> Call[Holders]:
    """Return kernels and users with what they hold and use. For administrators."""
    return _get("holders", Holders)


def metrics() -> Call[str]:
    """Return the metrics as Prometheus text. For administrators."""
    return _get("metrics", str)


def openapi() -> Call[dict[str, Any]]:
    """Return the server's own OpenAPI document."""
    return _get("openapi.json", dict[str, Any])


def _get(path: str, answer: Any, field: str = "", query: Query = ()) -> Call[Any]:
    return Call("GET", f"{PREFIX}/{path}", answer, field, query)


def _call(
    method: str, path: str, answer: type | None, field: str = "", body: Mapping[str, object] | None = None
) -> Call[Any]:
    # A POST without a body gets an empty object: some proxies refuse a body of unknown length.
    text = None if method == "DELETE" else json.dumps(body if body is not None else {})
    return Call(method, f"{PREFIX}/{path}", answer, field, body=text)


def _query(**asked: str | float | Iterable[str] | None) -> Query:
    """Return the parameters that are not None; each entry of a list is one of its name."""
    pairs: list[tuple[str, str]] = []
    for name, value in asked.items():
        if isinstance(value, list):
            pairs += [(name, str(one)) for one in value]
        elif value is not None:
            pairs.append((name, str(value)))
    return tuple(pairs)


def _kernel(kernel_id: str, more: str = "") -> str:
    return f"kernels/{path_part(kernel_id)}" + (f"/{more}" if more else "")

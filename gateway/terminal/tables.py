"""Tables for the terminal, from the node agent's status. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timezone

from rich.console import Console, Group, RenderableType
from rich.text import Text

from jupyter_aliquot.gateway.node.unhooked import process_text
from jupyter_aliquot.gateway.status.compute import share_text, slowdown_text
from jupyter_aliquot.gateway.status.residency import residency_text, waiting_text
from jupyter_aliquot.gateway.status.usage import control_state
from jupyter_aliquot.gpu_hook.client.reports import DeviceStatus, KernelDeviceStatus, KernelStatus, NodeStatus
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, WorkloadClass

from .ranked_table import RankedTable

SOFTWARE_GPU_NOTE = "software GPU: compiled GPU code is timed, not executed; these are no figures of a real GPU"
_UNFOLDED = 1000  # cells of a line that goes to a file or a program
_NUMBERS = {
    "reserved",
    "limit",
    "used",
    "peak",
    "context",
    "host",
    "peak used",
    "memory",
    "busy",
    "age",
    "slowdown",
    "throttled",
}
# The columns that a narrow terminal leaves out, in this order.
_KERNELS_DROP = (
    *("processes", "hook", "context", "throttled", "slowdown", "host", "peak", "share", "GPU time", "age"),
    *("owner", "id", "limit", "residency"),
)
_DEVICES_DROP = ("controlled by", "memory reserved", "name", "memory", "reserved")
_SOURCE = " · from the node agent of this machine"
DRIVER_NAMES = {"nvidia": "NVIDIA driver", "softgpu": "software GPU"}


def status_view(status: NodeStatus, queue: Sequence[tuple[str, ...]] | None) -> RenderableType:
    """Draw a node: its devices, its kernels, and the queue; a queue of None is not drawn."""
    driver = DRIVER_NAMES.get(status.driver, status.driver)
    parts: list[RenderableType] = [
        Text(f"node {status.node} · {driver} · {_limits(status)}{_promises(status)}{_SOURCE}"),
        devices_table(status.devices),
        kernels_table(status.kernels) if status.kernels else Text("No kernel holds a GPU."),
    ]
    parts += [Text(line, style="red") for line in warnings(status)]
    if queue is not None:
        parts.append(queue_table(queue) if queue else Text("No kernel is queued."))
    return Group(*parts, *software_note(status.driver))


def software_note(driver: str | None) -> list[Text]:
    """Return a line that says what the figures of a software GPU mean; none for a real one."""
    return [Text(SOFTWARE_GPU_NOTE, style="dim")] if driver == "softgpu" else []


def _limits(status: NodeStatus) -> str:
    """Return how the node holds memory limits, or that it cannot."""
    is_broken = status.enforcer == "hook" and status.hook_problem
    return "memory limits are NOT held" if is_broken else f"memory limits by {status.enforcer}"


def _promises(status: NodeStatus) -> str:
    """Return the node's overcommit, and the host memory of copies of swapped-out kernels."""
    parts = [f" · overcommit: {status.oversubscription:g} times its memory"] if status.oversubscription > 1 else []
    copies = status.host_copies
    if copies is not None and (copies.used_bytes or status.oversubscription > 1):
        of = "" if copies.budget_bytes is None else f" of {Bytes(copies.budget_bytes)}"
        parts.append(f" · {Bytes(copies.used_bytes)}{of} of host memory for copies")
    return "".join(parts)


def warnings(status: NodeStatus) -> list[str]:
    """Return the warnings, one line each.

    They concern each kernel that waits for memory, each process without hook, and each limit that
    fails.
    """
    lines = [printable(status.hook_problem)] if status.hook_problem else []
    for kernel in status.kernels:
        name = printable(kernel.label or kernel.kernel_id[:8])
        lines += [f"kernel {name}: {printable(process_text(process))}" for process in kernel.unhooked_processes]
        if kernel.interception.startswith("failed"):
            lines.append(f"kernel {name}: the hook does not hold its memory limit: {printable(kernel.interception)}")
        waits, over = waiting_text(kernel.residency), _over_limit(kernel)
        lines += [f"kernel {name}: {printable(waits)}"] if waits else []
        lines += [f"kernel {name}: throttled: {printable(why)}" for why in _throttle_reasons(kernel)]
        if over:
            fails = "its allocations fail until it uses less"
            lines.append(f"kernel {name}: {Bytes(over)} over its memory limit, contexts included; {fails}")
        if kernel.enforcement not in ("holds", "pending"):
            lines.append(f"kernel {name}: limits by {status.enforcer} {printable(kernel.enforcement)}")
    lines += [f"no kernel's: {printable(process_text(process))}" for process in status.foreign_processes]
    lines += [
        f"gpu{device.index}: {why_no_overcommit(device)}" for device in status.devices if why_no_overcommit(device)
    ]
    lines += [status.host_memory_problem] if status.host_memory_problem else []
    return lines


def why_no_overcommit(device: DeviceStatus) -> str:
    """Return why a device is not overcommitted at all; empty where it is, or need not be."""
    if device.overcommit is None or device.overcommit > 1 or not device.overcommit_reason:
        return ""
    return f"not overcommitted: {device.overcommit_reason}"


def _throttle_reasons(kernel: KernelStatus) -> list[str]:
    told = [device.compute for device in kernel.devices if device.compute is not None]
    return list(dict.fromkeys(one.reason for one in told if one.reason))


def _over_limit(kernel: KernelStatus) -> int:
    return sum(device.beyond_quota_bytes for device in kernel.devices)


def devices_table(devices: Sequence[DeviceStatus]) -> RankedTable:
    """Make one row a device: the reserved and the used part."""
    names = ("device", "name", "reserved", "memory reserved", "memory used", "memory", "busy", "controlled by")
    table = plain_table(*names, drop_first=_DEVICES_DROP)
    for device in devices:
        table.add_row(
            f"gpu{device.index}",
            f"{device.name} (lost)" if device.lost else device.name,
            f"{GpuShare(device.reserved_hundredths)} GPU",
            str(Bytes(device.reserved_bytes)),
            str(Bytes(device.used_bytes)),
            str(Bytes(device.memory_bytes)),
            f"{device.utilization_percent} %",
            "–" if device.compute_control is None else device.compute_control.controller,
            style="red" if device.lost else None,
        )
    return table


def kernels_table(kernels: Sequence[KernelStatus]) -> RankedTable:
    """Make one row a kernel: limit, use and peak of its memory.

    The id is as short as commands take it.
    """
    ids = short_ids([kernel.kernel_id for kernel in kernels])
    table = plain_table(
        *("kernel", "id", "owner", "size", "limit", "used", "peak", "context", "host", "GPU time"),
        *("share", "slowdown", "throttled", "residency", "hook", "processes", "age"),
        drop_first=_KERNELS_DROP,
    )
    for kernel in sorted(kernels, key=lambda kernel: kernel.created):
        table.add_row(
            printable(kernel.label or ids[kernel.kernel_id]),
            printable(ids[kernel.kernel_id]),
            printable(kernel.owner),
            size_text(kernel.hundredths, WorkloadClass(kernel.workload_class).priority),
            str(Bytes(sum(device.quota_bytes for device in kernel.devices))),
            str(Bytes(sum(device.charged_bytes for device in kernel.devices))),
            str(Bytes(sum(device.peak_bytes for device in kernel.devices))),
            str(Bytes(sum(device.context_bytes for device in kernel.devices))),
            str(Bytes(kernel.host_memory.charged_bytes)),
            seconds_text(sum(map(_gpu_seconds, kernel.devices))),
            *_compute_cells(kernel),
            printable(residency_text(kernel)),
            printable(control_state(kernel.interception)),
            " ".join(map(str, kernel.pids)) or "–",
            age_text(time.time() - kernel.created),
        )
    return table


def _gpu_seconds(device: KernelDeviceStatus) -> float:
    """Return a kernel's own GPU time; the driver's, with its neighbors' slices, where the agent counts no other."""
    return device.busy_seconds if device.compute is None else device.compute.own_seconds


def _compute_cells(kernel: KernelStatus) -> tuple[str, str, str]:
    """Return share, slowdown and throttled time.

    Those on several devices stand one after the other.
    """
    told = [device.compute for device in kernel.devices if device.compute is not None]
    if not told:
        return "–", "–", "–"
    throttled = seconds_text(sum(one.throttled_seconds for one in told))
    return " / ".join(map(share_text, told)), " / ".join(slowdown_text(one.stretch) for one in told), throttled


def queue_table(queue: Sequence[tuple[str, ...]]) -> RankedTable:
    """Make one row a queued request."""
    names = ("waiting", "id", "owner", "size", "position", "since", "why")
    table = plain_table(*names, drop_first=("owner", "since", "id", "size"), wrapped=("why",))
    for row in queue:
        table.add_row(*row)
    return table


def ended_table(ended: Sequence[tuple[str, ...]]) -> RankedTable:
    """Make one row an ended kernel."""
    drop_first = ("code", "owner", "size")
    table = plain_table("ended", "owner", "size", "since", "code", "why", drop_first=drop_first, wrapped=("why",))
    for row in ended:
        table.add_row(*row)
    return table


def size_text(hundredths: int, priority: str) -> str:
    """Return the size as ``0.25 GPU``, with ``low`` for low priority."""
    return f"{GpuShare(hundredths)} GPU" + (" low" if priority == "low" else "")


def seconds_text(seconds: float) -> str:
    """Return a GPU time, with two decimals below a minute, else in minutes."""
    return f"{seconds:.2f} s" if seconds < 60 else f"{seconds / 60:.1f} min"


def age_text(seconds: float) -> str:
    """Return ``42 s``, ``3 min`` or ``5 h``."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def clock_text(moment: str, now: datetime | None = None) -> str:
    """Return a moment of a report by this machine's clock: ``14:05`` today, else ``2026-11-23 14:05``."""
    at = moment_of(moment).astimezone()
    today = (now or datetime.now(timezone.utc)).astimezone().date()
    return f"{at:%H:%M}" if at.date() == today else f"{at:%Y-%m-%d %H:%M}"


def moment_of(text: str) -> datetime:
    """Return the moment of a report's text (ISO 8601). Python 3.10 does not read the ``Z`` of UTC."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def short_ids(ids: Sequence[str], least: int = 8) -> dict[str, str]:
    """Map each id to its first letters, as many as distinguish all ids. Commands take these."""
    length = least
    while len({one[:length] for one in ids}) < len(set(ids)):
        length += 1
    return {one: one[:length] for one in ids}


def console() -> Console:
    """Return standard output as a console.

    It has colors and the width of a terminal, or plain lines of any length.
    """
    found = Console(highlight=False, markup=False)
    return found if found.is_terminal else Console(highlight=False, markup=False, width=_UNFOLDED, no_color=True)


def printable(text: str) -> str:
    """Replace the control characters of a name, which a terminal would interpret."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def plain_table(*columns: str, drop_first: Sequence[str] = (), wrapped: Sequence[str] = ()) -> RankedTable:
    """Make a table without lines, with numbers on the right.

    A narrow terminal leaves out *drop_first*.
    """
    numbers = [name for name in columns if name in _NUMBERS or name.startswith("memory ") or name.endswith("GPU time")]
    return RankedTable(columns, drop_first, numbers, wrapped)

"""The node agent's reports of residency as frozen values.

They say where a kernel's memory is, and why it waits. This module reads JSON objects, and does no
I/O. It also reads the status of an agent from before residency, which has no such report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription

from .checks import checked

# The ``mode_reason`` of a kernel that was started in this mode; any other reason is a finding.
MODE_IS_OFF = "its residency mode is off"


@dataclass(frozen=True)
class Unswappable:
    """Memory of a kernel that no swap moves, and the reason.

    Reasons are ``ipc``, ``exported``, ``context`` and so on.
    """

    reason: str
    bytes: int


@dataclass(frozen=True)
class Waits:
    """A kernel that wants its memory back and has no room yet.

    ``before`` is the number of kernels that are served first.
    """

    reason: str
    seconds: float
    before: int = 0
    expected_seconds: float | None = None


@dataclass(frozen=True)
class Moving:
    """The progress of a copy of a kernel's memory, out or in."""

    done_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class ResidencyStatus:
    """The residency of one kernel.

    ``state`` is a word of the table in docs/reference/kernel-life.md. ``mode_reason`` says why it
    can never be swapped; it is empty where it can. ``refusal`` says why its last swap failed.
    ``is_lost``: its GPU memory never comes back, as ``refusal`` says.
    ``left_for`` says why it was last taken out, by a word of docs/reference/agent-protocol.md.
    ``swap_out_waits_for``: what a swap-out that a user requested waits for; None: none is to come.
    ``immovable_because``: why it cannot move to another device of its node; None: the agent moves none.
    ``restore_seconds``: how long a cell would wait for its memory, of a kernel that is out.
    ``since`` and ``idle_since`` are in seconds since the epoch. ``is_busy``: a cell, a call or the
    device works for it.
    """

    state: str = "resident"
    mode: str = "off"
    since: float | None = None
    swapped_bytes: int = 0
    swappable_bytes: int = 0
    unswappable: tuple[Unswappable, ...] = ()
    refusal: str | None = None
    waits: Waits | None = None
    lease: str | None = None
    swaps_out: int = 0
    swaps_in: int = 0
    waited_seconds: float = 0.0
    mode_reason: str = ""
    idle_since: float | None = None
    is_busy: bool = False
    moving: Moving | None = None
    left_for: str | None = None
    restore_seconds: float | None = None
    swap_out_waits_for: str | None = None
    immovable_because: str | None = None
    is_lost: bool = False

    @property
    def obstacle(self) -> str:
        """Return why a kernel whose mode allows swaps can never be swapped.

        Empty: it can, or its mode is off.
        """
        return "" if self.mode_reason == MODE_IS_OFF else self.mode_reason


@dataclass(frozen=True)
class HostCopies:
    """Host memory with copies of swapped kernels, in total.

    ``budget_bytes`` None: no limit.
    """

    used_bytes: int = 0
    budget_bytes: int | None = None
    spilled_bytes: int = 0


@dataclass(frozen=True)
class ReservedShare:
    """The part of a device that one class reserved."""

    hundredths: int
    bytes: int


@dataclass(frozen=True)
class OversubscriptionStatus:
    """The factor by which more may be reserved than there is.

    ``host_bytes`` is the budget for memory that no device has. None: no limit.
    """

    production: float = 1.0
    opportunistic: float = 1.0
    host_bytes: int | None = None
    largest_kernel_bytes: int = 0
    ceilings: Mapping[str, float] = field(default_factory=dict)  # by device

    def rule(self) -> Oversubscription:
        """Return the rule, as placement takes it."""
        return Oversubscription(self.production, self.opportunistic, self.host_bytes, self.ceilings)


def read_oversubscription(report: Mapping[str, Any] | None) -> OversubscriptionStatus:
    """Read the overcommit; an agent without a report reserves what there is.

    Raises the exceptions of read_residency.
    """
    if report is None:
        return OversubscriptionStatus()
    budget = report.get("host_bytes")
    made = OversubscriptionStatus(
        production=float(report["production"]),
        opportunistic=float(report["opportunistic"]),
        host_bytes=None if budget is None else int(budget),
        # an earlier agent does not report it
        largest_kernel_bytes=int(report.get("largest_kernel_bytes", 0)),
        ceilings={str(uuid): float(ratio) for uuid, ratio in report.get("ceilings", {}).items()},
    )
    return checked(made)


@dataclass(frozen=True)
class LeaseEvent:
    """One message of the agent to the watcher of a kernel.

    ``waits_seconds`` None: it waits for nothing. ``reason`` is a word of
    docs/reference/agent-protocol.md. ``waiting_calls`` 0: no call waits yet.
    """

    kernel_id: str
    state: str
    waits_seconds: float | None = None
    waiting_calls: int = 0
    position: int | None = None
    before: int = 0
    reason: str | None = None
    expected_seconds: float | None = None


def read_residency(report: Mapping[str, Any] | None) -> ResidencyStatus | None:
    """Return the residency, or None for an agent without a report.

    Raises KeyError, TypeError, ValueError or AttributeError.
    """
    if report is None:
        return None
    refusal, lease, since, waits = (report.get(name) for name in ("refusal", "lease", "since", "waits"))
    idle_since, moving, left_for = (report.get(name) for name in ("idle_since", "moving", "left_for"))
    # an earlier agent does not report these
    restore, pending = report.get("restore_seconds"), report.get("swap_out_waits_for")
    immovable = report.get("immovable_because")
    made = ResidencyStatus(
        state=str(report["state"]),
        mode=str(report["mode"]),
        since=None if since is None else float(since),
        swapped_bytes=int(report.get("swapped_bytes", 0)),
        swappable_bytes=int(report.get("swappable_bytes", 0)),
        unswappable=tuple(
            checked(Unswappable(str(one["reason"]), int(one["bytes"]))) for one in report.get("unswappable", ())
        ),
        refusal=None if refusal is None else str(refusal),
        waits=None if waits is None else _read_waits(waits),
        lease=None if lease is None else str(lease),
        swaps_out=int(report.get("swaps_out", 0)),
        swaps_in=int(report.get("swaps_in", 0)),
        waited_seconds=float(report.get("waited_seconds", 0.0)),
        mode_reason=str(report.get("mode_reason") or ""),
        idle_since=None if idle_since is None else float(idle_since),
        is_busy=_is_busy(report),
        left_for=None if left_for is None else str(left_for),
        restore_seconds=None if restore is None else float(restore),
        swap_out_waits_for=None if pending is None else str(pending),
        immovable_because=None if immovable is None else str(immovable),
        is_lost=report.get("is_lost") is True,
        moving=None if moving is None else checked(Moving(int(moving["done_bytes"]), int(moving["total_bytes"]))),
    )
    return checked(made)


def _is_busy(report: Mapping[str, Any]) -> bool:
    """Return whether the kernel is busy: both idle fields are null, or missing.

    Present agents report since when it is idle; how long, only in full reports.
    """
    name = "idle_seconds" if "idle_seconds" in report else "idle_since"
    return name in report and report[name] is None


def read_host_copies(report: Mapping[str, Any] | None) -> HostCopies | None:
    """Return the host copies, or None for an agent without a report.

    Raises the exceptions of read_residency.
    """
    if report is None:
        return None
    budget = report.get("budget_bytes")
    made = HostCopies(
        used_bytes=int(report.get("used_bytes", 0)),
        budget_bytes=None if budget is None else int(budget),
        spilled_bytes=int(report.get("spilled_bytes", 0)),
    )
    return checked(made)


def _read_waits(report: Mapping[str, Any]) -> Waits:
    expected = report.get("expected_seconds")
    made = Waits(
        reason=str(report.get("reason", "")),
        seconds=float(report.get("seconds", 0.0)),
        before=int(report.get("before", 0)),
        expected_seconds=None if expected is None else float(expected),
    )
    return checked(made)

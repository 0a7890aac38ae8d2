"""Decide whether an idle kernel is to return its frameworks' caches. Pure.

It does so once in a quiet period, and only where another kernel shares a device with it: its next
cell pays for memory again.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Activity
from jupyter_aliquot.gpu_hook.agent.swap.table import KernelState


@dataclass(frozen=True)
class TrimPolicy:
    """The trim options. ``idle_seconds`` 0: never."""

    idle_seconds: float = 20.0
    # on its devices; a smaller cache cannot be worth a cell's new allocations
    least_bytes: int = 64 << 20


@dataclass(frozen=True)
class TrimView:
    """One kernel whose relay can trim.

    ``asked_for`` is the quiet period of its last request.
    """

    activity: Activity | None
    idle_since: float | None
    state: KernelState
    held_bytes: int
    has_neighbours: bool
    asked_for: float | None = None


def is_trim_due(view: TrimView, now: float, policy: TrimPolicy) -> bool:
    """Return whether a trim is due.

    A swapped kernel gets no request: its frameworks would call the device, and wake it.
    """
    quiet = quiet_period(view.activity)
    return (
        policy.idle_seconds > 0
        and quiet is not None
        and quiet != view.asked_for
        and view.state is KernelState.RESIDENT
        and view.has_neighbours
        and view.held_bytes >= policy.least_bytes
        and view.idle_since is not None
        and now - view.idle_since >= policy.idle_seconds
    )


def quiet_period(activity: Activity | None) -> float | None:
    """Return the quiet period, named by its beginning.

    None while requests are open, or no relay reports.
    """
    return None if activity is None or activity.open else activity.since


def add_trim_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trim-after",
        type=_seconds,
        default=TrimPolicy.idle_seconds,
        metavar="SECONDS",
        help="an idle kernel on a shared device returns what torch and CuPy keep after so long; 0: never (default 20)",
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not valid. Use 0 or more seconds")
    return value

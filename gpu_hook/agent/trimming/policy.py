"""Pure: whether an idle kernel is to return what its frameworks keep. Once in a quiet period, and only where somebody
shares a device with it: the next cell pays for its memory again.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Activity
from jupyter_aliquot.gpu_hook.agent.swap.table import KernelState


@dataclass(frozen=True)
class TrimPolicy:
    """``idle_seconds`` 0: never."""

    idle_seconds: float = 20.0
    least_bytes: int = 64 << 20  # on its devices; below, a cache cannot be worth a cell's new allocations


@dataclass(frozen=True)
class TrimView:
    """One kernel whose relay can trim. ``asked_for``: the quiet period in which it was last asked to."""

    activity: Activity | None
    idle_since: float | None
    state: KernelState
    held_bytes: int
    has_neighbours: bool
    asked_for: float | None = None


def is_trim_due(view: TrimView, now: float, policy: TrimPolicy) -> bool:
    """A swapped kernel is never asked: its frameworks would call the device, and wake it."""
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
    """It is named by its beginning; None while something is open, or nobody tells."""
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
        raise argparse.ArgumentTypeError(f"asked {text!r}; ask for 0 or more seconds")
    return value

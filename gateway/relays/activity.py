"""A kernel's activity as values, and in the form of Jupyter's models.

Work is every request that is not finished: cells and comm messages, on subshells, too. Requests for
information do not count. Jupyter's own `execution_state` shows only the last status message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone

from jupyter_aliquot.provisioner.relay.client.link import Activity as RelayActivity, KernelState


@dataclass(frozen=True)
class Activity:
    """A kernel's unfinished requests. Times are seconds since the epoch.

    ``work`` of them are cells and comm messages. Of ``busy_since`` and ``idle_since`` one is None.
    ``last_activity``: when work last began or ended, or something was printed; a busy kernel is
    active now, whatever this says.
    """

    open: int
    work: int
    busy_since: float | None
    idle_since: float | None
    last_activity: float

    @property
    def is_busy(self) -> bool:
        return self.work > 0

    def active_until(self, now: float) -> float:
        """Return until when the kernel was active: now, while it works."""
        return now if self.is_busy else self.last_activity


def read_activity(before: Activity | None, told: RelayActivity) -> Activity:
    """Return the activity after the relay's message."""
    if told.work:
        return Activity(told.open, told.work, told.last if told.since is None else told.since, None, told.last)
    is_still_idle = before is not None and before.idle_since is not None
    idle_since = before.idle_since if before is not None and is_still_idle else told.last
    return Activity(told.open, 0, None, idle_since, told.last)


def begin_anew(before: Activity | None, now: float) -> Activity | None:
    """Return the activity of the process that takes the kernel's place, which is idle from its start."""
    if before is None or before.is_busy:  # the relay tells the end of the work
        return before
    return replace(before, idle_since=now, last_activity=now)


def execution_state(kernel: KernelState | None, activity: Activity | None, *, restarts: bool) -> str | None:
    """Return the state for Jupyter's model; None if nothing is known.

    ``restarts``: the kernel restarts by itself.
    """
    if kernel is None or activity is None:
        return None
    if kernel.state == "ended":
        return "restarting" if restarts else "dead"
    if kernel.state == "starting":
        return "starting"
    return "busy" if activity.is_busy else "idle"


def moment(seconds: float) -> datetime:
    """Return a time as Jupyter's models keep it."""
    return datetime.fromtimestamp(seconds, timezone.utc)

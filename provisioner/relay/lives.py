"""When a relay ends its kernel, and by which steps. Pure: time and facts are arguments."""

from __future__ import annotations

import signal
from dataclasses import dataclass

ORPHANED = "orphaned"
OWNER_ENDED = "owner_ended"
STOPPED = "stopped"
TERMINATED = "terminated"  # SIGTERM to the relay; written down as stopped

ASK = 0  # shutdown_request: the step that no signal is
_GIVE_UP_SECONDS = 5.0
_UNREACHABLE_SECONDS = 30.0

# After so many seconds, do this, while the kernel still lives.
STEPS: dict[str, tuple[tuple[float, int], ...]] = {
    ORPHANED: ((0.0, ASK), (15.0, signal.SIGTERM), (20.0, signal.SIGKILL)),
    OWNER_ENDED: ((0.0, signal.SIGTERM), (2.0, signal.SIGKILL)),
    STOPPED: ((0.0, signal.SIGKILL),),
    TERMINATED: ((0.0, signal.SIGTERM), (5.0, signal.SIGKILL)),
}
# Whose folder nobody will look at again.
LEAVES_NOTHING = frozenset({OWNER_ENDED, STOPPED})


@dataclass(frozen=True)
class Company:
    """Who is there for a kernel. Times are of the monotonic clock. ``can_be_found``: its folder is there."""

    has_gateway: bool
    links: int
    open: int
    left_at: float
    quiet_at: float
    can_be_found: bool = True


def orphaned_at(company: Company, orphan_seconds: float) -> float | None:
    """When the kernel is an orphan, if nothing changes; None: never."""
    if not company.has_gateway or company.links or company.open:
        return None
    if not company.can_be_found:  # no gateway comes back to a socket that has no path
        orphan_seconds = min(orphan_seconds, _UNREACHABLE_SECONDS)
    return max(company.left_at, company.quiet_at) + orphan_seconds


class EndingSteps:
    """One way to an end, walked once."""

    def __init__(self, reason: str, now: float) -> None:
        self.reason = reason
        self._steps = STEPS[reason]
        self._began = now
        self._done = 0

    @property
    def written_reason(self) -> str:
        return STOPPED if self.reason == TERMINATED else self.reason

    def due(self, now: float) -> list[int]:
        """The steps to be done now."""
        found = []
        while self._done < len(self._steps) and now >= self._began + self._steps[self._done][0]:
            found.append(self._steps[self._done][1])
            self._done += 1
        return found

    def is_hopeless(self, now: float) -> bool:
        """Whether even the last step did not help."""
        return self._done == len(self._steps) and now >= self._began + self._steps[-1][0] + _GIVE_UP_SECONDS

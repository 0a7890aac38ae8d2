"""Decide when a relay ends its kernel, and by which steps. Pure: time and facts are arguments."""

from __future__ import annotations

import signal
from dataclasses import dataclass

ORPHANED = "orphaned"
OWNER_ENDED = "owner_ended"
STOPPED = "stopped"
UNREACHABLE = "unreachable"
TERMINATED = "terminated"  # SIGTERM to the relay; recorded as stopped

ASK = 0  # shutdown_request: the only step that is no signal
_GIVE_UP_SECONDS = 5.0
_UNREACHABLE_SECONDS = 30.0
_UNJOINABLE_SECONDS = 5.0

# After so many seconds, do this, while the kernel still lives.
STEPS: dict[str, tuple[tuple[float, int], ...]] = {
    ORPHANED: ((0.0, ASK), (15.0, signal.SIGTERM), (20.0, signal.SIGKILL)),
    # A kernel that ends by itself removes its sockets' names, which another kernel may have by now.
    UNREACHABLE: ((0.0, ASK), (0.0, signal.SIGKILL)),
    OWNER_ENDED: ((0.0, signal.SIGTERM), (2.0, signal.SIGKILL)),
    STOPPED: ((0.0, signal.SIGKILL),),
    TERMINATED: ((0.0, signal.SIGTERM), (5.0, signal.SIGKILL)),
}
# The relay asks a kernel that no relay started, and waits for it.
ASKED_FIRST = frozenset({ORPHANED, UNREACHABLE})
# After these ends no client looks at the folder again.
LEAVES_NOTHING = frozenset({OWNER_ENDED, STOPPED})


@dataclass(frozen=True)
class Company:
    """The company that keeps a kernel alive: gateways, links, work.

    Times are of the monotonic clock.
    """

    has_gateway: bool
    links: int
    open: int
    left_at: float
    quiet_at: float


def orphaned_at(company: Company, orphan_seconds: float) -> float | None:
    """Return when the kernel becomes an orphan if nothing changes; None: never."""
    if not company.has_gateway or company.links or company.open:
        return None
    return max(company.left_at, company.quiet_at) + orphan_seconds


def unreachable_at(company: Company, lost_at: float | None) -> float | None:
    """Return when to end a kernel whose relay has no path since ``lost_at``.

    None: not in the present state.
    """
    if lost_at is None or company.links:
        return None
    return max(company.left_at, lost_at) + _UNREACHABLE_SECONDS


def is_unjoinable(is_left: bool, looking_since: float, now: float) -> bool:
    """Tell whether to end a kernel that a relay joined once, and the next one does not find.

    A kernel that ends removes the names of its sockets, and then it is gone.
    """
    return is_left and now >= looking_since + _UNJOINABLE_SECONDS


class EndingSteps:
    """The steps to one end, each taken once."""

    def __init__(self, reason: str, now: float) -> None:
        self.reason = reason
        self._steps = STEPS[reason]
        self._began = now
        self._done = 0

    @property
    def written_reason(self) -> str:
        return STOPPED if self.reason == TERMINATED else self.reason

    def due(self, now: float) -> list[int]:
        """Return the steps that are due."""
        found = []
        while self._done < len(self._steps) and now >= self._began + self._steps[self._done][0]:
            found.append(self._steps[self._done][1])
            self._done += 1
        return found

    def is_hopeless(self, now: float) -> bool:
        """Tell whether even the last step did not help."""
        return self._done == len(self._steps) and now >= self._began + self._steps[-1][0] + _GIVE_UP_SECONDS

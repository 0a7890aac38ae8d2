"""Expected starts of queued requests: gather the announced ends, and ask the planner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.culling.policy import Announcement
from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.planner import Pending, expected_starts
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gateway.scheduling.wait_reason import WaitCode

# Forecasts take a tenth of the time at most, however often kernels come and go; an older one serves meanwhile.
_RESTS = 9


class ExpectedStarts:
    """The expected starts. Made by SnapshotSource.

    Keeps the last answer: many pages request the status of one moment.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._causes: tuple[LedgerSnapshot, tuple[Pending, ...], dict[str, float], float] | None = None
        self._found: Mapping[str, float] = {}
        self._rests_until = 0.0

    def filled(self, snapshot: AdmissionSnapshot, announced: Mapping[str, Announcement]) -> AdmissionSnapshot:
        """Return the snapshot with the expected start of each request that has one."""
        if snapshot.agent_state != "ok" or all(entry.why.code is WaitCode.NOT_PLANNED for entry in snapshot.queue):
            return snapshot  # requests that no cycle has planned yet start at once, most of them
        ends = {kernel_id: told.at for kernel_id, told in announced.items()}
        ends.update(dict.fromkeys(snapshot.releasing, 0.0))
        # Whole seconds, so that the answer stays the same for a while.
        causes = (snapshot.ledger, snapshot.pending, ends, float(math.floor(self._clock.wall())))
        is_same = self._causes is not None and self._causes[0] is causes[0] and self._causes[1:] == causes[1:]
        began = self._clock.now()
        if not is_same and began >= self._rests_until:
            self._causes, self._found = causes, self._foresee(*causes)
            self._rests_until = began + (1 + _RESTS) * (self._clock.now() - began)
        found = self._found
        queue = tuple(replace(entry, expected_start=found.get(entry.kernel_id)) for entry in snapshot.queue)
        return replace(snapshot, queue=queue)

    def _foresee(
        self, ledger: LedgerSnapshot, pending: tuple[Pending, ...], ends: Mapping[str, float], wall: float
    ) -> Mapping[str, float]:
        # Announcements are in wall clock time, all else in monotonic time.
        ahead = self._clock.wall() - self._clock.now()
        dated = {kernel_id: at - ahead for kernel_id, at in ends.items()}
        found = expected_starts(ledger, pending, dated, wall - ahead)
        return {kernel_id: at + ahead for kernel_id, at in found.items()}

"""Starts of queued requests: expected by announced ends, and predicted from kernels that ended.

For predictions the planner plays futures of the whole queue. Each is compared with the start that
follows, and the error bars are made wider or narrower until four of five come true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from jupyter_aliquot.gateway.base.clock import Clock, iso_moment
from jupyter_aliquot.gateway.culling.policy import Announcement
from jupyter_aliquot.gateway.planning.forecast import (
    MOST_AHEAD,
    Calibration,
    Forecast,
    Habits,
    Holder,
    forecasts,
)
from jupyter_aliquot.gateway.planning.jobs import DEVICE
from jupyter_aliquot.gateway.reports.kernel import PredictedStart
from jupyter_aliquot.gateway.scheduling.foreseeing.ends import expected_starts
from jupyter_aliquot.gateway.scheduling.ledger import Holding, LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.planner import Pending
from jupyter_aliquot.gateway.scheduling.queue import Prediction, QueueEntry
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gateway.scheduling.wait_reason import WaitCode
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE

# Fewer kernels that ended tell nothing of those that run.
LEAST_ENDED = 20
# A prediction stays for so long while the queue is the same: many pages request the status.
_KEEP_SECONDS = 10.0
_MILLI = DEVICE // WHOLE
# Reasons that the end of a kernel takes away.
_FOR_ROOM = (WaitCode.GPU, WaitCode.GPU_MEMORY, WaitCode.AHEAD)
# Forecasts take a tenth of the time at most, however often kernels come and go; an older one serves meanwhile.
_RESTS = 9

# Runs a forecast beside the event loop: for thousands of kernels it takes seconds.
Submit = Callable[[Callable[[], "list[Forecast]"]], "Future[list[Forecast]]"]


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


class PredictedStarts:
    """The predictions. Made by SnapshotSource; ``tenures`` returns the seconds of kernels that ended.

    A forecast is shown from the first status after its end.
    """

    def __init__(self, clock: Clock, tenures: Callable[[], Sequence[float]], submit: Submit | None = None) -> None:
        self._clock = clock
        self._tenures = tenures
        self._submit = submit or ThreadPoolExecutor(1, "aliquot-forecast").submit
        self.calibration = Calibration()
        self._causes: tuple[object, ...] = ()
        self._found: Mapping[str, Prediction] = {}
        # The forecast under way, when it began by both clocks, and the kernels of its requests.
        self._work: tuple[Future[list[Forecast]], float, float, tuple[str, ...]] | None = None
        self._rests_until = 0.0
        # Kernel id to the moment by which its first forecast has it start, on admission's clock; infinity: late.
        self._told: dict[str, float] = {}

    def filled(self, snapshot: AdmissionSnapshot) -> AdmissionSnapshot:
        """Return the snapshot with the prediction of each start that waits for room."""
        self._learn(snapshot)
        # The futures know no models of GPUs.
        wished = {one.kernel_id for one in snapshot.pending if one.wish.models}
        alike = [entry for entry in snapshot.queue if not entry.is_growth and entry.kernel_id not in wished]
        queue = [entry for entry in alike if entry.why.code in _FOR_ROOM][:MOST_AHEAD]
        if not queue or snapshot.agent_state != "ok":
            return snapshot
        waiting = tuple((entry.kernel_id, entry.request) for entry in queue)
        causes = (snapshot.ledger.holdings.keys(), waiting, math.floor(self._clock.wall() / _KEEP_SECONDS))
        self._take()
        if causes != self._causes and self._work is None and self._clock.now() >= self._rests_until:
            self._causes = causes
            self._foresee(snapshot.ledger, queue)
            self._take()
        found = self._found
        filled = tuple(replace(entry, predicted=found.get(entry.kernel_id)) for entry in snapshot.queue)
        return replace(snapshot, queue=filled)

    def _foresee(self, ledger: LedgerSnapshot, queue: Sequence[QueueEntry]) -> None:
        """Begin a forecast."""
        now, wall, tenures = self._clock.now(), self._clock.wall(), self._tenures()
        if len(tenures) < LEAST_ENDED:
            self._found = {}
            return
        running = [one for one in ledger.holdings.values() if not one.is_evicted]
        # Kernels that still run have lasted at least so long; without them the long ones would be missed.
        habits = Habits([*tenures, *(max(0.0, now - one.granted_at) for one in running)])
        devices, holders = _devices(ledger, running, now)
        sizes = [_MILLI * entry.request.gpus.hundredths for entry in queue]
        work = partial(forecasts, devices, holders, sizes, habits, seed=len(tenures))
        self._work = self._submit(work), now, wall, tuple(entry.kernel_id for entry in queue)

    def _take(self) -> None:
        """Take the forecast that has ended."""
        if self._work is None or not self._work[0].done():
            return
        (done, now, wall, kernels), self._work = self._work, None
        self._rests_until = now + (1 + _RESTS) * (self._clock.now() - now)
        found = {}
        for kernel_id, one in zip(kernels, map(self.calibration.told, done.result()), strict=True):
            if one.within < math.inf:
                found[kernel_id] = Prediction(wall + one.low, wall + one.within)
                self._told.setdefault(kernel_id, now + one.within)
        self._found = found

    def _learn(self, snapshot: AdmissionSnapshot) -> None:
        """Note which predictions came true: a start that is late counts as soon as it is."""
        now, waits = self._clock.now(), {entry.kernel_id for entry in snapshot.queue}
        for kernel_id, by in list(self._told.items()):
            holding = snapshot.ledger.holdings.get(kernel_id)
            if kernel_id in waits:
                if by < now:
                    self.calibration.learn(came_true=False)
                    self._told[kernel_id] = math.inf
                continue
            del self._told[kernel_id]
            if holding is not None and by < math.inf:
                self.calibration.learn(came_true=holding.granted_at <= by)


def predicted_report(told: Prediction | None) -> PredictedStart | None:
    """Return ``PredictedStart`` of api/openapi.yaml."""
    return None if told is None else {"earliest": iso_moment(told.earliest), "latest": iso_moment(told.latest)}


def _devices(ledger: LedgerSnapshot, running: Iterable[Holding], now: float) -> tuple[int, list[Holder]]:
    """Return the number of devices and the kernels on them. One that is overcommitted twice counts as two."""
    at: dict[str, tuple[int, int]] = {}
    count = 0
    for node in ledger.nodes:
        for device in () if node.is_away else node.devices:
            times = 0 if device.is_lost else max(1, round(node.rule.most_of(device.uuid)))
            at[device.uuid] = (count, times)
            count += times
    free = [DEVICE] * count
    holders = []
    for one in running:
        parts = []
        for quota in one.grant.quotas:
            first, times = at.get(quota.uuid, (0, 0))
            milli = _MILLI * quota.share.hundredths
            fitting = [place for place in range(first, first + times) if free[place] >= milli]
            for place in fitting[:1]:
                free[place] -= milli
                parts.append((place, milli))
        holders.append(Holder(tuple(parts), max(0.0, now - one.granted_at)))
    return count, holders

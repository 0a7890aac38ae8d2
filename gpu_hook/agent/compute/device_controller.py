"""The compute control of one device: its processes, its controller, and what was measured there.

It reads pages and writes none. It shares nothing with another device.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import (
    MILLISECOND,
    SECOND,
    Controller,
    DeviceSample,
    KernelShare,
    ProcessSample,
    Verdict,
)
from jupyter_aliquot.gpu_hook.agent.pages.activity_page import ActivityWords
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import OPEN
from jupyter_aliquot.gpu_hook.protocol.codec import Pace

from .eviction import Production
from .facts import Member, Owner, kernels_of
from .orders import PAUSES_ONLY, WAITING, fallback, first_order

log = logging.getLogger(__name__)

SHORTEST_PAUSE = 5 * MILLISECOND
LONGEST_PAUSE = SECOND
QUIET = SECOND  # after so long without work, the keeper samples a device less often
QUIET_PAUSE = 150 * MILLISECOND  # and even more rarely the longer it is quiet
MOST_QUIET_PAUSE = 500 * MILLISECOND
AFTER_A_FAILURE = SECOND
SILENT_SECONDS = 2.5  # for an activity page that shows work while no work ends and NVML sees none


@dataclass
class Tally:
    """The time that a kernel had of the device since this agent started, in nanoseconds."""

    own: int = 0
    throttled: int = 0
    used: float | None = None  # by NVML, in its last look


class DeviceController:
    """The control of one device.

    ``make`` makes a controller, which lives as long as there are processes on the device.
    """

    def __init__(self, make: Callable[[], Controller], is_capping: Callable[[bool], bool], is_on: bool = True) -> None:
        self._make = make
        self._is_capping = is_capping
        self._is_on = is_on  # False: no order would reach a hook
        self._controller: Controller | None = None
        self._quiet_since: int | None = None
        self._last_look = -1
        self._owns: dict[str, int] = {}  # kernel -> own time that its controller last reported
        # session -> throttled time that its page last reported
        self._throttled: dict[int, int] = {}
        self.members: dict[int, Member] = {}
        self.shares: Mapping[str, KernelShare] = {}
        self.unholdable: tuple[str, ...] = ()
        self.tallies: dict[str, Tally] = {}
        self.production = Production()
        self.awaited: dict[str, Owner] = {}  # kernels whose processes of an earlier agent are not back
        self.is_awaiting = False  # whether production is among these
        self.is_contended = False
        self.is_lost = False
        self.next_at = 0
        self.cost = 0.0  # of a sample, nanoseconds of a core

    def add(self, member: Member) -> None:
        self.members[member.who.key] = member
        self.tallies.setdefault(member.who.kernel_id, Tally())
        self.refresh(newcomer=member)

    def remove(self, key: int) -> None:
        self.members.pop(key, None)
        self._throttled.pop(key, None)
        if not self.members:
            self._controller = None
            self._owns.clear()
        self.refresh()

    def forget(self, kernel_id: str) -> None:
        self.tallies.pop(kernel_id, None)
        self._owns.pop(kernel_id, None)

    def refresh(self, newcomer: Member | None = None) -> None:
        """Set the orders that hold until the controller's next step.

        Called after processes or their classes changed.
        """
        members = self.members.values()
        has_production = any(member.who.is_production for member in members)
        awaited = {kernel_id for kernel_id, kernel in self.awaited.items() if kernel.reservation.is_production}
        was_contended, had_production, was_awaiting = self.is_contended, self.production.is_there, self.is_awaiting
        self.is_awaiting = bool(awaited)
        is_shared = self._is_capped() or len(kernels_of(members) | awaited) > 1
        self.is_contended = self._is_on and not self.is_lost and is_shared
        if has_production != had_production:
            self.production = Production(has_production)
        if not self.is_contended:
            self.shares, self.unholdable, self._quiet_since = {}, (), None
            for member in members:
                member.order = OPEN
            return
        for member in members:
            first = first_order(member.who.is_production, True, has_production)
            if member is newcomer:
                member.order = first
            elif (
                not was_contended
                or was_awaiting
                or (has_production and not had_production and not member.who.is_production)
            ):
                # It may work in pauses at once: its next message has the activity pages that show them.
                member.order = PAUSES_ONLY if has_production and not member.who.is_production else first
        self._wait_for_production()
        self._choose_samples()
        self.next_at = 0

    def _is_capped(self) -> bool:
        return any(self._is_capping(member.who.is_production) for member in self.members.values())

    def _wait_for_production(self) -> None:
        """Keep opportunistic processes waiting.

        Production that is not back yet shows no work.
        """
        for member in self.members.values():
            if self.is_awaiting and not member.who.is_production:
                member.order = WAITING

    def _choose_samples(self) -> None:
        """Have production measured by samples while no opportunistic kernel can use the device.

        Timing events cost production time, and only opportunistic kernels need its intervals exactly.
        """
        owners = [*(member.process.owner for member in self.members.values()), *self.awaited.values()]
        is_sampled = all(owner.reservation.is_production or owner.is_swapped_out for owner in owners)
        for member in self.members.values():
            order, wants = member.order, is_sampled and member.who.is_production
            wants = wants and order.pace is Pace.MEASURE
            if order.is_sampled != wants:
                member.order = replace(order, is_sampled=wants)

    def step(self, now: int, time_slices: bool) -> None:
        """Sample the processes, and take the controller's orders."""
        if now <= self._last_look:  # wait for a clock that was set back
            self.next_at = now + LONGEST_PAUSE
            return
        self._last_look = now
        if self.is_awaiting and not self._is_capped() and len(kernels_of(self.members.values())) < 2:
            self.next_at = now + LONGEST_PAUSE
            return
        looks = tuple(self._read(member, now) for member in self.members.values())
        self.production = _production(looks)
        try:
            if self._controller is None:
                self._controller = self._make()
            verdict = self._controller.step(DeviceSample(now, looks, time_slices))
            self._take(verdict, looks, now)
        except Exception:
            log.exception("event=compute_controller_failed")
            self._controller = None
            self._owns.clear()
            self.shares, self.unholdable = {}, ()
            for member in self.members.values():
                who = member.who
                member.order = fallback(who.is_production)
            self.next_at = now + AFTER_A_FAILURE
        self._wait_for_production()
        self._choose_samples()

    def end_solo_windows(self) -> None:
        """End the solo windows: the agent ends, or the device is lost."""
        for member in self.members.values():
            if member.order.solo_window % 2:
                member.order = replace(member.order, solo_window=(member.order.solo_window + 1) & 0xFFFFFFFF)

    def _take(self, verdict: Verdict, looks: Sequence[ProcessSample], now: int) -> None:
        for key, order in verdict.orders.items():
            if key in self.members:
                self.members[key].order = order
        self.shares, self.unholdable = verdict.shares, verdict.unholdable
        for kernel_id, share in verdict.shares.items():
            tally = self.tallies.setdefault(kernel_id, Tally())
            tally.own += max(0, share.own - self._owns.get(kernel_id, 0))
            self._owns[kernel_id] = share.own
        for look in looks:
            before = self._throttled.get(look.key, 0)
            if look.throttled != before:
                self.tallies[look.kernel_id].throttled += look.throttled - before
                self._throttled[look.key] = look.throttled
        pause = max(SHORTEST_PAUSE, min(verdict.look_after, LONGEST_PAUSE))
        if any(map(_is_in_use, looks)):
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = now
        elif now - self._quiet_since > QUIET:
            pause = max(pause, QUIET_PAUSE, min(MOST_QUIET_PAUSE, (now - self._quiet_since) // 20))
        self.next_at = now + pause

    def _read(self, member: Member, now: int) -> ProcessSample:
        session, device = member.process.session, member.device
        assert session.hook_side is not None  # holds as long as it is a member
        words, activity_page = session.hook_side.compute(device), member.process.activity_page
        shown = activity_page.read(device)
        self._watch(member, shown, words.occupied, now)
        if member.withdrawn_since is not None:
            shown = shown._replace(is_active=0, since=member.withdrawn_since)

        def ring() -> tuple[list[int], int]:
            return activity_page.intervals(device), activity_page.read(device).interval_count

        return member.reader.read(member.who, words, shown, ring, now, member.own)

    @staticmethod
    def _watch(member: Member, shown: ActivityWords, occupied: int, now: int) -> None:
        """Withdraw an activity page that shows work, but neither changes nor agrees with NVML.

        NVML sees its process do no work.
        """
        said = (shown, occupied)
        if said != member.shown or not shown.is_active:
            member.shown, member.silent_seconds, member.withdrawn_since = said, 0.0, None
        elif member.silent_seconds > SILENT_SECONDS and member.withdrawn_since is None:
            log.warning(
                "event=activity_page_withdrawn kernel=%s pid=%d", member.who.kernel_id, member.process.session.pid
            )
            member.withdrawn_since = now


def _is_in_use(look: ProcessSample) -> bool:
    return bool(look.is_active or look.in_flight or look.waiting_launches or look.intervals)


def _production(looks: Sequence[ProcessSample]) -> Production:
    ours = [look for look in looks if look.is_production]
    is_active = any(look.is_active or look.in_flight for look in ours)
    return Production(bool(ours), is_active, max((look.active_since for look in ours), default=0))

"""The lease keeper's record of one kernel between decisions, and its view of the kernel.

It reads a kernel's facts; it moves nothing and decides nothing.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Container, Mapping
from typing import Protocol

from jupyter_aliquot.gpu_hook.agent.activity.habits import Habits
from jupyter_aliquot.gpu_hook.agent.activity.idleness import Activity, Moment, Patience, Telemetry, judge
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Reservation
from jupyter_aliquot.gpu_hook.agent.swap.facts import DeviceBytes, Move, ResidencyFacts
from jupyter_aliquot.gpu_hook.agent.swap.table import KernelState
from jupyter_aliquot.gpu_hook.protocol.codec import ResidencyMode

from .context_saves import Contexts
from .turns import Turns
from .views import ASKED_OUT_SECONDS, NEVER, Holding, KernelView, Out, Policy, Reason, State, Wait, Want

log = logging.getLogger(__name__)

_SAME_SECONDS = 0.1
# A hook's tick of 50 ms, and of a thread that runs late, reports earlier calls with its own time.
_LATE_SECONDS = 2.0
# A look at the driver's figures is at most a second old. One from before a swap-out shows all of a kernel's memory.
_SEEN_SECONDS = 2.0
_SHOWN_SECONDS = 4.0  # until the room of a device shows that contexts left
_KEPT = {Reason.HOST: "host memory for its copy", Reason.LINK: "the copy of another kernel's memory"}
_STATES = {
    KernelState.SWAPPING_OUT: State.SWAPPING_OUT,
    KernelState.CHECKPOINTING: State.SWAPPING_OUT,
    KernelState.SWAPPED: State.SWAPPED,
    KernelState.CHECKPOINTED: State.SWAPPED,
    KernelState.SWAPPING_IN: State.SWAPPING_IN,
    KernelState.RESTORING: State.SWAPPING_IN,
}  # all others: RESIDENT


class LeftFor(str, enum.Enum):
    """The reason why a kernel's memory was swapped out, for its user."""

    ASKED = "asked"  # a user or an administrator asked for it
    IDLE = "idle"  # another kernel needed the room, and this one was idle
    TURN = "turn"  # it was busy, and its turn was over
    PRODUCTION = "production"  # it was busy, and a kernel of production needed the room
    COMPUTE = "compute"  # production could not be protected enough beside it
    EVICTED = "evicted"  # the gateway gave its parts to another kernel


def read_moment() -> Moment:
    """Return the current moment.

    The event loop's clock is the machine's monotonic one, which hooks use, too.
    """
    return Moment(time.monotonic(), time.time())


class Movable(Protocol):
    """The residency of one kernel, as the keeper uses it."""

    @property
    def state(self) -> KernelState: ...

    def facts(self) -> ResidencyFacts: ...

    async def swap_out(self, reason: str) -> Move: ...

    async def swap_in(self) -> Move: ...

    async def prepare(self) -> bool: ...

    async def checkpoint(self) -> Move: ...

    def why_not_saved(self, facts: ResidencyFacts) -> str: ...


class CreditQueues(Protocol):
    """The kernel's credit queues. ``wanted_bytes``: the bytes that requests wait for, by device, contexts included."""

    @property
    def wanted_bytes(self) -> Mapping[int, int]: ...

    @property
    def wanted_context_bytes(self) -> Mapping[int, int]: ...

    def give_room(self) -> None: ...

    def refuse_room(self) -> None: ...


class Leased(Protocol):
    """A kernel, as the keeper uses it."""

    @property
    def kernel_id(self) -> str: ...

    @property
    def reservation(self) -> Reservation: ...

    @property
    def activity(self) -> Activity | None: ...

    @property
    def is_expecting(self) -> bool: ...

    @property
    def worked_at(self) -> float | None: ...

    @property
    def credit_queues(self) -> CreditQueues: ...


# The states of a kernel without memory on its devices.
_OUT = frozenset({KernelState.STARTING, KernelState.SWAPPED, KernelState.CHECKPOINTED})


class LeaseRecord:
    """The record of one kernel.

    Only the keeper writes it; times are monotonic.
    """

    def __init__(
        self,
        kernel: Leased,
        residency: Movable,
        now: float,
        patience: Patience | None = None,
        answer_seconds: float = Policy.answer_seconds,
    ) -> None:
        self.kernel = kernel
        self.residency = residency
        self.facts = residency.facts()
        self.held_since = now
        self.habits = Habits()
        self.turns = Turns(now, is_here=self.facts.state not in _STATES)
        self.wants_since: float | None = None
        self.idle_since: float | None = None
        self.idle_reason = ""
        # the same moment as the end of its work, in seconds since the epoch
        self.idle_at: float | None = None
        self.hinted_until = 0.0
        self.is_asked_in = False  # the user asked for it: counts as a cell that came
        self.asked_out_at: float | None = None  # when the user asked for a swap-out that is not done yet
        self.kept: Reason | None = None  # why the last decision did not carry that request out
        # since when it is told to leave its parts; until they are reserved again, it counts as unwanted
        self.evicted_since: float | None = None
        self.is_relocating = self.is_kept_out = False  # until it has moved, or is let in, it counts as unwanted
        self.left_for: LeftFor | None = None  # the last time; None: never since this agent has it
        self.is_prepared = False  # host memory for its copy was made since it came in
        self.not_before = 0.0  # after a failed move that does not say when to try again
        self.not_saved_before, self.not_saved_because = 0.0, ""  # after a refused checkpoint, and why it was
        # the kernel that its contexts leave for, until when it stays out for that, and before when not again
        self.makes_way_for, self.makes_way_until, self.no_way_before = "", 0.0, 0.0
        self.is_beginning: State | None = None  # a decided move that its facts do not show yet
        self.is_postponed = False  # a swap-in failed, and is tried again later, or never
        self.silent_since: float | None = None  # since when a process of it did not answer; None: all answer
        self._answer_seconds, self._known_since = answer_seconds, now
        self._patience = patience or Patience()
        self._was_idle = self.is_arriving = False
        self._gave_up_at: float | None = None
        self._stopped: Activity | None = None  # its relay's last report when an interrupt ended a wait

    def view(self, now: Moment) -> KernelView:
        """Return the kernel as it is now."""
        self.facts = facts = self.residency.facts()
        self._note_given_up(facts)
        state = self.is_beginning or _STATES.get(facts.state, State.RESIDENT)
        if not facts.silent_pids:
            self.silent_since = None
        elif self.silent_since is None:
            self.silent_since = now.monotonic
        self._note_idleness(facts, now)
        self._note_lapsed(facts, now.monotonic)
        wanted = self.kernel.credit_queues.wanted_bytes
        want = self._want(state, bool(wanted), now.monotonic)
        is_late = self.retry_at > now.monotonic or facts.is_lost or self._lacks_processes
        self.is_postponed = want is not Want.NONE and state is State.SWAPPED and is_late
        if want is Want.NONE:
            self.wants_since = None
        elif self.wants_since is None:
            since = facts.waits_since
            self.wants_since = now.monotonic if since is None else min(now.monotonic, since)
        return KernelView(
            kernel_id=self.kernel.kernel_id,
            holdings=self._holdings(wanted),
            state=state,
            is_production=self.kernel.reservation.is_production,
            want=Want.NONE if self.is_postponed or self.stays_out else want,
            wants_since=now.monotonic if self.wants_since is None else self.wants_since,
            idle_since=self.idle_since,
            held_since=self.held_since,
            turn_since=max(self.turns.since, self.held_since),
            ran_seconds=self._ran_seconds(want, now.monotonic),
            last_turn_seconds=self.turns.last_seconds,
            expected_rest_seconds=self.habits.expected_rest(now.monotonic),
            moving_since=facts.since,
            movable_at=self._movable_at(now.monotonic),
            is_asked_out=(self._was_idle and (self.asked_out_at is not None or self._is_to_leave))
            or (self.stays_out and not self.is_relocating and not self.makes_way_for),
        )

    def _note_idleness(self, facts: ResidencyFacts, now: Moment) -> None:
        """Judge whether it is idle; a cell begins where it was, and is no more."""
        telemetry = (*facts.telemetry, Telemetry(worked=self.kernel.worked_at))
        known, patience = self._known_since, self._patience
        idleness = judge(self.kernel.activity, telemetry, now, known_since=known, patience=patience)
        self.idle_since, self.idle_reason = idleness.since, idleness.reason
        self.idle_at = _same_moment(self.idle_at, idleness.since, now)
        self.habits.note(idleness.since, now.monotonic)
        if self._was_idle and idleness.since is None:
            self.turns.begin_cell(now.monotonic)
        self._was_idle = idleness.since is not None

    def _ran_seconds(self, want: Want, now: float) -> float:
        """Return how long the running cell has had its devices. While it waits, it stands still."""
        if self._was_idle:
            return 0.0
        is_standing = want is Want.CALL and self.wants_since is not None
        return self.turns.ran_seconds(min(now, self.wants_since or now) if is_standing else now)

    def _note_lapsed(self, facts: ResidencyFacts, now: float) -> None:
        """Drop a user's request to swap it out that its use of the devices, or time, has overtaken.

        Until then the request outlives a failed move, and requests of the page that use no device.
        """
        asked = self.asked_out_at
        if asked is None:
            return
        used_after = asked + _LATE_SECONDS
        is_used = any(page.calls_inside or (page.last_call or 0.0) > used_after for page in facts.telemetry)
        if is_used or now - asked >= ASKED_OUT_SECONDS:
            kernel_id, why = self.kernel.kernel_id, self.why_asked_out_waits()
            log.info("event=swap_out_lapsed kernel=%s is_used=%s waited_for=%r", kernel_id, is_used, why)
            self.asked_out_at = None

    def _note_given_up(self, facts: ResidencyFacts) -> None:
        """Note the end of a wait by an interrupt.

        The cell that waited may still run for a moment, and wants nothing.
        """
        if facts.gave_up_at != self._gave_up_at:
            self._gave_up_at, self._stopped = facts.gave_up_at, self.kernel.activity

    def why_asked_out_waits(self) -> str | None:
        """Return what a user's request to swap it out waits for, as a noun; None: there is none, or it moves."""
        if self.asked_out_at is None or not self.is_resident:
            return None
        if self.idle_since is None:
            return f"the end of its work ({self.idle_reason})"
        if self.facts.refusal is not None:
            return f"another try ({self.facts.refusal.text})"
        return _KEPT[self.kept] if self.kept is not None else "the node agent's next look"

    def came_in(self, now: float) -> None:
        """Start its hold and its turn."""
        self.held_since = now
        self.turns.enter(now)
        self.is_asked_in, self.hinted_until, self.is_prepared = False, 0.0, False
        self.asked_out_at = None
        self.forget_refused_checkpoint()

    def forget_refused_checkpoint(self) -> None:
        """Let the next checkpoint be tried at once: what kept the last one from it may be over."""
        self.not_saved_before, self.not_saved_because = 0.0, ""

    def left(self, left_for: LeftFor, at: float) -> None:
        """End its turn, which ended when the move began."""
        self.left_for, self.asked_out_at = left_for, None
        self.turns.leave(at, is_busy=self.idle_since is None)

    @property
    def is_evicted(self) -> bool:
        """Return whether it has left its parts for others, or was told to."""
        return self.evicted_since is not None

    @property
    def stays_out(self) -> bool:
        """Return whether it is kept out.

        A kernel that cannot leave may still grow. One that arrives on another device comes in there.
        """
        is_kept_out = self.is_kept_out and not self.is_arriving
        is_told = is_kept_out or self.is_evicted or self.is_relocating or self.makes_way_for != ""
        return is_told and self.facts.is_swappable

    @property
    def _is_to_leave(self) -> bool:
        """Return whether it has memory to take out for a move to another device."""
        return self.is_relocating and self.facts.state is not KernelState.STARTING

    @property
    def why_kept_out(self) -> Reason:
        """Return what a kernel waits for that is kept out."""
        if self.is_evicted:
            return Reason.EVICTED
        if self.is_kept_out:
            return Reason.COMPUTE
        return Reason.RELOCATING if self.is_relocating else Reason.QUEUE

    @property
    def _lacks_processes(self) -> bool:
        """Return whether its contexts are saved, and its processes not back after the agent's restart."""
        return self.facts.state is KernelState.CHECKPOINTED and self.kernel.is_expecting

    def postponement(self, now: float) -> Wait:
        """Return what a kernel waits for whose memory could not come back."""
        if self.facts.is_lost:
            return Wait(self.kernel.kernel_id, Reason.LOST, 1)
        if self._lacks_processes:
            return Wait(self.kernel.kernel_id, Reason.COMING, 0)
        return Wait(self.kernel.kernel_id, Reason.REFUSED, 1, expected_seconds=max(0.0, self.retry_at - now))

    @property
    def is_out(self) -> bool:
        """Return whether its memory is on the host, or it has no process yet."""
        return self.is_beginning is None and self.residency.state in _OUT

    @property
    def is_resident(self) -> bool:
        return self.is_beginning is None and self.residency.state not in _STATES

    def is_for_checkpoint(self, now: float, after_seconds: float) -> bool:
        """Return whether the kernel has been swapped out and unwanted for so long."""
        is_out = self.facts.state is KernelState.SWAPPED and self.is_beginning is None
        is_quiet = is_out and self.wants_since is None and not self.kernel.is_expecting
        return is_quiet and now - self.facts.since >= after_seconds and now >= self.not_saved_before

    def is_to_vacate(self, devices: Container[str], now: float) -> bool:
        """Return whether its contexts are to leave devices now: it is evicted, and nothing brings it back there."""
        is_out = self._is_seen_out(now)
        return is_out and self.is_evicted and self.is_on(devices) and now >= self.not_saved_before

    def is_to_relocate(self, now: float) -> bool:
        """Return whether its contexts are to leave now: its memory is out, and it moves to another device."""
        is_out = self._is_seen_out(now)
        return is_out and self.is_relocating and not self.kernel.is_expecting and now >= self.not_saved_before

    def contexts(self, wanter: KernelView, now: float, hold_seconds: float) -> Contexts:
        """Return its contexts: those that may leave for a kernel that waits, and those that just left."""
        state, own = self.facts.state, self.kernel
        amounts = {one.uuid: one.context_bytes for one in self.facts.devices if one.context_bytes}
        if state is KernelState.CHECKPOINTED:
            return Contexts(own.kernel_id, left=amounts if now - self.facts.since < _SHOWN_SECONDS else {})
        may_leave = not own.is_expecting and now >= max(self.not_saved_before, self.no_way_before)
        if not may_leave or self._movable_at(now) > now or self.residency.why_not_saved(self.facts):
            return Contexts(own.kernel_id)
        is_idle = self.is_resident and self.idle_since is not None and now - self.held_since >= hold_seconds
        order = self.wants_since, own.kernel_id
        is_behind = order[0] is None or self.stays_out or order > (wanter.wants_since, wanter.kernel_id)
        is_out = state is KernelState.SWAPPED and is_behind
        if is_idle or is_out or self.is_beginning is State.SWAPPING_OUT:
            return Contexts(own.kernel_id, leaving=amounts)
        return Contexts(own.kernel_id, busy={} if self.wants_since is not None else amounts)

    def is_to_make_way(self, now: float) -> bool:
        """Return whether its contexts can leave now: its memory is out, and it is kept out."""
        return self._is_seen_out(now) and self.stays_out and not self.kernel.is_expecting

    def _is_seen_out(self, now: float) -> bool:
        """Return whether it is swapped out, and the driver's figures were read since then."""
        is_out = self.facts.state is KernelState.SWAPPED and self.is_beginning is None
        return is_out and now - self.facts.since >= _SEEN_SECONDS

    def is_on(self, devices: Container[str]) -> bool:
        """Return whether it has a context, or memory, on one of these devices."""
        is_there = self.facts.state not in (KernelState.PENDING, KernelState.CHECKPOINTED, KernelState.ENDED)
        return is_there and bool(self.facts.telemetry) and any(one.uuid in devices for one in self.facts.devices)

    def is_half_out(self, now: float) -> bool:
        """Return whether memory that can leave is on its devices though it is swapped out, and can be moved now.

        An agent that ended between the record of a move and its orders leaves that behind.
        """
        is_out = self.facts.state is KernelState.SWAPPED and self.is_beginning is None
        may_move = self.facts.is_swappable and not self.facts.silent_pids and not self.kernel.is_expecting
        has_rest = any(device.on_device_bytes > device.unswappable_bytes for device in self.facts.devices)
        return is_out and may_move and has_rest and now >= self.retry_at

    @property
    def retry_at(self) -> float:
        """Return when the next move makes sense after one that failed."""
        refusal = self.facts.refusal
        return self.not_before if refusal is None else max(self.not_before, refusal.retry_at)

    def is_refusing(self, now: float) -> bool:
        """Return whether it refused each order to leave for so long, and gets no new order yet."""
        refusal = self.facts.refusal
        if refusal is None or not self.facts.is_swappable:
            return False
        return now < refusal.retry_at and now - refusal.since >= self._answer_seconds

    def _want(self, state: State, is_growing: bool, now: float) -> Want:
        if is_growing or self.facts.waits_since is not None:
            return Want.CALL
        if state is State.RESIDENT:
            return Want.NONE
        activity = self.kernel.activity
        is_running = activity is not None and activity.work and activity.input is None
        if self.is_asked_in or (is_running and activity != self._stopped):
            return Want.CELL
        return Want.HINT if now < self.hinted_until else Want.NONE

    def _movable_at(self, now: float) -> float:
        if not self.facts.is_swappable or self.facts.silent_pids:  # it may still answer: look at it again then
            return NEVER
        if self.kernel.is_expecting:
            return now + 1.0  # after the agent's restart its processes first report their memory
        return NEVER if self.is_refusing(now) else self.retry_at

    def _holdings(self, wanted: Mapping[int, int]) -> tuple[Holding, ...]:
        # A kernel that is out makes no context: the request waits for its return, and needs no room for that.
        contexts, is_here = self.kernel.credit_queues.wanted_context_bytes, self.is_resident
        return tuple(
            _holding(
                device,
                wanted.get(number, 0) - (0 if is_here else contexts.get(number, 0)),
                self._guarantees[number],
                context=contexts.get(number, 0) if is_here else 0,
                is_paged=self.is_paged,
            )
            for number, device in enumerate(self.facts.devices)
        )

    @property
    def _guarantees(self) -> list[int]:
        pairs = zip(self.facts.devices, self.kernel.reservation.parts, strict=True)
        return [max(0, part.reserved_bytes - device.context_bytes) for device, part in pairs]

    @property
    def is_paged(self) -> bool:
        """Return whether the driver pages its memory: beyond the guarantee it needs no room."""
        return self.facts.mode is ResidencyMode.MANAGED and self.facts.is_swappable

    @property
    def grows_in_pages(self) -> bool:
        """Return whether all that it waits for is memory that needs no room."""
        wanted = self.kernel.credit_queues.wanted_bytes
        is_growing = self.is_paged and self.is_resident and bool(wanted)
        return is_growing and not any(h.wanted_bytes for h in self._holdings(wanted))

    def room_needed(self, uuid: str, amount: int) -> int:
        """Return how much room of a device so many more bytes take."""
        return amount - (self._beyond(uuid, amount) - self._beyond(uuid, 0))

    def paged_bytes(self, uuid: str) -> int:
        """Return the bytes that it has of a device beyond its guarantee, and that the driver pages."""
        return self._beyond(uuid, 0)

    def _beyond(self, uuid: str, more: int) -> int:
        if not self.is_paged:
            return 0
        self.facts = self.residency.facts()
        pairs = zip(self.facts.devices, self._guarantees, strict=True)
        return sum(max(0, one.lent_bytes + more - guarantee) for one, guarantee in pairs if one.uuid == uuid)


def _holding(device: DeviceBytes, wanted: int, guarantee: int, *, context: int = 0, is_paged: bool) -> Holding:
    """Return its view of one device. No driver pages the context that it waits for."""
    held, away = device.on_device_bytes, device.swapped_bytes
    if is_paged:
        held, away = min(held, max(guarantee, device.unswappable_bytes)), min(away, guarantee)
        wanted = context + min(wanted - context, max(0, guarantee - held - away))
    return Holding(
        uuid=device.uuid,
        held_bytes=held,
        swappable_bytes=max(0, held - device.unswappable_bytes),
        away_bytes=away,
        wanted_bytes=wanted,
        guarantee_bytes=guarantee,
    )


def why_out(out: Out, records: Mapping[str, LeaseRecord]) -> LeftFor:
    """Return the reason of a decision, from the views that it was made of."""
    record, wanter = records[out.kernel_id], records.get(out.wanted_by)
    if wanter is None:
        if record.is_evicted:
            return LeftFor.EVICTED
        return LeftFor.COMPUTE if record.is_kept_out else LeftFor.ASKED
    if record.idle_since is not None:
        return LeftFor.IDLE
    is_preempted = wanter.kernel.reservation.is_production and not record.kernel.reservation.is_production
    return LeftFor.PRODUCTION if is_preempted else LeftFor.TURN


def _same_moment(told: float | None, since: float | None, now: Moment) -> float | None:
    """Return ``since`` on the wall clock, unchanged unless the moment changed.

    Two clocks never read alike.
    """
    if since is None:
        return None
    at = round(now.wall - (now.monotonic - since), 3)
    return told if told is not None and abs(told - at) < _SAME_SECONDS else at

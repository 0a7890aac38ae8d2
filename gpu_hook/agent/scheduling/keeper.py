"""The lease keeper decides and carries out the moves of all kernels on this node.

It looks at all kernels, lets ``decide`` choose the moves, carries them out, and keeps the kernels'
waits. It is the only caller of swap_out and swap_in. Room that was promised to a kernel is reserved
until the kernel is in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Moment, Patience
from jupyter_aliquot.gpu_hook.agent.swap.facts import Move
from jupyter_aliquot.gpu_hook.waiting import within

from .context_saves import choose
from .expectations import restore_seconds
from .leases import decide
from .records import Leased, LeaseRecord, LeftFor, Movable, why_out
from .room import Room
from .views import NEVER, Decision, KernelView, Out, Policy, Reason, State, Wait, Want

log = logging.getLogger(__name__)

# the keeper reports to waiters every second, and finds idleness by sampling
_LONGEST_SLEEP_SECONDS = 1.0
_SHORTEST_SLEEP_SECONDS = 0.02
_CHECKPOINT_RETRY_SECONDS = 60.0
# A kernel whose contexts stay on a device that goes is ended half a minute after its owner was warned.
_VACATE_RETRY_SECONDS = 5.0
# A kernel whose contexts leave for another one stays out for so long at most; after a refusal it makes way again then.
_WAY_SECONDS, _NO_WAY_SECONDS = 30.0, 600.0
_RETRY_SECONDS = 1.0  # after a failed move that does not say when to try again
# until a lack of room counts as lasting: a busy machine delays moves and the hooks' reports
_SURE_SECONDS = 5.0

Tell = Callable[[str], None]


class LeaseKeeper:
    """The leases of all kernels on this node.

    ``lent`` returns the bytes that all kernels were lent of a device. ``host_room`` returns the
    bytes that host copies may still take; None: no limit. The keeper calls ``tell`` with the id of
    a kernel whose state or wait changed, and every second while it waits.
    """

    def __init__(
        self,
        policy: Policy,
        clock: Callable[[], Moment],
        lent: Callable[[str], int],
        host_room: Callable[[], int | None],
        tell: Tell,
        checkpoint_after_seconds: float | None = None,
    ) -> None:
        self.room = Room()
        self._policy = policy
        self._clock = clock
        self._lent = lent
        self._host_room = host_room
        self._tell = tell
        self._checkpoint_after = checkpoint_after_seconds  # None: never
        self._vacated: frozenset[str] = frozenset()  # devices that go to programs of others
        self._records: dict[str, LeaseRecord] = {}
        self._waits: dict[str, Wait] = {}
        # kernel -> since when other processes seem to hold the room that it wants
        self._doubts: dict[str, float] = {}
        self._told: dict[str, tuple[object, float]] = {}  # kernel -> its last report, and when
        self._moves: set[asyncio.Task[None]] = set()
        self._views: list[KernelView] = []  # of the last pass
        self._restores: Mapping[str, float] | None = None  # made of these when the first one asks
        self._wanted = asyncio.Event()
        self._wanted_soon: asyncio.TimerHandle | None = None

    def add(self, kernel: Leased, residency: Movable) -> None:
        """Add a kernel that was made, or found after a restart.

        A kernel on its devices wants nothing before it has a process: no pass is due for it.
        """
        patience = Patience(silent_seconds=self._policy.silent_seconds)
        now, answer = self._clock().monotonic, self._policy.answer_seconds
        record = LeaseRecord(kernel, residency, now, patience, answer)
        self._records[kernel.kernel_id] = record
        if record.is_resident:
            self._tell_change(record, now)
        else:
            self.notify()

    def remove(self, kernel_id: str) -> None:
        """Remove a kernel that ended: its room is free for others."""
        for known in (self._records, self._waits, self._doubts, self._told):
            known.pop(kernel_id, None)
        self._views = [view for view in self._views if view.kernel_id != kernel_id]
        self._restores = None
        self._tell(kernel_id)
        self.notify_room()

    def vacate(self, devices: frozenset[str]) -> dict[str, dict[str, str]]:
        """Have the contexts of evicted kernels leave these devices, too, instead of those of the last call.

        Return by device the kernels that are there, each with why its contexts stay; empty: they may still leave.
        """
        if devices != self._vacated:
            for record in self._records.values():
                if record.is_on(devices - self._vacated):
                    record.forget_refused_checkpoint()
            self._vacated = devices
            self.notify()
        return {
            device: {
                kernel_id: record.not_saved_because
                for kernel_id, record in self._records.items()
                if record.is_on((device,))
            }
            for device in sorted(devices)
        }

    def notify(self) -> None:
        """Wake the keeper: a call waits, a cell came or went, or a move ended."""
        self._wanted.set()

    def notify_room(self) -> None:
        """Wake the keeper where a kernel waits: room returned.

        A kernel that began to want room since the last pass woke the keeper itself.
        """
        if self._waits:
            self.notify()

    @property
    def is_pass_due(self) -> bool:
        """Return whether the keeper was woken since its last pass began."""
        return self._wanted.is_set()

    def note_activity(self, kernel_id: str) -> None:
        """Wake the keeper for a cell that came or went: at once where it may move memory now, else soon.

        A kernel on its devices begins hundreds of short cells a second.
        """
        record = self._records.get(kernel_id)
        if self._waits or record is None or not record.is_resident:
            self.notify()
        elif self._wanted_soon is None:
            self._wanted_soon = asyncio.get_running_loop().call_later(_SHORTEST_SLEEP_SECONDS, self.notify)

    def keep_out(self, kernel_id: str) -> None:
        """Swap a kernel out until ``let_in``: production needs the time of its devices."""
        self._keep(kernel_id, is_out=True)

    def let_in(self, kernel_id: str) -> None:
        self._keep(kernel_id, is_out=False)

    def evict(self, kernel_id: str, *, is_evicted: bool = True) -> None:
        """Swap a kernel out until it is readmitted: its parts are, or will be, reserved by others."""
        record = self._records.get(kernel_id)
        if record is None or record.is_evicted == is_evicted:
            return
        record.evicted_since = self._clock().monotonic if is_evicted else None
        record.forget_refused_checkpoint()
        self._tell(kernel_id)
        self.notify()

    def _keep(self, kernel_id: str, *, is_out: bool) -> None:
        record = self._records.get(kernel_id)
        if record is None or record.is_kept_out == is_out:
            return
        record.is_kept_out = is_out
        self._tell(kernel_id)
        self.notify()

    def is_kept_out(self, kernel_id: str) -> bool:
        return (record := self._records.get(kernel_id)) is not None and record.stays_out

    def record(self, kernel_id: str) -> LeaseRecord | None:
        return self._records.get(kernel_id)

    def wait(self, kernel_id: str) -> Wait | None:
        """Return the kernel's wait, as of the last decision."""
        return self._waits.get(kernel_id)

    def why_asked_out_waits(self, kernel_id: str) -> str | None:
        """Return what a user's request to swap the kernel out waits for; None: there is none, or it moves."""
        record = self._records.get(kernel_id)
        return None if record is None else record.why_asked_out_waits()

    def restore_seconds(self, kernel_id: str) -> float | None:
        """Return how long a cell of this kernel would wait for its memory; None: it is not out, or unknown."""
        if self._restores is None:
            self._restores = restore_seconds(self.room.views(), self._views, self._clock().monotonic, self._policy)
        return self._restores.get(kernel_id)

    def has_room(self, kernel_id: str, uuid: str, amount: int) -> bool:
        """Return whether so many more bytes are there, and no kernel waits for them.

        False: the keeper gives or refuses room soon.
        """
        record = self._records.get(kernel_id)
        if record is None:
            return True
        needed = record.room_needed(uuid, amount)
        taken = self._lent(uuid) - self.paged_bytes(uuid)
        if record.is_resident and (not needed or (not self._waits and taken + needed <= self.room.present_bytes(uuid))):
            return True
        self.notify()
        return False

    def paged_bytes(self, uuid: str) -> int:
        """Return what kernels have of a device beyond their guarantees, and the driver pages: it takes no room."""
        return sum(record.paged_bytes(uuid) for record in self._records.values() if record.is_paged)

    async def run(self) -> None:
        """Decide after each change, and every second; until cancelled."""
        look_at = NEVER
        while True:
            pause = min(_LONGEST_SLEEP_SECONDS, max(_SHORTEST_SLEEP_SECONDS, look_at - self._clock().monotonic))
            with contextlib.suppress(asyncio.TimeoutError):
                await within(self._wanted.wait(), pause)
            look_at = NEVER
            try:
                look_at = self.run_pass()
            except Exception:
                log.exception("event=lease_turn_failed")

    async def close(self) -> None:
        """Close without waiting for moves.

        Moves go on in the processes, and the next agent finds how they ended.
        """
        for move in self._moves:
            move.cancel()
        await asyncio.gather(*self._moves, return_exceptions=True)

    def run_pass(self) -> float:
        """Look, decide, and begin the decided moves.

        Return when time alone will change a decision.
        """
        self._wanted.clear()
        if self._wanted_soon is not None:
            self._wanted_soon.cancel()
            self._wanted_soon = None
        now = self._clock()
        views = [record.view(now) for record in self._records.values()]
        self._views, self._restores = views, None
        decision = decide(self.room.views(), views, now.monotonic, self._policy, self._host_room())
        kept = dict(decision.kept)
        for kernel_id, record in self._records.items():
            record.kept = kept.get(kernel_id)
        self._carry_out(decision)
        self._finish_evictions(now.monotonic)
        self._save_the_quiet(now.monotonic)
        waits = {wait.kernel_id: wait for wait in decision.waits}
        self._make_way(views, waits, now.monotonic)
        for record in self._records.values():
            if record.stays_out and record.wants_since is not None:
                waits[record.kernel.kernel_id] = Wait(record.kernel.kernel_id, record.why_kept_out, 1)
            elif record.is_postponed:
                waits[record.kernel.kernel_id] = record.postponement(now.monotonic)
        self._answer_growth(views, waits, now.monotonic)
        self._waits = waits
        self._prepare(waits)
        self._tell_changes(now.monotonic)
        return decision.look_at

    def _carry_out(self, decision: Decision) -> None:
        for out in decision.outs:
            self._begin(out.kernel_id, State.SWAPPING_OUT, self._take_out(out, why_out(out, self._records)))
        for kernel_id in decision.ins:
            self._begin(kernel_id, State.SWAPPING_IN, self._bring_in(kernel_id))
        in_pages = [kernel_id for kernel_id, record in self._records.items() if record.grows_in_pages]
        for kernel_id in (*decision.grown, *in_pages):
            self._records[kernel_id].kernel.credit_queues.give_room()

    def _finish_evictions(self, now: float) -> None:
        """Take out what is left on its devices of a kernel that is to leave them."""
        for kernel_id, record in self._records.items():
            if record.is_evicted and record.is_half_out(now):
                self._begin(kernel_id, State.SWAPPING_OUT, self._take_out(Out(kernel_id, ""), LeftFor.EVICTED))

    def _save_the_quiet(self, now: float) -> None:
        """Checkpoint kernels that stay unwanted.

        A context alone takes up to half a GiB of each device.
        """
        after = self._checkpoint_after
        for kernel_id, record in self._records.items():
            is_quiet = after is not None and record.is_for_checkpoint(now, after)
            if is_quiet or record.is_to_vacate(self._vacated, now) or record.is_to_relocate(now):
                self._begin(kernel_id, State.SWAPPING_OUT, self._checkpoint(kernel_id))

    async def _checkpoint(self, kernel_id: str) -> None:
        record = self._records[kernel_id]
        try:
            move = await record.residency.checkpoint()
        finally:
            record.is_beginning = None
        record.not_saved_because = "" if move.is_done else move.text
        if not move.is_done:
            is_going = record.is_evicted and record.is_on(self._vacated)
            retry = _VACATE_RETRY_SECONDS if is_going else _CHECKPOINT_RETRY_SECONDS
            record.not_saved_before = self._clock().monotonic + retry
            record.makes_way_for, record.no_way_before = "", self._clock().monotonic + _NO_WAY_SECONDS
            log.info("event=not_checkpointed kernel=%s reason=%r", kernel_id, move.text)
        self.notify()

    def _make_way(self, views: list[KernelView], waits: dict[str, Wait], now: float) -> None:
        """Have contexts of other kernels leave for one that is out, and does not fit beside them."""
        for record in self._records.values():
            if record.makes_way_for and (record.makes_way_for not in waits or now >= record.makes_way_until):
                record.makes_way_for = ""
        for view in views:
            wait = waits.get(view.kernel_id)
            is_stuck = wait is not None and wait.reason is Reason.STUCK and view.state is State.SWAPPED
            if wait is None or not is_stuck or view.want < Want.CELL:
                continue
            hold = self._policy.hold_seconds
            contexts = [record.contexts(view, now, hold) for record in self._records.values()]
            saves = choose(view, self.room.views(), views, contexts)
            if saves.is_enough or saves.is_later:
                reason = Reason.MOVING if saves.is_enough else Reason.BUSY
                waits[view.kernel_id] = replace(wait, reason=reason, behind=saves.kernels)
            for kernel_id in saves.kernels:
                self._have_contexts_leave(self._records[kernel_id], view.kernel_id, now)

    def _have_contexts_leave(self, record: LeaseRecord, wanted_by: str, now: float) -> None:
        """Take the next step: its memory leaves first. Meanwhile, and until the wanter is in, it stays out."""
        kernel_id, room = record.kernel.kernel_id, self._host_room()
        if not record.makes_way_for:
            record.makes_way_for, record.makes_way_until = wanted_by, now + _WAY_SECONDS
        if record.is_resident and (room is None or record.facts.swappable_bytes <= room):
            out = Out(kernel_id, wanted_by)
            self._begin(kernel_id, State.SWAPPING_OUT, self._take_out(out, why_out(out, self._records)))
        elif record.is_to_make_way(now):
            self._begin(kernel_id, State.SWAPPING_OUT, self._checkpoint(kernel_id))

    def _answer_growth(self, views: list[KernelView], waits: dict[str, Wait], now: float) -> None:
        """Answer requests that wait in vain, where no kernel can make room.

        The driver is asked, or the request is refused.
        """
        for view in views:
            wait, waited = waits.get(view.kernel_id), now - view.wants_since
            is_hopeless = wait is not None and (
                wait.reason is Reason.STUCK or (wait.reason is Reason.HOST and waited >= self._policy.patience_seconds)
            )
            wanted = {h.uuid: h.wanted_bytes for h in view.holdings if h.wanted_bytes}
            if view.state is not State.RESIDENT or not wanted or not is_hopeless:
                self._doubts.pop(view.kernel_id, None)
                continue
            credit_queues = self._records[view.kernel_id].kernel.credit_queues
            held = self._held(views, self.room)
            # The use of other processes is an estimate: the driver may grant all that kernels do
            # not have.
            if all(held.get(uuid, 0) + amount <= self.room.memory_bytes(uuid) for uuid, amount in wanted.items()):
                credit_queues.give_room()
            elif waits[view.kernel_id].reason is Reason.STUCK and self._is_doubtful(view, wanted, views, now):
                continue
            else:
                log.info("event=no_room_ever kernel=%s wanted=%s", view.kernel_id, wanted)
                credit_queues.refuse_room()
            waits.pop(view.kernel_id, None)

    def _is_doubtful(self, view: KernelView, wanted: Mapping[str, int], views: list[KernelView], now: float) -> bool:
        """Return whether a lack of room is in doubt, and has not lasted long.

        It is in doubt where only the estimated use of other processes is in the way, or the bytes
        that movable kernels seem to keep. Bytes that were lent a moment ago are on no hook's page
        yet.
        """
        left = {uuid: self.room.memory_bytes(uuid) - amount for uuid, amount in wanted.items()}
        has_silent = False
        for one in views:
            may_answer = one is not view and self._may_answer(one.kernel_id, view, now)
            has_silent = has_silent or (may_answer and any(h.uuid in left for h in one.holdings))
            if one is view or (one.movable_at >= NEVER and not may_answer):
                for h in one.holdings:
                    if h.uuid in left:
                        left[h.uuid] -= h.held_bytes
        if any(amount < 0 for amount in left.values()):
            return False
        return has_silent or now - self._doubts.setdefault(view.kernel_id, now) < _SURE_SECONDS

    def _may_answer(self, kernel_id: str, wanter: KernelView, now: float) -> bool:
        """Return whether a kernel that was told to move may still do so for this waiter.

        A kernel that answers but does not leave may be at work that takes long: it is told again,
        with more time.
        """
        record = self._records[kernel_id]
        if (since := record.silent_since) is not None:
            return now - since < self._policy.answer_seconds
        refusal = record.facts.refusal if record.is_refusing(now) else None
        if refusal is None:
            return False
        return refusal.at < wanter.wants_since or now - wanter.wants_since < self._policy.patience_seconds

    def _prepare(self, waits: dict[str, Wait]) -> None:
        """Make host memory ahead for kernels that must leave when their hold or turn is over."""
        for wait in waits.values():
            for kernel_id in wait.behind if wait.reason in (Reason.HOLD, Reason.TURN) else ():
                record = self._records[kernel_id]
                if record.is_resident and not record.is_prepared:
                    record.is_prepared = True
                    self._spawn(kernel_id, self._make_ready(record))

    async def _make_ready(self, record: LeaseRecord) -> None:
        await record.residency.prepare()

    @staticmethod
    def _held(views: list[KernelView], room: Room) -> dict[str, int]:
        held = {device.uuid: device.leaving_bytes for device in room.views()}
        for view in views:
            for h in view.holdings:
                coming = h.away_bytes if view.state is State.SWAPPING_IN else 0
                held[h.uuid] = held.get(h.uuid, 0) + h.held_bytes + coming
        return held

    def _begin(self, kernel_id: str, state: State, move: Coroutine[None, None, None]) -> None:
        self._records[kernel_id].is_beginning = state
        self._spawn(kernel_id, move)

    def _spawn(self, kernel_id: str, move: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(move, name=f"lease {kernel_id}")
        self._moves.add(task)
        task.add_done_callback(self._moves.discard)

    async def _take_out(self, out: Out, left_for: LeftFor) -> None:
        record, begun = self._records[out.kernel_id], self._clock().monotonic
        why = f"kernel {out.wanted_by} needs its room" if out.wanted_by else left_for.value
        try:
            move = await record.residency.swap_out(why)
        finally:
            record.is_beginning = None
        if move.is_done:
            record.left(left_for, begun)
        self._book(record, move, is_out=True)

    async def _bring_in(self, kernel_id: str) -> None:
        record = self._records[kernel_id]
        try:
            move = await record.residency.swap_in()
        finally:
            record.is_beginning = None
        if move.is_done:
            record.came_in(self._clock().monotonic)
        self._book(record, move, is_out=False)

    def _book(self, record: LeaseRecord, move: Move, is_out: bool) -> None:
        if move.is_done:
            uuids = [h.uuid for h in record.facts.devices if h.swappable_bytes or h.swapped_bytes]
            self.room.book_move(uuids, is_out, move.moved_bytes, move.copy_seconds)
        else:
            record.not_before = self._clock().monotonic + _RETRY_SECONDS
        self.notify()

    def _tell_changes(self, now: float) -> None:
        for record in self._records.values():
            self._tell_change(record, now)

    def _tell_change(self, record: LeaseRecord, now: float) -> None:
        kernel_id = record.kernel.kernel_id
        wait = self._waits.get(kernel_id)
        shown = (None if wait is None else replace(wait, expected_seconds=None), self.why_asked_out_waits(kernel_id))
        known, told_at = self._told.get(kernel_id, (None, 0.0))
        # The answer of a process that was silent for long changes no state: an evicted kernel is looked at again.
        is_watched = wait is not None or record.is_evicted or record.is_relocating
        if known != (record.facts.state, shown) or (is_watched and now - told_at >= _LONGEST_SLEEP_SECONDS):
            self._told[kernel_id] = ((record.facts.state, shown), now)
            self._tell(kernel_id)

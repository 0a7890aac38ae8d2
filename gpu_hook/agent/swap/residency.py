"""One kernel's memory between its devices and the host: it moves whole, or not at all.

A move covers all the kernel's processes. This module carries orders out, by the table of
``residency_table``; other parts decide from ``facts`` which kernel moves, and when.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Telemetry, telemetry_of
from jupyter_aliquot.gpu_hook.agent.devices.departures import Departures
from jupyter_aliquot.gpu_hook.agent.host_copies.arena import Arena
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceAccount
from jupyter_aliquot.gpu_hook.agent.pages.hook_page import HookSide
from jupyter_aliquot.gpu_hook.agent.sessions.session import HookSession
from jupyter_aliquot.gpu_hook.agent.swap.settings import SwapSettings
from jupyter_aliquot.gpu_hook.client.residency_reports import MODE_IS_OFF
from jupyter_aliquot.gpu_hook.protocol.codec import Lease, Moved, PinReason, Residency, ResidencyMode, Role

from .checkpoint import CheckpointTools, KernelCheckpoint
from .facts import Move, MoveResult, ResidencyFacts
from .history import MoveHistory
from .moves import KernelMoves
from .process import ProcessResidency, bytes_of, on_devices
from .table import ACTIONS, LEASE_HELD, Action, Event, KernelState

log = logging.getLogger(__name__)

SAVED = frozenset({KernelState.CHECKPOINTED, KernelState.RESTORING})

# What others reach while the kernel's gate is closed: the whole kernel stays.
_HOLDERS = {PinReason.NCCL: "NCCL", PinReason.IPC: "CUDA IPC"}


@dataclass(frozen=True)
class SwapTools:
    """The tools for moves, which all kernels of a node share."""

    arena: Arena
    settings: SwapSettings
    checkpoints: CheckpointTools | None = None
    departures: Departures = field(default_factory=Departures)


class KernelResidency:
    """The residency of one kernel.

    It reads ``accounts`` anew each time. ``journal`` writes the kernel's entry, with
    ``is_lease_ended``. It calls ``wants_wake`` when a call waits for the lease, once for each time
    that it is out, and ``changed`` after each change of state. The lease keeper sets both.
    """

    def __init__(
        self,
        kernel_id: str,
        mode: ResidencyMode,
        tools: SwapTools,
        accounts: Callable[[], Sequence[DeviceAccount]],
        journal: Callable[[], None],
        is_lease_ended: bool,
        saved_bytes: Mapping[str, int] | None = None,
        crossing: tuple[str, str] | None = None,
        arrived: Callable[[], None] = lambda: None,
    ) -> None:
        self.kernel_id = kernel_id
        self.mode = mode
        self.wants_wake: Callable[[KernelResidency], None] = _nobody
        self.changed: Callable[[KernelResidency], None] = _nobody
        self.is_lease_ended = is_lease_ended
        # Others may have its parts: a process that joins gets no lease. The evictions set it.
        self.is_set_aside = False
        self.state = KernelState.SWAPPED if is_lease_ended else KernelState.STARTING
        if saved_bytes:
            self.state = KernelState.CHECKPOINTED
        self._accounts = accounts
        self._journal = journal
        self._arena, self._departures = tools.arena, tools.departures
        self._processes: dict[int, ProcessResidency] = {}
        self._moves = KernelMoves(kernel_id, mode, tools.arena, tools.settings, accounts)
        self._checkpoint = KernelCheckpoint(
            tools.checkpoints, tools.settings.drain_milliseconds, journal, saved_bytes or {}, crossing, arrived
        )
        self._acts = self._make_acts()
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._task: asyncio.Task[Move] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._waits_since: float | None = None
        self._gave_up_at: float | None = None
        self._waited_seconds = 0.0
        self._history = MoveHistory(kernel_id)

    def _make_acts(self) -> Mapping[Action, Callable[[], None]]:
        return {
            Action.NOTE: _nothing,
            Action.OPEN: _nothing,
            Action.TAKE_OUT: lambda: self._run(Event.OUT, self._take_out()),
            Action.BRING_IN: lambda: self._run(Event.IN, self._bring_in()),
            Action.SAVE: lambda: self._run(Event.CHECKPOINT, self._checkpoint.save(self._pids)),
            Action.RESTORE: lambda: self._run(Event.CHECKPOINT, self._checkpoint.restore(self._pids)),
            Action.LET_ON: self._let_on,
            Action.STAY_OUT: self._stay_out,
            Action.FORGET: self._start_anew,
            Action.CLOSE: lambda: self._arena.forget(self.kernel_id),
        }

    async def swap_out(self, reason: str) -> Move:
        """End its lease and take its memory to the host.

        Any result but DONE leaves it as it was.
        """
        why = self._why_not()
        if why is not None:
            return why
        return await self._start(Event.OUT, reason)

    async def swap_in(self) -> Move:
        """Bring its memory back, and give it the lease.

        Its room is reserved already. Any result but DONE leaves it out.
        """
        return await self._start(Event.IN, "wake")

    async def checkpoint(self) -> Move:
        """Checkpoint it: its contexts leave, too. Any result but DONE leaves it swapped."""
        why = self._checkpoint.why_not(self.facts())
        if why:
            return Move(MoveResult.REFUSED, why)
        return await self._start(Event.CHECKPOINT, "idle for long")

    @property
    def saved_bytes(self) -> Mapping[str, int]:
        """Return the bytes of each device that its contexts need to be restored.

        Empty: they are there.
        """
        return self._checkpoint.saved_bytes

    @property
    def crossing(self) -> tuple[str, str] | None:
        """Return the device that it was saved on, and another that it is restored on; None: no other."""
        return self._checkpoint.crossing

    @property
    def may_return(self) -> bool:
        """Return whether it is certainly not on the other device yet."""
        return self._checkpoint.may_return

    def find_place(self) -> None:
        """Ask the driver whether it is certainly not on the other device yet: an earlier restore may have failed."""
        if self._asking is None or self._asking.done():
            self._asking = self._loop.create_task(self._checkpoint.find_place(self._pids))

    def cross(self, source: str, target: str) -> None:
        """Have its saved contexts be restored on another device. The caller changes its accounts, and the journal."""
        self._checkpoint.cross(source, target)

    def why_not_saved(self, facts: ResidencyFacts) -> str:
        """Return why its contexts cannot leave once its memory has; empty: they can."""
        return facts.mode_reason or self._checkpoint.why_not(facts)

    def why_immovable(self, facts: ResidencyFacts) -> str:
        """Return why its contexts can be restored on no other device; empty: they can, with another of its model."""
        return self._checkpoint.why_no_map() or self.why_not_saved(facts)

    async def prepare(self) -> bool:
        """Make warm host memory for its copy ahead, while it runs.

        Return whether there is enough.
        """
        return self._why_not() is None and await self._moves.prepare(tuple(self._processes.values()), is_held=False)

    def call_off(self) -> None:
        """Give up a swap-out that is still making host memory: the kernel is wanted after all."""
        self._moves.call_off()

    @property
    def is_copying(self) -> bool:
        return self._moves.is_copying

    @property
    def lease(self) -> Lease:
        """Return the lease for the page of a process that joins."""
        return Lease.ENDED if self.is_lease_ended or self.is_set_aside else Lease.HELD

    def joined(self, session: HookSession) -> None:
        """Note that a process was welcomed.

        Its memory may be out since before this agent.
        """
        if session.role is not Role.PROCESS:
            return
        self._processes[session.number] = ProcessResidency(session, session.told_residency)
        has_copy = session.told_residency is not Residency.RESIDENT
        self._arena.enter(self.kernel_id, session.number, session.process, has_copy=has_copy)
        self._departures.returned(session.process, on_devices(self._processes[session.number], self._accounts()))
        self._handle(Event.JOINED_ASIDE if self.is_set_aside else Event.JOINED)

    def left(self, session: HookSession, is_expecting: bool) -> None:
        """Note that a process's connection closed.

        ``is_expecting``: others may still come back, after the agent's restart.
        """
        process = self._processes.pop(session.number, None)
        if process is not None:
            process.leave()
            self._arena.leave(self.kernel_id, session.number)
        if not self._processes and not is_expecting:
            self.emptied()

    def leaving(self, session: HookSession) -> None:
        """Note that a process is about to leave, with its loans.

        Its memory is still on the devices.
        """
        left = on_devices(self._processes.get(session.number), self._accounts())
        self._departures.left(self.kernel_id, session.process, left, self._loop.time())

    def emptied(self) -> None:
        """Note that no process of it is left, nor expected.

        During a move, the move's end sees that itself.
        """
        self._handle(Event.EMPTIED)

    def moved(self, session: HookSession, message: Moved) -> None:
        """Take a MOVED message of a process. Raises MalformedError."""
        process = self._processes[session.number]
        was_awaited = process.take(message)
        if message.sequence == 0 and process.is_out:
            swapped = (process.swapped(i, account) for i, account in enumerate(self._accounts()))
            said = sum(device.swapped_bytes for device in message.devices)
            self._arena.adopt(self.kernel_id, session.number, min(said, self._lent(process)) or sum(swapped))
        if was_awaited:
            return
        if not process.is_out:
            self._arena.release(self.kernel_id, session.number)
        self._look_for_strays()

    def woken(self) -> None:
        """Note that a call waits for the lease."""
        if self.state in LEASE_HELD:
            return
        if self._waits_since is None:
            self._waits_since = self._loop.time()
        self._ask_for_wake()

    def given_up(self) -> None:
        """Note that an interrupt ended the last wait of a process.

        Unless other calls wait, its memory does not have to come back.
        """
        if self.state not in LEASE_HELD and not any(page.waiting_calls for page in self._telemetry()):
            self._waits_since, self._gave_up_at = None, self._loop.time()
            self.changed(self)

    def note_trimmed(self) -> None:
        """Note that its frameworks returned their caches."""
        self._handle(Event.TRIMMED)

    def close(self) -> None:
        """Close: the kernel ended here, or the agent ends."""
        for task in (self._task, self._asking):
            if task is not None:
                task.cancel()
        self.wants_wake = self.changed = _nobody  # the lease keeper forgets the kernel by itself
        self._handle(Event.ENDED)

    def facts(self) -> ResidencyFacts:
        """Return a snapshot for decisions."""
        processes, pages = tuple(self._processes.values()), self._pages()
        telemetry = tuple(telemetry_of(page) for page in pages)
        self._look(telemetry)
        pin_reasons = pin_reasons_of(pages)
        accounts = self._accounts()
        devices = tuple(bytes_of(i, account, processes) for i, account in enumerate(accounts))
        why = self._why_never(pages, pin_reasons)
        return ResidencyFacts(
            kernel_id=self.kernel_id,
            state=self.state,
            mode=ResidencyMode.OFF if why else self.mode,
            mode_reason=why,
            since=self._since,
            devices=self._checkpoint.amend(devices) if self.state in SAVED else devices,
            pin_reasons=pin_reasons,
            refusal=self._history.refusal,
            waits_since=self._waits_since,
            gave_up_at=self._gave_up_at,
            telemetry=telemetry,
            silent_pids=tuple(process.session.pid for process in processes if process.is_silent),
            last_out=self._history.last(Event.OUT),
            last_in=self._history.last(Event.IN),
            swaps_out=self._history.count(Event.OUT),
            swaps_in=self._history.count(Event.IN),
            waited_seconds=self._waited_seconds,
            moving=self._moves.moving(),
        )

    def look(self) -> None:
        """Read the hooks' pages: note calls that wait, and processes that work again."""
        self._look(self._telemetry())

    def _look(self, telemetry: Sequence[Telemetry]) -> None:
        if self.is_lease_ended and self._waits_since is None and any(page.waiting_calls for page in telemetry):
            self.woken()
        if self.state is KernelState.TRIMMED and any((page.last_call or 0.0) > self._since for page in telemetry):
            self._handle(Event.USED)

    def _telemetry(self) -> tuple[Telemetry, ...]:
        return tuple(telemetry_of(page) for page in self._pages())

    def _pages(self) -> tuple[HookSide, ...]:
        pages = (process.session.hook_side for process in self._processes.values())
        return tuple(page for page in pages if page is not None)

    @property
    def _pids(self) -> tuple[int, ...]:
        return tuple(process.session.pid for process in self._processes.values())

    def _why_never(self, pages: Sequence[HookSide], pin_reasons: PinReason) -> str:
        """Return why it can never be swapped, by its processes' pages; empty: it can."""
        if self.mode is ResidencyMode.OFF:
            return MODE_IS_OFF
        unknown = next((name for page in pages if (name := page.unknown_function())), "")
        if unknown:
            return f"unknown driver function {unknown}"
        if not pin_reasons:
            return ""
        holder = next((word for reason, word in _HOLDERS.items() if reason in pin_reasons), "")
        return f"stays on GPU: {holder}" if holder else ""

    def _why_never_now(self) -> str:
        pages = self._pages()
        return self._why_never(pages, pin_reasons_of(pages))

    @property
    def is_pinned(self) -> bool:
        """Return whether it turned out, while it ran, that its memory cannot leave its devices."""
        return self._why_never_now() not in ("", MODE_IS_OFF)

    def _why_not(self) -> Move | None:
        why = self._why_never_now()
        if why:
            return Move(MoveResult.REFUSED, why)
        silent = [process.session.pid for process in self._processes.values() if process.is_silent]
        if silent:
            return Move(MoveResult.SILENT, f"process {silent[0]} has not answered since it was last told to move")
        return None

    def _lent(self, process: ProcessResidency) -> int:
        return sum(process.lent(account) for account in self._accounts())

    async def _start(self, event: Event, reason: str) -> Move:
        """Begin a move that the table allows, and wait for its end.

        Cancelling the wait does not end the move.
        """
        if ACTIONS[self.state][event].action is Action.IGNORE:
            return Move(MoveResult.IGNORED, f"it is {self.state.value}")
        log.info("event=move_began kernel=%s to=%s reason=%r", self.kernel_id, event.value, reason)
        self._handle(event)
        assert self._task is not None  # _handle made it
        task = self._task
        try:
            move = await asyncio.shield(task)
            # its contexts are restored, and its memory is on its way in
            while move.is_done and self._task is not task:
                task = self._task
                move = await asyncio.shield(task)
            return move
        except asyncio.CancelledError:
            if task.cancelled():  # the task was cancelled, not this wait
                return Move(MoveResult.FAILED, "the kernel ended, or the agent does")
            raise

    def _handle(self, event: Event) -> None:
        cell = ACTIONS[self.state][event]
        if cell.action is Action.IGNORE:
            return
        if cell.to is not None and cell.to is not self.state:
            self.state, self._since = cell.to, self._loop.time()
        self._acts[cell.action]()
        self.changed(self)

    def _run(self, event: Event, work: Coroutine[None, None, tuple[Event, Move]]) -> None:
        self._task = asyncio.create_task(self._move(event, work), name=f"move {self.kernel_id}")

    async def _move(self, event: Event, work: Coroutine[None, None, tuple[Event, Move]]) -> Move:
        """Run one move from its start to its end in the table."""
        start, before = self._loop.time(), self._swapped_bytes()
        try:
            end, move = await work
        except Exception:
            log.exception("event=move_broke kernel=%s", self.kernel_id)
            end, move = Event.STUCK, Move(MoveResult.FAILED, "a defect of the agent: see its log")
        moved = before if event is Event.IN else self._swapped_bytes()
        move = replace(move.within(self._loop.time() - start), moved_bytes=moved if move.is_done else 0)
        self._note(event, move)
        self._handle(end)
        if not self._processes:
            self.emptied()
        self._look_for_strays()
        return move

    async def _take_out(self) -> tuple[Event, Move]:
        if not await self._moves.prepare(tuple(self._processes.values()), is_held=True):
            return Event.FAILED, self._moves.why_unprepared
        self._end_lease()
        return await self._moves.take_out(tuple(self._processes.values()))

    async def _bring_in(self) -> tuple[Event, Move]:
        return await self._moves.bring_in(tuple(self._processes.values()))

    def _note(self, event: Event, move: Move) -> None:
        """Note a move that ended.

        A kernel that cannot be saved stays swapped, and comes in like any other.
        """
        is_save = event is Event.CHECKPOINT and (move.is_done or self.state is KernelState.CHECKPOINTING)
        self._history.note(event, move, self._loop.time(), counts=not is_save)

    def _swapped_bytes(self) -> int:
        accounts = self._accounts()
        return sum(p.swapped(i, account) for p in self._processes.values() for i, account in enumerate(accounts))

    def _end_lease(self) -> None:
        self._set_lease(True)

    def _stay_out(self) -> None:
        self._end_lease()
        self.look()
        self._ask_for_wake()

    def _start_anew(self) -> None:
        self._arena.clear(self.kernel_id)
        self._checkpoint.forget()
        self._let_on()

    def _let_on(self) -> None:
        self._set_lease(False)
        if self._waits_since is not None:
            self._waited_seconds += self._loop.time() - self._waits_since
            self._waits_since = None

    def _set_lease(self, is_ended: bool) -> None:
        """Set the lease.

        The journal says so before the lease ends, and after it is given: after a restart, a kernel
        in the journal may be out, but is never wrongly in.
        """
        was, self.is_lease_ended = self.is_lease_ended, is_ended
        if is_ended and not was:
            self._journal()
        for process in self._processes.values():
            if process.session.agent_side is not None:
                process.session.agent_side.set_lease(self.lease)
        if was and not is_ended:
            self._journal()

    def _ask_for_wake(self) -> None:
        if self._waits_since is not None and self.state in (KernelState.SWAPPED, KernelState.CHECKPOINTED):
            self.wants_wake(self)

    def _look_for_strays(self) -> None:
        """Note processes that are out while the kernel is not."""
        if any(p.residency is Residency.SWAPPED and p.order is None for p in self._processes.values()):
            self._handle(Event.FOUND)


def pin_reasons_of(pages: Iterable[HookSide]) -> PinReason:
    """Return why memory of these processes stays on its devices."""
    found = PinReason(0)
    for page in pages:
        found |= page.read_residency().pin_reasons
    return found


def _nothing() -> None:
    """Do nothing: only the state changes."""


def _nobody(_: KernelResidency) -> None:
    """Do nothing, until the lease keeper is there."""

"""The two moves of one kernel, over all its processes at once.

Either all move, or those that moved come back. A move gets host memory first, then the processes
act. This module knows no state and no lease: ``residency`` does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeGuard

from jupyter_aliquot.gpu_hook.agent.host_copies.arena import Arena, ArenaFullError, OwnerGoneError
from jupyter_aliquot.gpu_hook.agent.host_copies.segments import Segment
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceAccount
from jupyter_aliquot.gpu_hook.agent.swap.settings import SwapSettings
from jupyter_aliquot.gpu_hook.protocol.codec import MessageType, Moved, MoveOutcome, Residency, ResidencyMode

from .facts import Move, MoveResult, Moving, slowest
from .process import Absence, Answer, Patience, ProcessResidency, move_of
from .table import Event

_SLOWEST_BYTES_PER_SECOND = 128 << 20  # a spill file on a slow disk

_CALLED_OFF = Move(MoveResult.IGNORED, "called off: it is wanted again")

End = tuple[Event, Move]


class MoveProgress:
    """The progress of one move, for waiting users, from the counters in the hooks' pages.

    It is made when the agent orders the move: bytes copied before do not count. No decision uses
    it, since the counters are untrusted; the bytes that the process has to move bound them.
    """

    def __init__(
        self, processes: Iterable[ProcessResidency], accounts: Sequence[DeviceAccount], *, is_out: bool
    ) -> None:
        self._parts = [
            (process, process.copied(), sum(_bytes(process, i, a, is_out) for i, a in enumerate(accounts)))
            for process in processes
        ]

    def now(self) -> Moving | None:
        """Return the progress; None while there is nothing to copy."""
        done = total = 0
        for process, before, wanted in self._parts:
            if process.has_left:
                continue
            total += wanted
            done += max(0, min(wanted, process.copied() - before))
        return Moving(done, total) if total else None


def _bytes(process: ProcessResidency, device: int, account: DeviceAccount, is_out: bool) -> int:
    away = process.swapped(device, account)
    return process.swappable(device, account) - away if is_out else away


class KernelMoves:
    """The moves of one kernel. It reads ``accounts`` anew each time."""

    def __init__(
        self,
        kernel_id: str,
        mode: ResidencyMode,
        arena: Arena,
        settings: SwapSettings,
        accounts: Callable[[], Sequence[DeviceAccount]],
    ) -> None:
        self.why_unprepared = _CALLED_OFF
        self._kernel_id = kernel_id
        self._mode = mode
        self._arena = arena
        self._settings = settings
        self._accounts = accounts
        self._preparing: set[asyncio.Future[list[Move]]] = set()
        self._is_called_off = False
        self._progress: MoveProgress | None = None

    @property
    def is_copying(self) -> bool:
        """Return whether a copy is under way whose progress can be shown."""
        return self._progress is not None

    def moving(self) -> Moving | None:
        """Return the progress of the copy under way.

        None while there is none, or its hooks report none.
        """
        return None if self._progress is None else self._progress.now()

    async def prepare(self, processes: Sequence[ProcessResidency], is_held: bool) -> bool:
        """Make host memory for all, held for ``take_out`` or only warm.

        Return False on failure: ``why_unprepared`` says why.
        """
        self._is_called_off, is_kept = False, False
        work = asyncio.gather(*(self._prepare(process) for process in processes))
        self._preparing.add(work)
        try:
            failed = [move for move in await work if not move.is_done]
            self.why_unprepared = failed[0] if failed else _CALLED_OFF
            is_kept = is_held and not failed
        except asyncio.CancelledError:
            if not self._is_called_off:
                raise
            self.why_unprepared = _CALLED_OFF
            return False
        finally:
            self._preparing.discard(work)
            for process in () if is_kept else processes:
                self._settle(process)
        return not failed

    def call_off(self) -> None:
        """Cancel waits for host memory that is not wanted any more."""
        self._is_called_off = bool(self._preparing)
        for work in self._preparing:
            work.cancel()

    async def take_out(self, processes: Sequence[ProcessResidency]) -> End:
        """Take all processes out, or leave all as before.

        Return STUCK when a process can neither leave nor come back.
        """
        with self._watching(processes, is_out=True):
            return await self._take_all_out(processes)

    async def _take_all_out(self, processes: Sequence[ProcessResidency]) -> End:
        answers = await asyncio.gather(*(self._take_out_one(process) for process in processes))
        failed = [move for move in answers if not move.is_done]
        if not failed:
            return Event.DONE, slowest(answers)
        out = [process for process in processes if process.is_out]
        back = await self._bring_all(out)
        for process in out:
            self._settle(process)
        is_back = all(move.is_done or move.result is MoveResult.SILENT for move in back)
        return Event.FAILED if is_back else Event.STUCK, failed[0]

    async def bring_in(self, processes: Sequence[ProcessResidency]) -> End:
        """Bring all processes in, or all out again.

        A silent process keeps its room, and the move does not wait for it.
        """
        out = [process for process in processes if process.is_out]
        with self._watching(out, is_out=False):
            moves = await self._bring_all(out)
        failed = [move for move in moves if not move.is_done and move.result is not MoveResult.SILENT]
        if not failed:
            for process in out:
                self._settle(process)
            return Event.DONE, slowest(moves)
        came = [process for process, move in zip(out, moves, strict=True) if move.is_done]
        await asyncio.gather(*(self._take_out_one(process) for process in came))
        return Event.FAILED, failed[0]

    @contextlib.contextmanager
    def _watching(self, processes: Sequence[ProcessResidency], *, is_out: bool) -> Iterator[None]:
        """Show the progress while the move runs.

        The driver moves unified memory, and does not report its progress.
        """
        if self._mode is not ResidencyMode.MANAGED:
            self._progress = MoveProgress(processes, self._accounts(), is_out=is_out)
        try:
            yield
        finally:
            self._progress = None

    async def _prepare(self, process: ProcessResidency) -> Move:
        try:
            await self._lend(process, self._wanted(process))
        except ArenaFullError as error:
            return Move(MoveResult.HOST_FULL, str(error))
        except OwnerGoneError:
            pass  # and none of its memory has to move any more
        return Move(MoveResult.DONE)

    async def _take_out_one(self, process: ProcessResidency) -> Move:
        """Take one process out.

        After NO_SPACE, send more segments once: it may have allocated since its page was read.
        """
        wanted = self._wanted(process)
        try:
            for _ in range(2):
                segments = await self._lend(process, wanted)
                answer = await self._tell(process, MessageType.SWAP_OUT, segments)
                if not _needs_space(answer) or not wanted < answer.wanted_bytes <= self._lent(process):
                    break
                wanted = answer.wanted_bytes
        except ArenaFullError as error:
            return Move(MoveResult.HOST_FULL, str(error))
        except OwnerGoneError:
            answer = Absence.GONE
        finally:
            self._settle(process)
        return move_of(answer, Residency.SWAPPED, self._accounts())

    async def _bring_all(self, processes: Sequence[ProcessResidency]) -> list[Move]:
        answers = await asyncio.gather(*(self._tell(process, MessageType.SWAP_IN, ()) for process in processes))
        accounts = self._accounts()
        return [move_of(answer, Residency.RESIDENT, accounts) for answer in answers]

    async def _tell(self, process: ProcessResidency, kind: MessageType, segments: Sequence[Segment]) -> Answer:
        drain = self._settings.drain_milliseconds if kind is MessageType.SWAP_OUT else 0
        begin = self._settings.patience_seconds
        patience = Patience(begin, begin + drain / 1000 + self._lent(process) / _SLOWEST_BYTES_PER_SECOND)
        if process.order is not None:
            return Absence.SILENT
        return await process.tell(kind, segments, drain, patience)

    async def _lend(self, process: ProcessResidency, wanted: int) -> tuple[Segment, ...]:
        most = sum(account.quota_bytes for account in self._accounts())
        return await self._arena.lend(self._kernel_id, process.session.number, wanted, most)

    def _settle(self, process: ProcessResidency) -> None:
        """Make the segments warm that hold no copy and will hold none."""
        if not process.is_out and process.order is None:
            self._arena.release(self._kernel_id, process.session.number)

    def _wanted(self, process: ProcessResidency) -> int:
        """Return the host memory for its copy.

        Unified memory needs none: the driver pages it, in the process's account.
        """
        if self._mode is ResidencyMode.MANAGED:
            return 0
        return sum(process.swappable(device, account) for device, account in enumerate(self._accounts()))

    def _lent(self, process: ProcessResidency) -> int:
        return sum(process.lent(account) for account in self._accounts())


def _needs_space(answer: Answer) -> TypeGuard[Moved]:
    return isinstance(answer, Moved) and answer.outcome is MoveOutcome.NO_SPACE

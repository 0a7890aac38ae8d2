"""The arena: all host copies of this node's swapped kernels.

It lends segments to processes, within a budget of bytes. A segment belongs to one process for its
whole life, so no other process can read any of it. When its process is back on its devices, the
segment stays warm for the next time, until another kernel needs the budget. The arena runs on the
event loop; threads do its blocking work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from jupyter_aliquot.gpu_hook.agent.base.descriptors import OF_A_SEGMENT, Descriptors
from jupyter_aliquot.gpu_hook.agent.base.processes import Process

from .kept_copies import KeptCopies
from .segments import PIECE_BYTES, NotWantedError, Segment, close_segment, empty_segment, make_segment

log = logging.getLogger(__name__)

_THREADS = 2  # memory limits how fast a segment is made, not processors

T = TypeVar("T")
Owner = tuple[str, int]  # kernel, number of its process's session


class ArenaFullError(Exception):
    """Neither host memory nor a file has room for a copy.

    The message says how much was requested and how much is there.
    """


class OwnerGoneError(Exception):
    """The process that the segments are for has left in the meantime."""


@dataclass(frozen=True)
class HostBudget:
    """The host memory that copies, and warm segments for copies, may take in all.

    Spill files do not count.
    """

    memory_bytes: int


@dataclass
class _Stack:
    """The segments of one process, in their order.

    ``holds``: a copy is in them, or may come into them.
    """

    kernel_id: str
    segments: list[Segment] = field(default_factory=list)
    holds: bool = False
    used: int = 0  # the arena's count of moves when it was last used

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)


@dataclass(frozen=True)
class ArenaUse:
    """The host memory that copies use, in bytes.

    ``used_bytes`` is memory that is lent, warm, being made, held by processes since before this
    agent, or kept. ``kept_bytes`` is the memory that processes took with them when they left, and
    the contents of segments that outlived their use.
    """

    used_bytes: int
    budget_bytes: int
    warm_bytes: int
    adopted_bytes: int
    kept_bytes: int
    spilled_bytes: int


class Arena:
    """The segments of all processes on this node.

    ``close`` leaves segments that hold copies to the processes that have them open.
    """

    def __init__(
        self,
        budget: HostBudget,
        segment_bytes: int,
        spill_dir: Path | None = None,
        descriptors: Descriptors | None = None,
    ) -> None:
        self.descriptors = descriptors or Descriptors.of_this_process()
        self._budget = budget
        self._limits: dict[str, int] = {}
        self._segment_bytes = segment_bytes
        self._spill_dir = spill_dir
        self._stacks: dict[Owner, _Stack] = {}
        self._adopted: dict[Owner, int] = {}
        self._holders: dict[Owner, Process] = {}
        self._in_making: dict[Owner, int] = {}  # bytes of memory
        self._is_closed = False
        self._leaving = 0  # bytes of memory that a thread is still freeing
        self._leaves: set[Future[Any]] = set()
        self._moves = 0
        self._kept = KeptCopies(self._submit_empty, self._submit_close, self.descriptors)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="arena")
        # one request grows at a time: two halves of a budget help neither
        self._turn = asyncio.Lock()

    @property
    def use(self) -> ArenaUse:
        stacks = self._stacks.values()
        return ArenaUse(
            used_bytes=self._used(),
            budget_bytes=self._budget.memory_bytes,
            warm_bytes=self.warm_bytes,
            adopted_bytes=sum(self._adopted.values()),
            kept_bytes=self._kept.memory_bytes,
            spilled_bytes=sum(stack.bytes - _memory(stack) for stack in stacks) + self._kept.spilled_bytes,
        )

    def kernel_bytes(self, kernel_id: str) -> int:
        """Return one kernel's memory, of all kinds."""
        return self.bytes_by_kernel().get(kernel_id, 0)

    def bytes_by_kernel(self) -> Mapping[str, int]:
        """Return the memory of each kernel that has some: lent, warm, being made, adopted and kept."""
        total = Counter(self._kept.bytes_by_kernel())
        for (kernel_id, _), stack in self._stacks.items():
            total[kernel_id] += _memory(stack)
        for (kernel_id, _), amount in (*self._adopted.items(), *self._in_making.items()):
            total[kernel_id] += amount
        return total

    @property
    def held_bytes(self) -> int:
        """Return the memory with copies: all that is used, without warm segments."""
        return self._used() - self.warm_bytes

    @property
    def warm_bytes(self) -> int:
        return sum(_memory(stack) for stack in self._stacks.values() if not stack.holds)

    def limit_budget(self, memory_bytes: int) -> None:
        """Set another budget, and drop warm segments over it.

        Called on the loop. Segments that hold copies stay.
        """
        self._budget = HostBudget(memory_bytes)
        for _, stack in list(self._warm(None)):
            while stack.segments and self._used() - self._leaving > memory_bytes:
                self._drop(stack, stack.segments[-1:])

    async def configure(self, budget: HostBudget) -> None:
        """Set another budget.

        Segments that hold copies stay; the arena drops warm segments over the budget.
        """
        self._budget = budget
        async with self._turn:
            await self._press(0, keep=None)

    def limit(self, kernel_id: str, memory_bytes: int | None) -> None:
        """Limit one kernel's part of the budget; None: all of it."""
        if memory_bytes is None:
            self._limits.pop(kernel_id, None)
        else:
            self._limits[kernel_id] = memory_bytes

    def enter(self, kernel_id: str, process: int, holder: Process, *, has_copy: bool = True) -> None:
        """Register the system process of a kernel's process.

        ``has_copy``: it may have a copy from before.
        """
        self._holders[kernel_id, process] = holder
        if not has_copy:
            self._kept.give_back(holder)

    async def lend(
        self, kernel_id: str, process: int, wanted: int, quota_bytes: int | None = None
    ) -> tuple[Segment, ...]:
        """Lend segments for a copy of ``wanted`` bytes, until ``release`` or ``leave``.

        ``quota_bytes`` is the kernel's limit on its devices; its copies and the memory that it
        keeps stay within twice that. Raises ArenaFullError and OwnerGoneError. When it is cancelled
        or finds no room, the segments made so far stay warm.
        """
        owner = (kernel_id, process)
        self._check_kept(owner, wanted, quota_bytes)
        stack = self._stacks.setdefault(owner, _Stack(kernel_id))
        was_held, stack.holds = stack.holds, True
        try:
            async with self._turn:
                self._drop_surplus(stack, wanted)
                while (short := wanted - stack.bytes) > 0:
                    amount = min(_rounded(short), self._segment_bytes)
                    segment = await self._grow(owner, amount)
                    if self._stacks.get(owner) is not stack:
                        self._submit_close(kernel_id, segment)
                        raise OwnerGoneError
                    stack.segments.append(segment)
        except BaseException:
            stack.holds = was_held
            raise
        self._moves += 1
        stack.used = self._moves
        return tuple(stack.segments)

    def release(self, kernel_id: str, process: int) -> None:
        """Keep the segments warm: the process has its bytes on its devices again."""
        self._adopted.pop((kernel_id, process), None)
        if (holder := self._holders.get((kernel_id, process))) is not None:
            self._kept.give_back(holder)
        stack = self._stacks.get((kernel_id, process))
        if stack is not None:
            stack.holds = False
            # a spill file is no faster than a new one
            self._drop(stack, [segment for segment in stack.segments if segment.is_spilled])
            # the budget shrank
            while stack.segments and self._used() - self._leaving > self._budget.memory_bytes:
                self._drop(stack, stack.segments[-1:])

    def leave(self, kernel_id: str, process: int) -> None:
        """Note that the process left.

        It may live and come back, so a segment that may hold its copy keeps its contents until it
        ends.
        """
        owner = (kernel_id, process)
        self._adopted.pop(owner, None)
        stack, holder = self._stacks.pop(owner, None), self._holders.pop(owner, None)
        if stack is not None and stack.holds and holder is not None:
            self._kept.keep(kernel_id, holder, stack.segments)
        elif stack is not None:
            self._drop(stack, list(stack.segments))

    def adopt(self, kernel_id: str, process: int, amount: int) -> None:
        """Count bytes that a process has held since before this agent.

        They count even beyond the budget, and the arena never lends them.
        """
        holder = self._holders.get((kernel_id, process))
        # the process left this agent, and came back
        known = 0 if holder is None else self._kept.held_by(holder)
        self._adopted[kernel_id, process] = max(0, amount - known)

    def forget(self, kernel_id: str) -> None:
        """Forget a kernel that ended."""
        self.clear(kernel_id)
        self._limits.pop(kernel_id, None)

    def clear(self, kernel_id: str) -> None:
        """Clear the kernel's segments: none of its processes is left."""
        for owner in {*self._stacks, *self._adopted, *self._holders}:
            if owner[0] == kernel_id:
                self.leave(*owner)

    def close(self) -> None:
        """Close with the agent. Hooks keep the segments that hold their copies."""
        self._is_closed = True
        for stack in self._stacks.values():
            for segment in stack.segments:
                close_segment(segment)
        self._stacks.clear()
        self._kept.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _used(self) -> int:
        held = sum(_memory(stack) for stack in self._stacks.values())
        held += self._kept.memory_bytes
        return held + sum(self._adopted.values()) + sum(self._in_making.values()) + self._leaving

    async def _grow(self, owner: Owner, amount: int) -> Segment:
        """Return one more segment, with a descriptor for it. Raises ArenaFullError."""
        if not self.descriptors.take(owner[0], OF_A_SEGMENT):
            raise ArenaFullError(
                f"requested {amount} bytes of host memory for its copy; its kernel has "
                f"{self.descriptors.held(owner[0])} of the {self.descriptors.limit} descriptors of all kernels, and "
                "others are to find some: raise the agent's limit of open files"
            )
        try:
            return await self._find(owner, amount)
        except BaseException:
            self.descriptors.give_back(owner[0], OF_A_SEGMENT)
            raise

    async def _find(self, owner: Owner, amount: int) -> Segment:
        """Find a segment in memory, or else in a file. Raises ArenaFullError."""
        await self._press(amount, keep=owner)
        limit, own = self._limits.get(owner[0]), self.kernel_bytes(owner[0])
        free = self._budget.memory_bytes - self._used()
        if limit is not None and own + amount > limit:
            why = f"its kernel has {own} of its {limit}"
        elif amount > free:
            why = f"{max(0, free)} of {self._budget.memory_bytes} are free"
        else:
            try:
                return await self._make(owner, amount, None)
            except OSError as error:
                why = f"the machine has no more: {error.strerror}"
        asked = f"Requested {amount} bytes of host memory for its copy, but {why}"
        if self._spill_dir is None:
            raise ArenaFullError(f"{asked}, and no folder for spill files is configured (--swap-spill-dir)")
        try:
            return await self._make(owner, amount, self._spill_dir)
        except OSError as error:
            raise ArenaFullError(f"{asked}, and no spill file can be made: {error.strerror}") from error

    async def _make(self, owner: Owner, amount: int, folder: Path | None) -> Segment:
        """Make a segment in a thread, counted from now on. Raises OSError."""
        is_unwanted = Event()
        counted = amount if folder is None else 0
        self._in_making[owner] = self._in_making.get(owner, 0) + counted
        job = asyncio.get_running_loop().run_in_executor(self._pool, make_segment, amount, folder, is_unwanted)

        def made(_: object) -> None:
            self._in_making[owner] -= counted
            if not self._in_making[owner]:
                del self._in_making[owner]

        job.add_done_callback(made)
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            is_unwanted.set()
            job.add_done_callback(self._discard)
            raise

    async def _press(self, amount: int, keep: Owner | None) -> None:
        """Drop warm memory until ``amount`` more fits.

        The longest unused goes first, the kernel's own last.
        """
        # memory that threads are freeing already will be there soon
        if self._is_short(amount, None) and self._leaves:
            await asyncio.wait([asyncio.wrap_future(job) for job in self._leaves])
        for owner, stack in list(self._warm(keep)):
            is_sibling = keep is not None and owner[0] == keep[0]
            while not stack.holds and _memory(stack) and self._is_short(amount, keep if is_sibling else None):
                segment = next(segment for segment in reversed(stack.segments) if not segment.is_spilled)
                stack.segments.remove(segment)
                # From here on only the thread holds it: a cancellation here must not take it away.
                await asyncio.shield(asyncio.wrap_future(self._submit_empty(owner[0], segment)))
            if not stack.segments and self._stacks.get(owner) is stack and not stack.holds:
                del self._stacks[owner]

    def _is_short(self, amount: int, owner: Owner | None) -> bool:
        """Return whether ``amount`` more passes the budget, or the limit of the owner's kernel."""
        if self._used() + amount > self._budget.memory_bytes:
            return True
        limit = None if owner is None else self._limits.get(owner[0])
        return owner is not None and limit is not None and self.kernel_bytes(owner[0]) + amount > limit

    def _drop_surplus(self, stack: _Stack, wanted: int) -> None:
        while stack.segments and stack.bytes - stack.segments[-1].bytes >= wanted:
            self._drop(stack, stack.segments[-1:])

    def _drop(self, stack: _Stack, segments: Iterable[Segment]) -> None:
        """Drop segments that hold no copy."""
        for segment in segments:
            stack.segments.remove(segment)
            self._submit_empty(stack.kernel_id, segment)

    def _warm(self, keep: Owner | None) -> Iterator[tuple[Owner, _Stack]]:
        def order(item: tuple[Owner, _Stack]) -> tuple[bool, int]:
            return keep is not None and item[0][0] == keep[0], item[1].used

        warm = [item for item in self._stacks.items() if not item[1].holds and _memory(item[1]) and item[0] != keep]
        yield from sorted(warm, key=order)

    def _check_kept(self, owner: Owner, wanted: int, quota_bytes: int | None) -> None:
        """Raise ArenaFullError if the process or its kernel has copies that did not come back."""
        holder = self._holders.get(owner)
        if holder is not None and (own := self._kept.held_by(holder)):
            raise ArenaFullError(
                f"requested {wanted} bytes of host memory for its copy; process {holder.pid} keeps {own} bytes of a "
                "copy from before it left the agent: its memory has to come back to its devices, or the process to end"
            )
        reach = self._kept.reach_bytes(owner[0])
        have = sum(stack.bytes for other, stack in self._stacks.items() if other[0] == owner[0] and other != owner)
        if reach and quota_bytes is not None and reach + have + wanted > 2 * quota_bytes:
            raise ArenaFullError(
                f"requested {wanted} bytes of host memory for its copy; its kernel's processes have {have} and keep "
                f"{reach} more open, and twice its quota of {quota_bytes} bytes is the limit: end those processes"
            )

    def _submit_empty(self, kernel_id: str, segment: Segment) -> Future[bool]:
        def given_back(is_held: bool) -> None:
            if is_held:
                self._kept.outlive(kernel_id, segment)
            else:
                self.descriptors.give_back(kernel_id, OF_A_SEGMENT)

        return self._submit(empty_segment, segment, given_back)

    def _submit_close(self, kernel_id: str, segment: Segment) -> None:
        self._submit(close_segment, segment, lambda _: self.descriptors.give_back(kernel_id, OF_A_SEGMENT))

    def _submit(
        self, job: Callable[[Segment], T], segment: Segment, then: Callable[[T], None] | None = None
    ) -> Future[T]:
        """Give a segment back in a thread. Its memory counts until then."""
        counted = 0 if segment.is_spilled else segment.bytes
        if self._is_closed:  # the arena does not count any more
            job(segment)
            return Future()
        loop = asyncio.get_running_loop()
        self._leaving += counted

        def left(future: Future[T]) -> None:
            self._leaving -= counted
            self._leaves.discard(future)
            if then is not None and not future.cancelled() and future.exception() is None:
                then(future.result())

        def done(future: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the count
                loop.call_soon_threadsafe(left, future)

        future = self._pool.submit(job, segment)
        self._leaves.add(future)
        future.add_done_callback(done)
        return future

    def _discard(self, job: asyncio.Future[Segment]) -> None:
        """Note that no process waits for the segment any more."""
        if job.cancelled():
            return
        error = job.exception()
        if error is None:
            self._submit(close_segment, job.result())
        elif not isinstance(error, NotWantedError | OSError):
            log.error("event=segment_failed error=%r", error)


def _memory(stack: _Stack) -> int:
    return sum(segment.bytes for segment in stack.segments if not segment.is_spilled)


def _rounded(amount: int) -> int:
    return -(-amount // PIECE_BYTES) * PIECE_BYTES

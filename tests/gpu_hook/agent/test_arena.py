"""The arena: a segment has one process, the budget holds, new segments are zero and populated."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import mmap
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jupyter_aliquot.gpu_hook.agent.base.processes import Process, start_time_ticks
from jupyter_aliquot.gpu_hook.agent.host_copies.arena import Arena, ArenaFullError, HostBudget
from jupyter_aliquot.gpu_hook.agent.host_copies.segments import Segment

if TYPE_CHECKING:
    from tests.gpu_hook.agent.residency_node import until
else:
    from residency_node import until

MIB = 1 << 20
SEGMENT = 4 * MIB
T = TypeVar("T")


def play(scenario: Callable[[Arena], Coroutine[Any, Any, None]], budget: int, spill_dir: Path | None = None) -> None:
    async def run() -> None:
        arena = Arena(HostBudget(budget), SEGMENT, spill_dir)
        try:
            await asyncio.wait_for(scenario(arena), 60)
        finally:
            arena.close()

    asyncio.run(run())


async def all_given_back(arena: Arena, want: int) -> None:
    """Wait for the threads that give segments back."""
    await until(lambda: arena.use.used_bytes == want)


def mark(segments: tuple[Segment, ...], owner: bytes) -> set[bytes]:
    """Return the earlier contents, a byte of each piece; then write the owner there."""
    found = set()
    for segment in segments:
        with mmap.mmap(segment.descriptor, segment.bytes) as view:
            for offset in range(0, segment.bytes, MIB):
                found.add(view[offset : offset + 1])
                view[offset : offset + 1] = owner
    return found


def test_a_segment_is_there_and_keeps_its_size() -> None:
    async def scenario(arena: Arena) -> None:
        segments = await arena.lend("k", 1, 5 * MIB)
        assert [segment.bytes for segment in segments] == [4 * MIB, 2 * MIB]
        for segment in segments:
            assert os.fstat(segment.descriptor).st_blocks * 512 >= segment.bytes
            with pytest.raises(PermissionError):
                os.ftruncate(segment.descriptor, 0)
            assert fcntl.fcntl(segment.descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC

    play(scenario, 16 * MIB)


def test_an_end_while_segments_are_given_back_is_no_error() -> None:
    async def scenario(arena: Arena) -> None:
        problems: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        is_busy, goes_on = Event(), Event()

        def block() -> None:
            is_busy.set()
            goes_on.wait(60)

        for number in range(4):
            await arena.lend("k", number, SEGMENT)
        arena._pool = ThreadPoolExecutor(1)
        arena._pool.submit(block)
        is_busy.wait(60)
        for number in range(4):
            arena.release("k", number)
            arena.leave("k", number)
        arena.close()
        goes_on.set()
        await asyncio.sleep(0)  # let the loop finish the cancelled jobs
        await asyncio.sleep(0)
        assert problems == []

    play(scenario, 64 * MIB)


def test_the_same_process_finds_its_segments_warm() -> None:
    async def scenario(arena: Arena) -> None:
        first = await arena.lend("k", 1, 8 * MIB)
        mark(first, b"k")
        arena.release("k", 1)
        assert (arena.use.warm_bytes, arena.use.used_bytes) == (8 * MIB, 8 * MIB)
        assert await arena.lend("k", 1, 8 * MIB) == first
        assert arena.use.warm_bytes == 0

    play(scenario, 16 * MIB)


def test_warm_segments_of_others_go_first_then_the_own_kernels() -> None:
    async def scenario(arena: Arena) -> None:
        for kernel, process in (("k", 1), ("other", 2)):
            await arena.lend(kernel, process, 4 * MIB)
            arena.release(kernel, process)
        await arena.lend("k", 3, 4 * MIB)
        assert (arena.kernel_bytes("k"), arena.kernel_bytes("other")) == (8 * MIB, 0)
        await arena.lend("k", 4, 4 * MIB)
        assert (arena.kernel_bytes("k"), arena.use.warm_bytes) == (8 * MIB, 0)
        with pytest.raises(ArenaFullError, match="0 of 8388608 are free"):
            await arena.lend("k", 5, 2 * MIB)

    play(scenario, 8 * MIB)


def test_what_is_dropped_is_freed_though_a_hook_keeps_it_open() -> None:
    async def scenario(arena: Arena) -> None:
        (segment,) = await arena.lend("k", 1, 4 * MIB)
        kept = os.dup(segment.descriptor)
        try:
            mark((segment,), b"k")
            arena.release("k", 1)
            await arena.lend("other", 2, 4 * MIB)
            assert os.fstat(kept).st_blocks == 0
        finally:
            os.close(kept)

    play(scenario, 4 * MIB)


def test_a_copy_outlives_its_processes_connection_and_the_arena_and_is_counted() -> None:
    async def scenario(arena: Arena) -> None:
        arena.enter("k", 1, Process(os.getpid(), start_time_ticks(os.getpid()) or 0))
        (segment,) = await arena.lend("k", 1, 4 * MIB)
        kept = os.dup(segment.descriptor)
        try:
            mark((segment,), b"k")
            arena.leave("k", 1)
            assert (arena.use.used_bytes, arena.use.kept_bytes, arena.kernel_bytes("k")) == (4 * MIB,) * 3
            arena.close()
            assert os.pread(kept, 1, 0) == b"k"
        finally:
            os.close(kept)

    play(scenario, 4 * MIB)


def test_what_is_too_much_for_one_kernel_is_refused_with_the_numbers() -> None:
    async def scenario(arena: Arena) -> None:
        arena.limit("k", 4 * MIB)
        await arena.lend("k", 1, 4 * MIB)
        with pytest.raises(ArenaFullError, match="its kernel has 4194304 of its 4194304"):
            await arena.lend("k", 2, 2 * MIB)
        arena.release("k", 1)
        await arena.lend("k", 2, 2 * MIB)  # the warm segments of its sibling had to go
        assert arena.kernel_bytes("k") == 2 * MIB

    play(scenario, 64 * MIB)


def test_what_processes_hold_since_before_is_counted() -> None:
    async def scenario(arena: Arena) -> None:
        arena.adopt("k", 1, 12 * MIB)
        with pytest.raises(ArenaFullError):
            await arena.lend("other", 2, 8 * MIB)
        arena.release("k", 1)
        await arena.lend("other", 2, 8 * MIB)

    play(scenario, 16 * MIB)


def test_a_smaller_budget_drops_what_is_warm_and_keeps_what_is_lent() -> None:
    async def scenario(arena: Arena) -> None:
        await arena.lend("k", 1, 4 * MIB)
        await arena.lend("other", 2, 8 * MIB)
        arena.release("other", 2)
        await arena.configure(HostBudget(2 * MIB))
        assert (arena.kernel_bytes("k"), arena.kernel_bytes("other")) == (4 * MIB, 0)

    play(scenario, 16 * MIB)


def test_who_is_cancelled_while_warm_memory_is_dropped_for_it_leaks_none_of_that() -> None:
    """The dropped memory waits for a thread then, and has no other owner."""

    async def scenario(arena: Arena) -> None:
        (segment,) = await arena.lend("other", 1, SEGMENT)
        arena.release("other", 1)
        blocked, descriptor = Event(), segment.descriptor
        for _ in range(2):
            arena._pool.submit(blocked.wait)
        lending = asyncio.ensure_future(arena.lend("k", 2, SEGMENT))
        await until(lambda: arena._leaves)
        await asyncio.sleep(0)
        lending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await lending
        blocked.set()
        await all_given_back(arena, 0)
        await until(lambda: not arena._leaves)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
        assert arena.descriptors.held("other") == 0

    play(scenario, SEGMENT)


def test_who_is_cancelled_leaves_nothing_that_is_not_counted() -> None:
    async def scenario(arena: Arena) -> None:
        lending = asyncio.create_task(arena.lend("k", 1, 64 * MIB))
        await until(lambda: arena.use.used_bytes)
        lending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await lending
        await arena.configure(HostBudget(0))
        await all_given_back(arena, 0)

    play(scenario, 64 * MIB)


class TestSpill:
    def test_when_memory_is_used_up_a_private_file_without_a_name_takes_the_rest(self, tmp_path: Path) -> None:
        async def scenario(arena: Arena) -> None:
            segments = await arena.lend("k", 1, 8 * MIB)
            assert [segment.is_spilled for segment in segments] == [False, True]
            found = os.fstat(segments[1].descriptor)
            assert stat.S_IMODE(found.st_mode) == 0o600
            assert (found.st_nlink, os.listdir(tmp_path)) == (0, [])
            assert found.st_blocks * 512 >= 4 * MIB
            assert (arena.use.used_bytes, arena.use.spilled_bytes) == (4 * MIB, 4 * MIB)
            arena.release("k", 1)
            assert arena.use.spilled_bytes == 0

        play(scenario, 4 * MIB, tmp_path)

    def test_a_folder_that_is_not_there_is_a_refusal(self, tmp_path: Path) -> None:
        async def scenario(arena: Arena) -> None:
            with pytest.raises(ArenaFullError, match="no spill file can be made: No such file or directory"):
                await arena.lend("k", 1, 4 * MIB)

        play(scenario, 0, tmp_path / "missing")

    def test_a_full_disk_is_a_refusal_and_leaves_a_part_to_others(self, tmp_path: Path) -> None:
        if shutil.which("unshare") is None:
            pytest.skip("unshare is not installed: no small file system can be made")
        script = f"mount -t tmpfs -o size=20m none {tmp_path} && exec {sys.executable} -c '{_FILL}' {tmp_path}"
        done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, timeout=60)
        if "mount" in done.stderr or "unshare" in done.stderr:
            pytest.skip(f"no file system of our own may be mounted here: {done.stderr.strip()}")
        spilled, refusal = done.stdout.splitlines()
        assert spilled == "16777216 spilled"
        assert refusal.endswith("4194304 are free, of which 1048576 are left to others")


_FILL = """
import asyncio, sys
from pathlib import Path
from jupyter_aliquot.gpu_hook.agent.host_copies.arena import Arena, ArenaFullError, HostBudget
async def fill():
    arena = Arena(HostBudget(0), 4 << 20, Path(sys.argv[1]))
    await arena.lend("k", 1, 16 << 20)
    print(arena.use.spilled_bytes, "spilled")
    try:
        await arena.lend("k", 2, 4 << 20)
    except ArenaFullError as error:
        print(str(error).rsplit(": ", 1)[1])
asyncio.run(fill())
"""

KERNELS = st.sampled_from(["a", "b"])
PROCESSES = st.integers(1, 3)


class ArenaMachine(RuleBasedStateMachine):
    """Segments carry their owner's mark.

    A process that finds another's mark has another's memory.
    """

    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.budget = 24 * MIB
        self.arena = self.do(self.make())
        self.lent: dict[tuple[str, int], tuple[Segment, ...]] = {}

    async def make(self) -> Arena:
        return Arena(HostBudget(self.budget), SEGMENT)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    @rule(kernel=KERNELS, process=PROCESSES, pieces=st.integers(0, 7))
    def lend(self, kernel: str, process: int, pieces: int) -> None:
        if (kernel, process) in self.lent:
            return
        try:
            segments = self.do(self.arena.lend(kernel, process, pieces * 2 * MIB))
        except ArenaFullError:
            return
        own = f"{kernel}{process}".encode()[-1:] if kernel == "a" else bytes([ord("x") + process])
        assert mark(segments, own) <= {b"\0", own}
        assert sum(segment.bytes for segment in segments) >= pieces * 2 * MIB
        self.lent[kernel, process] = segments

    @rule(kernel=KERNELS, process=PROCESSES)
    def release(self, kernel: str, process: int) -> None:
        async def act() -> None:
            self.arena.release(kernel, process)

        self.do(act())
        self.lent.pop((kernel, process), None)

    @rule(kernel=KERNELS, process=PROCESSES)
    def leave(self, kernel: str, process: int) -> None:
        async def act() -> None:
            self.arena.leave(kernel, process)

        self.do(act())
        self.lent.pop((kernel, process), None)

    @rule(pieces=st.integers(0, 12))
    def configure(self, pieces: int) -> None:
        self.budget = pieces * 2 * MIB
        self.do(self.arena.configure(HostBudget(self.budget)))

    @rule(kernel=KERNELS, pieces=st.none() | st.integers(0, 6))
    def limit(self, kernel: str, pieces: int | None) -> None:
        self.arena.limit(kernel, None if pieces is None else pieces * 2 * MIB)

    @invariant()
    def nothing_has_two_owners(self) -> None:
        files = [
            (found.st_dev, found.st_ino)
            for segments in getattr(self, "lent", {}).values()
            for found in (os.fstat(segment.descriptor) for segment in segments)
        ]
        assert len(files) == len(set(files))

    @invariant()
    def the_budget_holds_but_for_what_was_lent_before_it_shrank(self) -> None:
        if not hasattr(self, "arena"):
            return

        async def is_given_back() -> None:
            kernels = ("a", "b")
            await until(lambda: self.arena.use.used_bytes == sum(self.arena.kernel_bytes(kernel) for kernel in kernels))

        self.do(is_given_back())
        lent = sum(segment.bytes for segments in self.lent.values() for segment in segments)
        assert lent <= self.arena.use.used_bytes <= max(self.budget, lent)

    def teardown(self) -> None:
        if hasattr(self, "arena"):
            self.arena.close()
            self.loop.close()


TestArenaMachine = ArenaMachine.TestCase
TestArenaMachine.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)

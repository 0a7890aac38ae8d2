"""Occupied time: the hook's measurement of launches of every kind, and of nothing else."""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import ActivityPage, AgentPage, Gate, HookPage, Pace

MS = 1_000_000
KINDS = ("kernel", "kernel_ptsz", "ex", "ex_ptsz", "cooperative", "graph", "graph_ptsz", "old", "old_stream")
MODES = {"global": 0, "thread_local": 1, "relaxed": 2}
# Between the first event and the first launch, or while the host is slow between two launches, the stream is empty, and
# that counts: on a loaded machine it is now and then a whole slice of the scheduler's.
PLAY = 60 * MS
NOT_INITIALIZED = 3


@pytest.mark.parametrize("kind", KINDS)
def test_occupied_time_is_what_launches_take(kind: str, a_paced_kernel: Any) -> None:
    kernel = a_paced_kernel
    stream = 0 if kind == "old" else kernel.program("make_stream()")
    assert kernel.program(f"spins({kind!r}, 1, 1000, {stream}) or wait()") == 0
    kernel.order(Pace.MEASURE)
    assert kernel.program(f"spins({kind!r}, 40, 1000, {stream}) or wait()") == 0
    assert 40 * MS * 0.99 <= kernel.occupied() <= 40 * MS + PLAY


def test_launches_in_one_batch_count_like_launches_in_many(a_paced_kernel: Any) -> None:
    kernel, taken = a_paced_kernel, []
    for batch in (100, 100_000):
        kernel.order(Pace.MEASURE, batch_us=batch)
        before = kernel.occupied()
        assert kernel.program("spins('kernel', 300, 100, make_stream()) or wait()") == 0
        taken.append(kernel.occupied() - before)
    assert all(30 * MS * 0.99 <= one <= 30 * MS + PLAY for one in taken)


def test_streams_at_the_same_time_count_once(a_paced_kernel: Any) -> None:
    kernel = a_paced_kernel
    kernel.order(Pace.MEASURE)
    work = "[spins('kernel', 1, 1000, one) for _ in range(20) for one in (make_stream(), make_stream())]"
    assert set(kernel.program(f"{work} + [wait()]")) == {0}
    assert 40 * MS * 0.99 <= kernel.occupied() <= 40 * MS + PLAY


def test_the_activity_page_shows_what_is_occupied(a_paced_kernel: Any, activity_files: Any) -> None:
    kernel = a_paced_kernel
    with activity_files.ActivityFile() as activity:
        activity_files.hand_own(kernel.connection, activity)
        kernel.agent.wait_for(lambda: activity.is_mapped)
        kernel.order(Pace.MEASURE)
        kernel.program.ask("[spins('kernel', 1, 300000, make_stream()) for _ in range(3)] + [wait()]")
        kernel.agent.wait_for(lambda: activity.is_active() == 1)
        assert kernel.program.answer() == [0, 0, 0, 0]
        occupied = kernel.occupied()
        kernel.agent.wait_for(lambda: activity.is_active() == 0)
        shown = sum(end - start for start, end in activity.intervals())
        assert shown + activity.word(ActivityPage.LOST) >= occupied * 0.99
        assert 900 * MS * 0.99 <= occupied <= 900 * MS + PLAY


def test_the_longest_launch_is_known_for_a_while(a_paced_kernel: Any) -> None:
    kernel = a_paced_kernel
    kernel.order(Pace.MEASURE)
    assert kernel.program("spins('kernel', 1, 8000) or spins('kernel', 20, 100) or wait()") == 0
    kernel.occupied()
    assert 8 * MS * 0.99 <= kernel.word(HookPage.LONGEST) <= 8 * MS + PLAY
    again = "spins('kernel', 1, 1) or wait()"
    kernel.agent.wait_for(lambda: kernel.program(again) == 0 and kernel.word(HookPage.LONGEST) < 8 * MS * 0.99)


def test_a_launch_that_fails_is_in_no_batch(a_paced_kernel: Any) -> None:
    kernel = a_paced_kernel
    want = kernel.program("fail_to_launch(3)")
    kernel.order(Pace.MEASURE)
    assert kernel.program("fail_to_launch(3)") == want
    assert kernel.occupied() < 1 * MS


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_capture_makes_the_same_graph(mode: int, a_paced_kernel: Any) -> None:
    kernel = a_paced_kernel
    want = kernel.program(f"captured_nodes({mode})")
    kernel.order(Pace.TIME)
    stream = kernel.program("make_stream()")
    assert kernel.program(f"spins('kernel', 5, 100, {stream}) or captured_nodes({mode})") == want == [0, 5]
    assert kernel.program(f"spins('kernel', 5, 100, {stream}) or wait()") == 0
    assert 1 * MS * 0.99 <= kernel.occupied() <= 1 * MS + PLAY


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_capture_stands_while_other_threads_are_measured(mode: int, a_paced_kernel: Any) -> None:
    kernel = a_paced_kernel
    kernel.order(Pace.TIME, cap=4, batch_us=100)
    work = "(lambda s: spins('kernel', 200, 50, s))(make_stream())"
    lines = f"in_threads(3, lambda: use(0) or ({work})) + captured_nodes({mode}, 40)"
    relaxed = "call('cuThreadExchangeStreamCaptureMode', ctypes.byref(ctypes.c_int(2)))"
    assert kernel.program(relaxed) == 0
    for _ in range(3):
        assert kernel.program(lines) == [0, 0, 0, 0, 40]
    kernel.occupied()


def test_streams_and_contexts_may_end_under_measurement(a_paced_kernel: Any) -> None:
    kernel = a_paced_kernel
    kernel.order(Pace.MEASURE)
    made = "(lambda s: spins('kernel', 3, 500, s) or destroy_stream(s))(make_stream())"
    assert set(kernel.program(f"[{made} for _ in range(100)] + [wait()]")) == {0}
    assert 150 * MS * 0.99 <= kernel.occupied() <= 150 * MS + 10 * PLAY
    ended = "(lambda c: spins('kernel', 5, 500, make_stream()) or end_context(c[1]))(new_context())"
    assert set(kernel.program(f"[{ended} for _ in range(5)] + [use(0), spins('kernel', 2, 100), wait()]")) == {0}
    kernel.occupied()
    assert kernel.program("call('cuDevicePrimaryCtxReset_v2', 0)") == 0
    assert kernel.program("functions.clear() or use(0) or spins('kernel', 2, 100) or wait()") == 0
    kernel.occupied()


def test_a_child_goes_its_own_way(a_paced_kernel: Any) -> None:
    kernel, taken = a_paced_kernel, []
    kernel.order(Pace.MEASURE)
    for _ in range(4):  # a slow fork leaves work whose end was not seen, and which is estimated
        before = kernel.occupied()
        assert kernel.program("[spins('kernel', 50, 200), in_fork(lambda: launch(3))]") == [0, NOT_INITIALIZED]
        assert kernel.program("spins('kernel', 50, 200) or wait()") == 0
        taken.append(kernel.occupied() - before)
        if 20 * MS * 0.99 <= taken[-1] <= 20 * MS + 2 * PLAY:
            return
    raise AssertionError(f"50 and 50 of 0.2 ms took {taken} ns")


class Span:
    """The file meter.c, beside a plain list of the counted spans."""

    def __init__(self, parts: Any) -> None:
        self._library, self._room = parts.library, bytearray(8192)
        self._meter = (ctypes.c_char * 8192).from_buffer(self._room)
        self._pieces = (ctypes.c_uint64 * 128)()
        self._u64 = ctypes.c_uint64

    def add(self, start: int, end: int) -> list[tuple[int, int]]:
        count = self._library.meter_add(self._meter, self._u64(start), self._u64(end), self._pieces)
        return [(self._pieces[2 * i], self._pieces[2 * i + 1]) for i in range(count)]

    @property
    def occupied(self) -> int:
        return int(struct.unpack_from("=Q", self._room, 0)[0])


@pytest.mark.parametrize("seed", range(20))
def test_the_union_counts_each_moment_once(seed: int, make_parts: Callable[..., Any]) -> None:
    chance, span, moments = random.Random(seed), Span(make_parts("meter.c")), set[int]()
    for step in range(200):
        start = 10 * step + chance.randrange(100)
        end = start + chance.randrange(1, 60)
        pieces = span.add(start, end)
        new = set(range(start, end)) - moments
        assert {at for first, last in pieces for at in range(first, last)} == new
        moments |= new
        assert span.occupied == len(moments)


def test_work_that_is_older_than_memory_is_not_counted_again(make_parts: Callable[..., Any]) -> None:
    span = Span(make_parts("meter.c"))
    for number in range(100):
        assert span.add(100 * number, 100 * number + 10) == [(100 * number, 100 * number + 10)]
    before = span.occupied
    assert span.add(0, 500) == []
    assert span.occupied == before


@pytest.mark.parametrize("answer", [float("nan"), -0.001, 3.7e6, float("inf")])
def test_an_answer_that_is_no_time_is_ignored(answer: float, make_parts: Callable[..., Any]) -> None:
    read = make_parts("meter.c").library.meter_read
    read.restype = ctypes.c_bool
    found = ctypes.c_uint64(7)
    assert read(ctypes.c_float(2.5), ctypes.byref(found))
    assert found.value == 2_500_000
    assert not read(ctypes.c_float(answer), ctypes.byref(found))


def test_where_events_fail_launches_go_on_and_it_is_counted(a_null_node: Any) -> None:
    agent = a_null_node.grant(("10" * 16, 64 << 20))
    program = a_null_node.program()
    assert program("begin()") == 0
    connection = agent.process()
    agent.write_half(0, AgentPage.PACE, Pace.MEASURE)
    agent.set_gate(Gate.PACED)
    assert program("launch(100)") == 0  # a driver without events
    agent.wait_for(lambda: connection.word(0, HookPage.LAUNCHES) == 100)
    assert connection.word(0, HookPage.OCCUPIED) == 0
    assert "event=unmeasured" in a_null_node.log.read_text()

"""Streams whose queue is full: the hook's events wait for room, as launches do, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage, Pace

MIB = 1 << 20
MS = 1_000_000
INVALID_HANDLE = 400
PATIENCE = 5  # seconds: an answer takes milliseconds, a deadlock for ever
# The queue holds a function of the host, then for each launch an event, the launch and an event. So
# three kinds of items are held up: the event before a launch, the launch, and the event behind it.
QUEUES = (16, 17, 18)
ACTS = {
    "makes a stream that orders itself with the legacy one": ("make_stream(0) and 0", 0),
    "begins a capture": ("captured_nodes(2)", [0, 5]),
    "begins a capture that others' calls may end": ("captured_nodes(0)", [0, 5]),
    "ends a stream": ("destroy_stream(other)", 0),
    "ends a context": ("end_context(context) or use(0)", 0),
    "launches": ("spins('kernel', 3, 100, other) or call('cuStreamSynchronize', U64(other))", 0),
    "forks": ("in_fork(lambda: launch(3))", 3),
}


@pytest.fixture
def make_paced(make_node: Callable[..., Any], paced_kernel: Any) -> Iterator[Callable[[int], Any]]:
    """Make a measured kernel with a stream ``other`` and a context ``context``.

    Its streams hold so many items.
    """
    kernels: list[Any] = []

    def make(queue: int) -> Any:
        kernel = paced_kernel(make_node(devices=1, memory="256MiB", queue=queue))
        kernels.append(kernel)
        kernel.order(Pace.MEASURE)
        assert kernel.program("[spins('kernel', 1, 100) or wait() for _ in range(5)]") == [0] * 5
        kernel.occupied()
        assert kernel.program("globals().update(context=new_context()[1]) or use(0)") == 0
        assert kernel.program("globals().update(other=make_stream()) or spins('kernel', 1, 100, other) or wait()") == 0
        kernel.occupied()
        return kernel

    yield make
    for kernel in kernels:
        kernel.program.kill()  # its threads may be held up


def test_dense_launches_that_wait_for_nothing_are_measured_by_few_events(
    make_node: Callable[..., Any], paced_kernel: Any
) -> None:
    """The limit is one event in 250 µs of the host's time, and two for each sample.

    The best of several tries counts, since a machine is slow at times, and a pause needs events of
    its own. Each event takes memory of the device, which shows their number.
    """
    kernel, event = paced_kernel(make_node(devices=1, memory="256MiB", resource="64KiB")), 64 << 10
    kernel.order(Pace.MEASURE, batch_us=100_000)
    outside = kernel.node.outsider()
    assert outside("begin()") == 0
    launches, most_samples, counts = 120, 4, []
    assert kernel.program(f"[spins('kernel', {launches}, 100), wait()]") == [0, 0]
    for _ in range(20):
        assert kernel.program("held.append(HeldStream())") is None
        before = outside("info()")[1]
        microseconds = kernel.program(f"launch_behind_a_held_stream({launches})")
        events = (before - outside("info()")[1]) // event
        assert kernel.program("[held[-1].release(), wait()]") == [True, 0]
        assert events > 0
        counts.append((events, microseconds / 250 + 2 * most_samples + 4))
    assert any(events <= most for events, most in counts), counts


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("act", ACTS)
def test_a_thread_that_a_full_stream_waits_for_goes_on(act: str, queue: int, make_paced: Callable[[int], Any]) -> None:
    kernel = make_paced(queue)
    work, want = ACTS[act]
    assert kernel.program("fill_with_launches()")
    kernel.program.ask(work)
    assert kernel.program.has_answer(PATIENCE)
    assert kernel.program.answer() == want
    assert kernel.program("let_go()") == [0] * 100
    assert kernel.program("wait()") == 0
    assert kernel.occupied() >= (100 + 6) * 0.1 * MS * 0.99


@pytest.mark.parametrize("queue", QUEUES)
def test_launches_beside_a_full_stream_are_measured(queue: int, make_paced: Callable[[int], Any]) -> None:
    kernel = make_paced(queue)
    assert kernel.program("fill_with_launches()")
    occupied = kernel.word(HookPage.OCCUPIED)
    work = "spins('kernel', 20, 1000, other) or call('cuStreamSynchronize', U64(other))"
    assert kernel.program(work) == 0
    kernel.agent.wait_for(lambda: kernel.word(HookPage.OCCUPIED) - occupied >= 20 * MS * 0.99)
    assert kernel.program("let_go()") == [0] * 100


def test_work_left_open_in_a_full_stream_holds_up_nobody(make_paced: Callable[[int], Any]) -> None:
    """The hook's own thread sees the work end, and records nothing there."""
    kernel = make_paced(200)
    assert kernel.program("held.append(HeldStream()) or spins('kernel', 25, 100, held[-1].number)") == 0
    assert kernel.program("fill_with_records(held[-1].number)")
    occupied = kernel.word(HookPage.OCCUPIED)
    work = "spins('kernel', 20, 1000, other) or call('cuStreamSynchronize', U64(other))"
    kernel.program.ask(f"in_threads(1, lambda: use(0) or {work})")
    assert kernel.program.has_answer(PATIENCE)
    assert kernel.program.answer() == [0]
    kernel.agent.wait_for(lambda: kernel.word(HookPage.OCCUPIED) - occupied >= 20 * MS * 0.99)


@pytest.mark.parametrize("act", ["make_stream(0) and 0", "destroy_stream(held[-1].number)", "end_context(context)"])
def test_what_a_thread_records_behind_its_work_holds_up_nobody(act: str, make_paced: Callable[[int], Any]) -> None:
    """Not held up either: the end of that very stream, which goes once the event is there."""
    kernel = make_paced(200)
    assert kernel.program("globals().update(memory=alloc(1024)[1]) or 0") == 0
    assert kernel.program("close_work_in_a_full_stream(memory)")
    kernel.program.ask(act)
    assert kernel.program.has_answer(PATIENCE)
    assert kernel.program.answer() == 0
    assert kernel.program("use(0)") == 0
    assert kernel.program("let_go()") == [0]
    want_code = 400 if "destroy" in act else 0
    kernel.agent.wait_for(lambda: kernel.program("call('cuStreamQuery', U64(held[-1].number))") == want_code)
    assert kernel.program("wait()") == 0
    kernel.occupied()


def test_a_stream_that_ends_while_another_context_does_is_not_left_behind(make_paced: Callable[[int], Any]) -> None:
    """The recording thread may end nothing in the meantime, so the context's end does it."""
    kernel = make_paced(200)
    program = kernel.program
    assert program("globals().update(memory=alloc(1024)[1]) or 0") == 0
    assert program("close_work_in_a_full_stream(memory)")
    assert program("destroy_stream(held[-1].number)") == 0
    assert program("set_current(context) or held.append(HeldStream()) or use(0)") == 0
    assert program("steps.append(Steps(lambda: end_context(context), 1)) or steps[-1].is_held_up()")
    assert program("held[-2].release() and steps[-2].end()") == [0]
    assert program("held[-1].release() and steps[-1].end()") == [0]
    assert program("call('cuStreamQuery', U64(held[-2].number))") == INVALID_HANDLE

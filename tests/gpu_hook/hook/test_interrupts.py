"""An interrupt ends the wait of a call: it answers out of memory, and the agent learns of it.

The program's handler stands for Python's own: it notes the signal, and tells the waiting thread
nothing.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from shared_words import load_half, store_half

from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage, Gate, HookPage, Lease, MessageType, Residency, Wake

MIB = 1 << 20
WANT_OUT_OF_MEMORY = 2
MOST_SECONDS = 1.0
FILL = "call('cuMemsetD8_v2', U64(kept[0]), 7, SIZE(4096))"
STREAM = "call('cuStreamCreate', ctypes.byref(streams.setdefault('one', U64())), 1)"
NOTE = "signal.signal(signal.SIGINT, lambda *_: None) and None"
COUNT = "globals().update(came=[]), signal.signal({number}, lambda number, _: came.append(number)) and None"


@pytest.fixture
def a_kernel(make_kernel: Callable[..., Any]) -> Any:
    made = make_kernel()
    made.program(NOTE)
    return made


def interrupt(kernel: Any, again_after: float | None = None) -> tuple[Any, float]:
    """Send SIGINT to a sleeping thread.

    ``again_after`` is in seconds: the time after which to send one more signal, for a wait that begins
    anew often (decision 42: a wait misses a signal of the microseconds in which it begins).
    Return the answer of the waiting call, and its time in seconds.
    """
    kernel.agent.wait_for(kernel.program.is_asleep)
    began = time.monotonic()
    os.kill(kernel.program.pid, signal.SIGINT)
    if again_after is not None and not kernel.program.has_answer(again_after):
        os.kill(kernel.program.pid, signal.SIGINT)
    return kernel.program.answer(), time.monotonic() - began


def tell(kernel: Any) -> None:
    """Report an interrupt as the agent does: in the page of each process."""
    page = kernel.process.agent_page
    store_half(page, AgentPage.INTERRUPTS, load_half(page, AgentPage.INTERRUPTS) + 1)


def withdrawals(kernel: Any) -> int:
    return sum(isinstance(one, Wake) and one.waiting_calls == 0 for one in kernel.agent.heard)


WAITING = [
    FILL,
    "call('cuMemcpyHtoD_v2', U64(kept[0]), bytes(4096), SIZE(4096))",
    "alloc(4096)[0]",
    f"alloc({4 * MIB})[0]",
    "alloc_pitch(4096, 1024)[0]",
    "alloc_managed(65536)[0]",
    "alloc_async(4096)[0]",
    "create(1 << 21)[0]",
    "new_context()[0]",
    "spin(1)",
    f"{STREAM} or call('cuStreamBeginCapture_v2', streams['one'], 0)",
]


@pytest.mark.parametrize("call", WAITING)
def test_an_interrupt_ends_the_wait_of_each_kind_of_call(call: str, a_kernel: Any) -> None:
    a_kernel.swap_out()
    a_kernel.program.ask(call)
    a_kernel.await_waiting(1)
    answer, seconds = interrupt(a_kernel)
    assert answer == WANT_OUT_OF_MEMORY
    assert seconds < MOST_SECONDS
    a_kernel.await_waiting(0)
    a_kernel.agent.wait_for(lambda: withdrawals(a_kernel) == 1)
    a_kernel.swap_in()
    a_kernel.agent.wait_for(lambda: a_kernel.program(FILL) == 0)
    assert a_kernel.process.word(0, HookPage.REFUSALS) == 0, "the quota refused nothing"


def test_python_raises_keyboard_interrupt_when_the_call_returns(make_kernel: Callable[..., Any]) -> None:
    kernel = make_kernel()
    kernel.swap_out()
    kernel.program.ask(f"stopped(lambda: {FILL})")
    kernel.await_waiting(1)
    answer, seconds = interrupt(kernel)
    assert answer == "KeyboardInterrupt"
    assert seconds < MOST_SECONDS
    kernel.swap_in()


def test_what_asks_again_at_once_is_given_up_too_and_what_comes_later_waits(a_kernel: Any) -> None:
    a_kernel.swap_out()
    a_kernel.program.ask(f"[alloc({4 * MIB})[0] for _ in range(3)]")  # a framework frees its cache between
    a_kernel.await_waiting(1)
    answer, seconds = interrupt(a_kernel)
    assert answer == [WANT_OUT_OF_MEMORY] * 3
    assert seconds < MOST_SECONDS
    a_kernel.program("time.sleep(0.4)")
    a_kernel.program.ask(FILL)
    a_kernel.await_waiting(1)
    a_kernel.agent.wait_for(
        lambda: [one.waiting_calls for one in a_kernel.agent.heard if isinstance(one, Wake)][-1] > 0
    )
    a_kernel.swap_in()
    assert a_kernel.program.answer() == 0


@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGPROF, signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM])
def test_no_other_signal_ends_a_wait_and_none_is_lost(number: int, a_kernel: Any) -> None:
    a_kernel.program(COUNT.format(number=int(number)))
    a_kernel.swap_out()
    a_kernel.program.ask(FILL)
    a_kernel.await_waiting(1)
    for _ in range(20):
        os.kill(a_kernel.program.pid, number)
        a_kernel.agent.wait_for_news(0.005)
    a_kernel.await_waiting(1)
    a_kernel.swap_in()
    assert a_kernel.program.answer() == 0
    assert int(number) in a_kernel.program("came")


def test_a_signal_that_ends_programs_ends_one_that_waits(a_kernel: Any) -> None:
    a_kernel.swap_out()
    a_kernel.program.ask(FILL)
    a_kernel.await_waiting(1)
    os.kill(a_kernel.program.pid, signal.SIGTERM)
    a_kernel.agent.wait_for(lambda: not a_kernel.agent.connections)


def test_a_program_that_ignores_interrupts_waits_on(a_kernel: Any) -> None:
    a_kernel.program("signal.signal(signal.SIGINT, signal.SIG_IGN) and None")
    a_kernel.swap_out()
    a_kernel.program.ask(FILL)
    a_kernel.await_waiting(1)
    os.kill(a_kernel.program.pid, signal.SIGINT)
    a_kernel.agent.wait_for_news(0.3)
    a_kernel.await_waiting(1)
    a_kernel.swap_in()
    assert a_kernel.program.answer() == 0


def test_the_thread_that_the_signal_finds_gives_up_and_others_wait_on(a_kernel: Any) -> None:
    a_kernel.swap_out()
    a_kernel.program(f"globals().update(beside=in_background(lambda: use() or {FILL})) and None")
    a_kernel.await_waiting(1)
    a_kernel.program.ask(FILL)
    a_kernel.await_waiting(2)
    answer, _ = interrupt(a_kernel)
    tell(a_kernel)
    assert answer == WANT_OUT_OF_MEMORY
    a_kernel.agent.wait_for_news(0.5)
    a_kernel.await_waiting(1)
    assert withdrawals(a_kernel) == 0, "one still waits"
    a_kernel.swap_in()
    assert a_kernel.program("beside()") == 0


def test_an_agent_that_starts_anew_interrupts_no_wait(a_kernel: Any) -> None:
    """The new agent counts from 0; the agent before it had counted two."""
    for _ in range(2):
        tell(a_kernel)
    a_kernel.swap_out()
    a_kernel.program.ask(FILL)
    a_kernel.await_waiting(1)
    a_kernel.agent.lease = Lease.ENDED
    a_kernel.agent.stop()
    a_kernel.agent.start()
    a_kernel.agent.wait_for(lambda: bool(a_kernel.agent.connections))
    assert not a_kernel.program.has_answer(1.0), "the wait was given up without an interrupt"
    os.kill(a_kernel.program.pid, signal.SIGINT)
    assert a_kernel.program.answer() == WANT_OUT_OF_MEMORY


def test_a_thread_that_asks_again_and_again_waits_again(a_kernel: Any) -> None:
    a_kernel.swap_out()
    a_kernel.program.ask(f"[(alloc({4 * MIB})[0], time.sleep(0.1))[0] for _ in range(8)]")
    a_kernel.await_waiting(1)
    a_kernel.agent.wait_for(a_kernel.program.is_asleep)
    os.kill(a_kernel.program.pid, signal.SIGINT)
    assert not a_kernel.program.has_answer(1.5), "each call since the interrupt was given up"
    a_kernel.await_waiting(1)
    a_kernel.swap_in()
    answers = a_kernel.program.answer()
    assert WANT_OUT_OF_MEMORY in answers[1:3]
    assert answers[-3:] == [0, 0, 0]


def test_a_second_interrupt_soon_after_one_that_a_thread_took_ends_waits_too(a_kernel: Any) -> None:
    a_kernel.swap_out()
    a_kernel.program.ask(FILL)
    a_kernel.await_waiting(1)
    interrupt(a_kernel)
    tell(a_kernel)
    a_kernel.program("time.sleep(0.4)")
    a_kernel.program.ask(f"in_threads(2, lambda: use() or {FILL})")
    a_kernel.await_waiting(2)
    os.kill(a_kernel.program.pid, signal.SIGINT)
    began = time.monotonic()
    tell(a_kernel)
    assert a_kernel.program.answer() == [WANT_OUT_OF_MEMORY] * 2
    assert time.monotonic() - began < MOST_SECONDS
    a_kernel.swap_in()


def test_where_the_first_thread_waits_for_one_that_waits_the_agents_word_ends_that(a_kernel: Any) -> None:
    a_kernel.swap_out()
    a_kernel.program.ask(
        f"in_threads(2, lambda: use() or {FILL})"
    )  # as autograd's threads, while the first one joins them
    a_kernel.await_waiting(2)
    os.kill(a_kernel.program.pid, signal.SIGINT)
    began = time.monotonic()
    tell(a_kernel)
    assert a_kernel.program.answer() == [WANT_OUT_OF_MEMORY] * 2
    assert time.monotonic() - began < MOST_SECONDS
    a_kernel.swap_in()


def test_an_interrupt_ends_the_wait_for_credit_and_withdraws_the_request(a_kernel: Any) -> None:
    a_kernel.agent.is_silent = True
    a_kernel.program.ask(f"alloc({80 * MIB})[0]")
    a_kernel.agent.wait_for(lambda: bool(a_kernel.agent.of(MessageType.CREDIT_REQUEST)[1:]))
    answer, seconds = interrupt(a_kernel)
    assert answer == WANT_OUT_OF_MEMORY
    assert seconds < MOST_SECONDS
    asked = a_kernel.agent.of(MessageType.CREDIT_REQUEST)[-1]
    a_kernel.agent.wait_for(lambda: bool(a_kernel.agent.of(MessageType.CREDIT_RETURN)))
    returned = a_kernel.agent.of(MessageType.CREDIT_RETURN)[-1]
    assert (returned.sequence, returned.bytes, returned.deadline_milliseconds) == (asked.sequence, 0, 1)
    assert a_kernel.process.word(0, HookPage.REFUSALS) == 0, "the quota refused nothing"


def test_an_interrupt_ends_the_wait_at_a_closed_gate(a_kernel: Any) -> None:
    a_kernel.agent.set_gate(Gate.CLOSED)
    a_kernel.program.ask("spin(1)")
    a_kernel.await_waiting(1)
    answer, seconds = interrupt(a_kernel)
    assert answer == WANT_OUT_OF_MEMORY
    assert seconds < MOST_SECONDS
    a_kernel.agent.set_gate(Gate.OPEN)
    a_kernel.agent.wait_for(lambda: a_kernel.program("spin(1)") == 0)


def test_a_free_at_a_closed_gate_goes_on_after_an_interrupt(a_kernel: Any) -> None:
    a_kernel.agent.set_gate(Gate.CLOSED)
    a_kernel.program.ask("free(kept.pop())")
    a_kernel.await_waiting(1)
    answer, _ = interrupt(a_kernel)
    assert answer == 0
    a_kernel.agent.wait_for(lambda: a_kernel.process.word(0, HookPage.CHARGED) == 0)


def test_an_interrupt_ends_the_wait_for_a_turn_at_the_pace(a_paced_kernel: Any) -> None:
    a_paced_kernel.program(NOTE)
    a_paced_kernel.order(allowed=0)
    a_paced_kernel.program.ask("spin(1)")
    a_paced_kernel.agent.wait_for(a_paced_kernel.waits)
    answer, seconds = interrupt(a_paced_kernel, again_after=0.3)
    assert answer == WANT_OUT_OF_MEMORY
    assert seconds < MOST_SECONDS
    a_paced_kernel.agent.wait_for(lambda: not a_paced_kernel.waits())
    a_paced_kernel.order()
    a_paced_kernel.agent.wait_for(lambda: a_paced_kernel.program("spin(1)") == 0)


def test_a_kernel_that_was_interrupted_can_still_be_moved(a_kernel: Any) -> None:
    """A thread that gave up is inside no call: the mover waits for none."""
    for _ in range(3):
        a_kernel.swap_out()
        a_kernel.program.ask("spin(1)")
        a_kernel.await_waiting(1)
        interrupt(a_kernel)
        a_kernel.swap_in()
        a_kernel.program("time.sleep(0.4)")
    assert a_kernel.half(HookPage.RESIDENCY) == Residency.RESIDENT

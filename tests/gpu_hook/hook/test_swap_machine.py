"""Two processes of one kernel allocate, free, compute, leave and come back in any order.

A short oracle knows the contents of their memory and the state of the books.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage, MoveOutcome, ResidencyMode, Wake

MIB = 1 << 20
GRAIN = 2 * MIB
PROCESSES = st.integers(0, 1)
WORDS = st.integers(1, 1 << 31)
AMOUNTS = st.sampled_from([4096, MIB, 2 * MIB + 8, 5 * MIB, 9 * MIB])
ENDS = "(lambda words: [call('cuMemcpyDtoH_v2', words, U64({at}), SIZE(4)), int(words[0])])((ctypes.c_uint32 * 1)())"
SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))


class Process:
    """A process, and the oracle's knowledge of it: each allocation's size and fill word."""

    def __init__(self, node: Any, make_orders: Callable[..., Any], stack: ExitStack) -> None:
        self.program, self.agent = node.program(), node.agent
        assert self.program("begin()") == 0
        assert self.program("alloc(4096)")[0] == 0
        self.connection = self.agent.process(self.program.pid)
        self.orders = stack.enter_context(make_orders(self.agent, self.connection, [64 * MIB, 64 * MIB]))
        self.held: dict[int, tuple[int, int]] = {}
        self.is_out = False

    def needing(self, expression: str) -> Any:
        """Return the value of an expression that needs the device.

        A process that is out wakes for it, and is brought in.
        """
        self.program.ask(expression)
        if self.is_out:
            self.agent.wait_for(lambda: any(isinstance(one, Wake) for one in self.connection.heard[self.before :]), 30)
            self.move(False)
        return self.program.answer()

    def move(self, out: bool) -> None:
        self.before = len(self.connection.heard)
        moved = self.orders.swap_out() if out else self.orders.swap_in()
        assert moved.outcome is MoveOutcome.DONE, moved
        self.is_out = out

    def swappable(self) -> int:
        return sum(-(-amount // GRAIN) * GRAIN for amount, _ in self.held.values() if amount >= MIB)

    def pick(self, number: int) -> int:
        return sorted(self.held)[number % len(self.held)]


class Machine(RuleBasedStateMachine):
    """The state machine.

    A test passes ``start``: it makes two processes and returns the function that ends them.
    """

    start: Callable[[], tuple[list[Process], ExitStack]]

    @initialize()
    def begin(self) -> None:
        self.processes, self.stack = type(self).start()

    @rule(which=PROCESSES, amount=AMOUNTS, word=WORDS)
    def allocate(self, which: int, amount: int, word: int) -> None:
        process = self.processes[which]
        if len(process.held) >= 8:
            return
        code, pointer = process.needing(f"alloc({amount})")
        assert code == 0
        assert pointer not in process.held
        process.held[pointer] = (amount, 0)
        self.fill(which, sorted(process.held).index(pointer), word)

    @precondition(lambda self: any(one.held for one in self.processes))
    @rule(which=PROCESSES, number=st.integers(0, 7))
    def free(self, which: int, number: int) -> None:
        process = self.processes[which]
        if process.held:
            pointer = process.pick(number)
            assert process.program(f"free({pointer})") == 0, "a free waits for nobody"
            del process.held[pointer]

    @rule(which=PROCESSES, number=st.integers(0, 7), word=WORDS)
    def fill(self, which: int, number: int, word: int) -> None:
        process = self.processes[which]
        if process.held:
            pointer = process.pick(number)
            amount, _ = process.held[pointer]
            call = f"call('cuMemsetD32_v2', U64({pointer}), {word}, SIZE({amount // 4}))"
            assert process.needing(call) == 0
            process.held[pointer] = (amount, word)

    @rule(which=PROCESSES)
    def launch(self, which: int) -> None:
        assert self.processes[which].needing("spin(1)") == 0

    @rule(which=PROCESSES)
    def move(self, which: int) -> None:
        self.processes[which].move(not self.processes[which].is_out)

    @rule(which=PROCESSES, number=st.integers(0, 7))
    def look(self, which: int, number: int) -> None:
        process = self.processes[which]
        if process.held:
            pointer = process.pick(number)
            amount, word = process.held[pointer]
            for at in (pointer, pointer + amount // 2 // 4 * 4, pointer + amount // 4 * 4 - 4):
                assert process.needing(ENDS.format(at=at)) == [0, word]

    @invariant()
    def books_are_the_oracles(self) -> None:
        for process in getattr(self, "processes", []):
            swappable = process.swappable()
            assert process.connection.word(0, HookPage.SWAPPABLE) == swappable
            assert process.connection.word(0, HookPage.SWAPPED) == (swappable if process.is_out else 0)

    def teardown(self) -> None:
        for process in getattr(self, "processes", []):
            for pointer in list(process.held):
                assert process.program(f"free({pointer})") == 0
            assert process.connection.word(0, HookPage.SWAPPABLE) == 0
        if hasattr(self, "stack"):
            self.stack.close()


@pytest.fixture
def make_start(
    make_node: Callable[..., Any], make_orders: Callable[..., Any]
) -> Callable[[], tuple[list[Process], ExitStack]]:
    node = make_node(devices=1, memory="256MiB")
    node.agent.residency_mode = ResidencyMode.VMM
    node.agent.host_quota = 1 << 40
    outsider = node.outsider()
    assert outsider("begin()") == 0
    node.grant((outsider("uuid()"), 200 * MIB))

    def start() -> tuple[list[Process], ExitStack]:
        stack = ExitStack()
        processes = [Process(node, make_orders, stack) for _ in range(2)]
        for process in processes:
            stack.callback(process.program.close)
        return processes, stack

    return start


@pytest.mark.soak
@pytest.mark.timeout(180 + 120 * SOAK)
def test_memory_is_what_the_oracle_says_wherever_it_is(make_start: Callable[..., Any]) -> None:
    class Configured(Machine):
        start = staticmethod(make_start)

    run_state_machine_as_test(
        Configured,
        settings=settings(
            max_examples=12 * SOAK,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=SOAK == 1,
            database=None,
        ),
    )

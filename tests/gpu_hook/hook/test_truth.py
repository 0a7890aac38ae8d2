"""What the hook has charged is what is gone from the device, after every step of any program."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from aliquot.gpu_hook.protocol import HookPage
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

MIB = 1 << 20

SIZES = st.one_of(
    st.integers(1, 4096),
    st.integers(MIB - 600, MIB + 600),
    st.integers(1, 24).map(lambda count: count * MIB),
    st.integers(1, 40 * MIB),
)


class Machine(RuleBasedStateMachine):
    """One program under the hook; another, without it, tells the truth about the device."""

    program: Any
    outsider: Any
    connection: Any
    quota: int
    used_before: int

    def __init__(self) -> None:
        super().__init__()
        self.pointers: list[int] = []
        self.contexts: list[tuple[int, list[int]]] = []

    def used(self) -> int:
        _, free_bytes, total = self.outsider("info()")
        return int(total - free_bytes)

    @rule(amount=SIZES)
    def allocate(self, amount: int) -> None:
        code, pointer = self.program(f"alloc({amount})")
        if code == 0:
            self.live().append(pointer)

    @rule(amount=SIZES, suffix=st.sampled_from(["", "_ptsz"]))
    def allocate_in_order(self, amount: int, suffix: str) -> None:
        code, pointer = self.program(f"alloc_async({amount}, {suffix!r})")
        if code == 0:  # a pool is the device's, and outlives every context
            self.pointers.append(pointer)

    @rule(width=st.integers(1, 5000), height=st.integers(1, 5000))
    def allocate_rows(self, width: int, height: int) -> None:
        code, pointer, _ = self.program(f"alloc_pitch({width}, {height})")
        if code == 0:
            self.live().append(pointer)

    @precondition(lambda self: self.pointers)
    @rule(data=st.data(), waits=st.booleans())
    def free_in_order(self, data: st.DataObject, waits: bool) -> None:
        pointer = data.draw(st.sampled_from(self.pointers))
        if self.program(f"free_later({pointer})") == 0:
            self.pointers.remove(pointer)
        if waits:
            self.program("synchronize()")

    @precondition(lambda self: self.live())
    @rule(data=st.data(), name=st.sampled_from(["free", "free_async"]))
    def free(self, data: st.DataObject, name: str) -> None:
        self.free_one(data.draw(st.sampled_from(self.live())), name)

    def free_one(self, pointer: int, name: str) -> None:
        if self.program(f"{name}({pointer})") == 0:
            self.live().remove(pointer)

    @rule(pointer=st.integers(1, 1 << 40))
    def free_what_is_not_ours(self, pointer: int) -> None:
        assert self.program(f"free({pointer})") != 0

    @precondition(lambda self: len(self.contexts) < 3)
    @rule()
    def begin_context(self) -> None:
        code, context = self.program("new_context()")
        if code == 0:
            self.contexts.append((context, []))

    @precondition(lambda self: self.contexts)
    @rule()
    def end_context(self) -> None:
        context, _ = self.contexts.pop()
        assert self.program(f"end_context({context})") == 0

    def live(self) -> list[int]:
        return self.contexts[-1][1] if self.contexts else self.pointers

    @invariant()
    def charged_is_used(self) -> None:
        charged = self.connection.word(0, HookPage.CHARGED)
        assert charged == self.used() - self.used_before
        assert charged <= self.quota

    def teardown(self) -> None:
        while self.contexts:
            self.end_context()
        while self.pointers:  # an injected fault may fail a free, once
            self.free_one(self.pointers[0], "free")
        self.program("synchronize()")  # pools give back what they hold
        left = self.connection.word(0, HookPage.CHARGED)
        assert (left, self.connection.word(0, HookPage.ALLOCATIONS), self.used()) == (0, 0, self.used_before)


def configure(node: Any, quota: int, faults: str = "") -> type[Machine]:
    outsider = node.outsider()
    outsider("begin()")
    agent = node.grant((outsider("uuid()"), quota))
    program = node.program(ALIQUOT_SOFTGPU_FAULTS=faults)
    assert program("begin()") == 0
    _, free_bytes, total = outsider("info()")

    class Configured(Machine):
        pass

    Configured.program, Configured.outsider, Configured.quota = program, outsider, quota
    Configured.connection = agent.process()
    Configured.used_before = total - free_bytes
    return Configured


SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))


@pytest.mark.soak
@pytest.mark.timeout(120 * SOAK)
@pytest.mark.parametrize("quota", [96 * MIB, 512 * MIB], ids=["below_device", "above_device"])
def test_what_is_charged_is_what_is_used(make_node: Callable[..., Any], quota: int) -> None:
    machine = configure(make_node(devices=1, memory="256MiB"), quota)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=150 * SOAK,
            stateful_step_count=30,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_what_is_charged_is_what_is_used_when_the_driver_fails(make_node: Callable[..., Any]) -> None:
    """A seeded walk: faults fall by the number of the call, so hypothesis could not replay it."""
    calls = ("cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocPitch_v2", "cuMemFree_v2", "cuMemFreeAsync")
    faults = ",".join(f"{call}:{nth}={code}" for call in calls for nth, code in ((2, 2), (7, 999), (19, 1)))
    machine = configure(make_node(devices=1, memory="256MiB"), 96 * MIB, faults)()
    random = Random(20)
    for _ in range(500):
        amount = random.choice([1, 700, MIB - 1, MIB, 3 * MIB, 17 * MIB])
        step = random.randrange(6)
        if step == 0:
            machine.allocate(amount=amount)
        elif step == 1:
            machine.allocate_in_order(amount=amount, suffix=random.choice(["", "_ptsz"]))
        elif step == 2:
            machine.allocate_rows(width=random.randrange(1, 5000), height=random.randrange(1, 2000))
        elif machine.live():
            machine.free_one(random.choice(machine.live()), random.choice(["free", "free_async"]))
        machine.charged_is_used()
    machine.teardown()

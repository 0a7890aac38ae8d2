"""The invariants of decisions about leases, and service for every kernel.

The nodes are random, in virtual time.
"""

from __future__ import annotations

import sys

from hypothesis import given, settings, strategies as st

from jupyter_aliquot.gpu_hook.agent.scheduling.leases import DeviceView, Policy, State, Want, decide

try:
    from tests.gpu_hook.agent.lease_world import GIB, AKernel, AWorld
except ImportError:  # imported by its path
    from lease_world import GIB, AKernel, AWorld

CARD = 80 * GIB
RATE = 20 * GIB  # a second


def cards(count: int) -> list[DeviceView]:
    return [DeviceView(f"gpu{index}", CARD, out_rate=RATE, in_rate=RATE) for index in range(20)]


@st.composite
def worlds(draw: st.DrawFn) -> AWorld:
    devices = cards(draw(st.integers(1, 4)))
    kernels = []
    for number in range(draw(st.integers(2, 8))):
        on = draw(st.lists(st.sampled_from(devices), min_size=1, max_size=len(devices), unique_by=lambda d: d.uuid))
        sizes = {device.uuid: draw(st.integers(1, 80)) * GIB for device in on}
        cells, at = [], 0.0
        for _ in range(draw(st.integers(0, 3))):
            at += draw(st.integers(0, 40))
            cells.append((at, float(draw(st.integers(1, 25)))))
        kernels.append(
            AKernel(
                f"k{number}", sizes, cells, is_production=draw(st.booleans()), is_swappable=draw(st.integers(0, 9)) > 0
            )
        )
    return AWorld(devices, kernels)


@given(worlds())
@settings(max_examples=60, deadline=None)
def test_no_decision_breaks_what_must_hold(world: AWorld) -> None:
    world.run(120)


@st.composite
def swappable_worlds(draw: st.DrawFn) -> AWorld:
    world = draw(worlds())
    for kernel in world.kernels.values():
        kernel.is_swappable = kernel.is_production = True
    return world


@given(swappable_worlds())
@settings(max_examples=40, deadline=None)
def test_every_waiter_among_equals_is_served_within_a_bound(world: AWorld) -> None:
    longest_turn = world.policy.quantum_seconds + 10 * CARD / RATE  # a quantum is at least so many moves
    bound = len(world.kernels) * (longest_turn + world.policy.hold_seconds + 2 * CARD / RATE)
    world.run(120 + 4 * bound, until_idle=True)
    for kernel in world.kernels.values():
        assert not kernel.cells
        assert kernel.left_seconds <= 0
        assert all(wait <= bound for wait in kernel.waits)


def test_two_kernels_of_two_and_a_half_devices_that_want_each_others_both_finish() -> None:
    first = AKernel("first", {"gpu0": CARD, "gpu1": CARD, "gpu2": CARD // 2}, [(0.0, 30.0), (30.0, 30.0)])
    second = AKernel("second", {"gpu1": CARD, "gpu2": CARD, "gpu0": CARD // 2}, [(0.0, 30.0), (30.0, 30.0)])
    world = AWorld(cards(3), [first, second])
    world.run(400)
    assert (first.left_seconds, second.left_seconds) == (0, 0)
    assert not first.cells
    assert not second.cells


def test_growth_that_two_want_at_once_ends_in_turns_and_not_in_a_deadlock() -> None:
    first = AKernel("first", {"gpu0": 40 * GIB}, [(5.0, 10.0)], wants={"gpu0": 30 * GIB})
    second = AKernel("second", {"gpu0": 40 * GIB}, [(5.0, 10.0)], wants={"gpu0": 30 * GIB})
    first.state = second.state = State.RESIDENT
    world = AWorld(cards(1), [first, second])
    world.run(200)
    assert first.bytes == second.bytes == {"gpu0": 70 * GIB}
    assert (first.left_seconds, second.left_seconds) == (0, 0)


def test_production_waits_for_no_opportunistic_beyond_a_move() -> None:
    low = AKernel("low", {"gpu0": CARD}, [(0.0, 600.0)], is_production=False)
    high = AKernel("high", {"gpu0": CARD}, [(at, 2.0) for at in (20.0, 60.0, 100.0)])
    world = AWorld(cards(1), [low, high])
    world.run(150)
    move = CARD / RATE
    assert len(high.waits) == 3
    assert all(wait <= 3 * move + 2 for wait in high.waits)  # one coming in, it out, high in; and ticks


def test_many_short_cells_do_not_thrash_a_long_one() -> None:
    long = AKernel("long", {"gpu0": 60 * GIB}, [(0.0, 100.0)])
    chatty = AKernel("chatty", {"gpu0": 60 * GIB}, [(float(at), 1.0) for at in range(5, 100, 5)])
    world = AWorld(cards(1), [long, chatty])
    world.run(300)
    assert (long.left_seconds, chatty.left_seconds) == (0, 0)
    assert world.outs <= 30  # each turn of ten seconds ends in one


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 20), st.integers(1, 10)), min_size=5, max_size=40), min_size=1, max_size=3
    )
)
@settings(max_examples=25, deadline=None)
def test_no_stream_of_young_cells_starves_a_long_one(streams: list[list[tuple[int, int]]]) -> None:
    long = AKernel("long", {"gpu0": 60 * GIB}, [(0.0, 100.0)])
    others = []
    for number, stream in enumerate(streams):
        at, cells = 5.0, []
        for pause, seconds in stream:
            at += pause
            cells.append((at, float(seconds)))
        others.append(AKernel(f"young{number}", {"gpu0": 60 * GIB}, cells))
    world = AWorld(cards(1), [long, *others])
    move = 60 * GIB / RATE
    turn = max(world.policy.quantum_seconds, 8 * move)
    pause = world.policy.patience_seconds + len(others) * (turn + 2 * move) + 2 * move
    # A turn may be cut down to the hold; the next one is whole.
    bound = (100 / (turn + world.policy.hold_seconds) + 1) * 2 * (turn + pause)
    while long.cells or long.left_seconds > 0:
        assert world.now <= bound
        world.step()


def test_a_decision_under_pressure_stays_cheap() -> None:
    devices = cards(8)
    kernels = []
    for number in range(20):
        on = [f"gpu{number % 8}"] if number % 5 else [f"gpu{number % 8}", f"gpu{(number + 1) % 8}"]
        kernel = AKernel(f"k{number}", dict.fromkeys(on, 30 * GIB))
        kernel.state = State.RESIDENT if number < 12 else State.SWAPPED
        kernel.left_seconds = 1.0 if number in (12, 13) else 0.0
        kernels.append(kernel.view(100.0))
    assert any(kernel.want is Want.CALL for kernel in kernels)
    calls = 0

    def count_call(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count_call)
    try:
        decide(devices, kernels, 100.0, Policy())
    finally:
        sys.setprofile(None)
    assert calls < 1000  # about 0.1 ms; a simulation replays hours of cells through it

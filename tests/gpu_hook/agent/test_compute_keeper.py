"""The compute keeper on real pages and a clock of the test's: what it writes, whom it tells, and what it survives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aliquot.gpu_hook.agent.compute.settings import ComputeSettings
from aliquot.gpu_hook.agent.compute.views import (
    MEASURED,
    MILLISECOND,
    SECOND,
    DeviceLook,
    KernelShare,
    Order,
    Verdict,
)
from aliquot.gpu_hook.protocol import (
    MAX_NEIGHBOURS,
    NO_LIMIT,
    AgentPage,
    BoardKind,
    Gate,
    HookPage,
    Pace,
    Role,
)
from compute_world import AKernel, AProcess, AWorld, count_descriptors, uuid_of

PRODUCTION, HARVEST = AKernel("p"), AKernel("h", is_production=False)


def in_a_loop(test: Callable[..., None]) -> Callable[[], None]:
    """The keeper's timer needs a loop; it never runs while a test does, who turns the keeper himself."""

    def run() -> None:
        async def body() -> None:
            descriptors = count_descriptors()
            worlds: list[AWorld] = []

            def a_world(*arguments: Any, **fields: Any) -> AWorld:
                worlds.append(AWorld(*arguments, **fields))
                return worlds[-1]

            try:
                test(a_world)
            finally:
                for world in worlds:
                    world.close()
            assert count_descriptors() == descriptors

        asyncio.run(body())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def hold_all(look: DeviceLook) -> Verdict:
    return Verdict({one.key: MEASURED if one.is_production else Order(Gate.CLOSED) for one in look.processes})


def neighbours(process: AProcess) -> int:
    return len(process.neighbours)


@in_a_loop
def test_alone_nothing_is_measured_and_nobody_looks(a_world: Callable[..., AWorld]) -> None:
    world = a_world()
    process = world.join(PRODUCTION)
    world.join(PRODUCTION)  # another process of the same kernel
    world.run(1000)
    assert world.controllers == []
    assert (process.gate, process.pace()) == (Gate.OPEN, Pace.OFF)


@in_a_loop
def test_beside_production_a_newcomer_has_its_pauses_alone_before_any_look(a_world: Callable[..., AWorld]) -> None:
    world = a_world()
    production = world.join(PRODUCTION)
    guest = AProcess(9, HARVEST)
    world.processes.append(guest)
    world.keeper.joining(HARVEST, guest)
    assert (guest.gate, guest.pace()) == (Gate.PACED, Pace.TIME)
    assert guest.word(AgentPage.ALLOWED_BESIDE) == 0
    assert 0 < guest.word(AgentPage.ALLOWED) < 100 * MILLISECOND
    assert guest.notices == []  # it is not welcomed yet
    world.keeper.joined(HARVEST, guest)
    assert neighbours(guest) == 1
    assert neighbours(production) == 0
    assert (production.gate, production.pace()) == (Gate.PACED, Pace.MEASURE)
    assert world.controllers == []


@in_a_loop
def test_production_that_comes_holds_who_was_alone_before_its_own_welcome(a_world: Callable[..., AWorld]) -> None:
    world = a_world()
    guest = world.join(HARVEST)
    assert guest.gate is Gate.OPEN
    world.processes.append(AProcess(7, PRODUCTION))
    world.keeper.joining(PRODUCTION, world.processes[-1])
    assert (guest.gate, guest.word(AgentPage.ALLOWED_BESIDE)) == (Gate.PACED, 0)


@in_a_loop
def test_boards_follow_joins_leaves_and_classes(a_world: Callable[..., AWorld]) -> None:
    world = a_world()
    kernel = AKernel("changes")
    first, guest, second = world.join(kernel), world.join(HARVEST), world.join(PRODUCTION)
    assert (neighbours(first), neighbours(guest), neighbours(second)) == (0, 2, 0)
    kernel.is_production = False
    world.keeper.resized(kernel)
    assert (neighbours(first), neighbours(guest), neighbours(second)) == (1, 1, 0)
    world.leave(second)
    assert (neighbours(first), neighbours(guest)) == (0, 0)
    assert [notice.kind for notice in guest.notices].count(BoardKind.GONE) == 2


@in_a_loop
def test_a_reader_sees_what_its_neighbour_shows(a_world: Callable[..., AWorld]) -> None:
    world = a_world()
    production, guest = world.join(PRODUCTION), world.join(HARVEST)
    production.begin(world.now)
    assert guest.neighbours[0][64] == 1


@in_a_loop
def test_a_full_socket_is_told_later(a_world: Callable[..., AWorld]) -> None:
    world = a_world()
    guest = world.join(HARVEST)
    guest.room = 0
    world.join(PRODUCTION)
    assert neighbours(guest) == 0
    guest.room = 1
    world.run(20)
    assert neighbours(guest) == 1


@in_a_loop
def test_more_production_than_one_process_reads_is_shown_by_a_board_of_the_agents(
    a_world: Callable[..., AWorld],
) -> None:
    world = a_world()
    guest = world.join(HARVEST)
    others = [world.join(AKernel(f"p{number}")) for number in range(MAX_NEIGHBOURS + 3)]
    assert neighbours(guest) == MAX_NEIGHBOURS
    world.run(20)
    assert not any(board[64] for board in guest.neighbours.values())
    others[-1].begin(world.now)  # whose own board it has no room for
    world.run(20)
    assert [board[64] for board in guest.neighbours.values()].count(1) == 1


@in_a_loop
def test_a_hook_of_before_has_a_gate_and_production_of_before_a_board_of_the_agents(
    a_world: Callable[..., AWorld],
) -> None:
    world = a_world(hold_all)
    old_production, old_guest = world.join(PRODUCTION, version=3), world.join(HARVEST, version=3)
    guest = world.join(AKernel("h2", is_production=False))
    assert (old_guest.notices, old_guest.gate, old_guest.pace()) == ([], Gate.OPEN, Pace.OFF)
    assert neighbours(guest) == 1
    world.run(40)
    assert (old_guest.gate, old_production.gate, guest.gate) == (Gate.CLOSED, Gate.OPEN, Gate.CLOSED)
    assert guest.neighbours[0][64] == 0
    old_production.say(HookPage.LAUNCHES, 5)
    world.run(20)
    assert guest.neighbours[0][64] == 1
    world.run(20)
    assert guest.neighbours[0][64] == 0


@in_a_loop
def test_what_holds_a_kernel_on_one_device_does_not_on_its_other(a_world: Callable[..., AWorld]) -> None:
    world = a_world(hold_all)
    both = AKernel("both", is_production=False, devices=(0, 1))
    guest = world.join(both)
    world.join(PRODUCTION)
    world.run(40)
    assert guest.gate is Gate.PACED
    assert (guest.pace(0), guest.word(AgentPage.ALLOWED, 0)) == (Pace.TIME, 0)
    assert guest.pace(1) is Pace.OFF
    assert len(world.controllers) == 1


@in_a_loop
def test_each_device_has_a_controller_of_its_own(a_world: Callable[..., AWorld]) -> None:
    world = a_world(hold_all)
    kernels = [AKernel(name, is_production=name == "a", devices=(0, 1)) for name in "ab"]
    for kernel in kernels:
        world.join(kernel)
    world.run(100)
    assert len(world.controllers) == 2
    assert world.controllers[0] is not world.controllers[1]


@in_a_loop
def test_orders_are_in_the_hooks_own_count_of_its_work(a_world: Callable[..., AWorld]) -> None:
    """An agent that was started again finds counters that run."""

    def allow(look: DeviceLook) -> Verdict:
        paced = Order(Gate.PACED, Pace.TIME, allowed_beside=3 * MILLISECOND)
        return Verdict(
            {o.key: Order(Gate.PACED, Pace.TIME, o.occupied + 5, 7) if o.key == 1 else paced for o in look.processes}
        )

    world = a_world(allow)
    first, second = world.join(HARVEST), world.join(AKernel("h2", is_production=False))
    first.say(HookPage.OCCUPIED, 1 << 60)
    world.run(20)
    assert first.word(AgentPage.ALLOWED) == (1 << 60) + 5
    assert second.word(AgentPage.ALLOWED) == NO_LIMIT
    assert second.word(AgentPage.ALLOWED_BESIDE) == 3 * MILLISECOND


@in_a_loop
def test_a_board_on_which_nothing_moves_and_that_nvml_does_not_see_is_withdrawn(
    a_world: Callable[..., AWorld],
) -> None:
    world = a_world(hold_all)
    production, guest = world.join(PRODUCTION), world.join(HARVEST)
    production.begin(world.now)  # and is stopped
    world.run(100)
    for _ in range(4):
        world.ask_nvml(p1=0.0)
        world.run(100)
    assert neighbours(guest) == 0
    assert world.controllers[-1].looks[-1].processes[0].is_active is False
    production.end(world.now - 50 * MILLISECOND, world.now)  # it goes on
    world.run(20)
    assert neighbours(guest) == 1


@in_a_loop
def test_a_long_launch_that_nvml_sees_keeps_its_board(a_world: Callable[..., AWorld]) -> None:
    world = a_world(hold_all)
    production, guest = world.join(PRODUCTION), world.join(HARVEST)
    production.begin(world.now)
    world.run(100)
    for _ in range(10):
        world.ask_nvml(p1=1.0)
        world.run(100)
    assert neighbours(guest) == 1


@in_a_loop
def test_a_controller_that_fails_leaves_production_open_and_others_their_pauses(
    a_world: Callable[..., AWorld],
) -> None:
    def fail(look: DeviceLook) -> Verdict:
        raise ZeroDivisionError

    world = a_world(fail)
    production, guest = world.join(PRODUCTION), world.join(HARVEST)
    world.run(20)
    assert (production.pace(), guest.pace()) == (Pace.MEASURE, Pace.TIME)
    assert (guest.word(AgentPage.ALLOWED), guest.word(AgentPage.ALLOWED_BESIDE)) == (NO_LIMIT, 0)
    world.run(500)
    assert len(world.controllers) == 1
    world.run(1000)
    assert len(world.controllers) == 2


@in_a_loop
def test_no_solo_window_stays_open_when_the_agent_ends(a_world: Callable[..., AWorld]) -> None:
    world = a_world(lambda look: Verdict({1: Order(Gate.PACED, Pace.MEASURE, solo_window=5)}))
    production = world.join(PRODUCTION)
    world.join(HARVEST)
    world.run(20)
    assert production.half_word(AgentPage.SOLO_WINDOW) == 5
    world.keeper.close()
    assert production.half_word(AgentPage.SOLO_WINDOW) == 6


@in_a_loop
def test_an_agent_that_ends_opens_nobodys_gate_while_its_sessions_close(a_world: Callable[..., AWorld]) -> None:
    world = a_world(hold_all)
    production, guest = world.join(PRODUCTION), world.join(HARVEST)
    world.run(20)
    world.keeper.close()
    world.leave(production)
    assert guest.gate is Gate.CLOSED
    world.leave(guest)


@in_a_loop
def test_a_lost_device_holds_nobody(a_world: Callable[..., AWorld]) -> None:
    world = a_world(hold_all)
    world.join(PRODUCTION)
    guest = world.join(HARVEST)
    world.run(20)
    assert guest.gate is Gate.CLOSED
    world.ask_nvml(is_lost=True)
    assert guest.gate is Gate.OPEN
    world.ask_nvml()
    assert guest.gate is Gate.PACED


@in_a_loop
def test_a_clock_that_is_set_back_is_waited_for(a_world: Callable[..., AWorld]) -> None:
    world = a_world(hold_all)
    world.join(PRODUCTION)
    guest = world.join(HARVEST)
    world.run(100)
    seen = len(world.controllers[0].looks)
    world.now -= SECOND // 2
    world.run(40)
    assert (len(world.controllers[0].looks), guest.gate) == (seen, Gate.CLOSED)
    world.run(3000)
    nows = [look.now for look in world.controllers[0].looks]
    assert nows == sorted(set(nows))
    assert len(nows) > seen


@in_a_loop
def test_who_has_been_quiet_is_looked_at_less_often(a_world: Callable[..., AWorld]) -> None:
    world = a_world(hold_all)
    world.join(PRODUCTION)
    guest = world.join(HARVEST)
    world.run(2000)
    before = len(world.controllers[0].looks)
    world.run(1000)
    assert len(world.controllers[0].looks) - before <= 10
    guest.say(HookPage.WAITING_LAUNCHES, 1, format="=I")
    world.run(200)
    before = len(world.controllers[0].looks)
    world.run(1000)
    assert len(world.controllers[0].looks) - before >= 45


@in_a_loop
def test_a_cap_holds_who_is_alone_and_no_cap_does_not(a_world: Callable[..., AWorld]) -> None:
    world = a_world(hold_all, settings=ComputeSettings(cap="opportunistic"))
    world.join(AKernel("p", devices=(1,)))
    guest = world.join(HARVEST)
    world.run(20)
    assert guest.gate is Gate.CLOSED
    assert [one.is_capped for one in world.controllers[0].looks[0].processes] == [True]
    assert len(world.controllers) == 1


@in_a_loop
def test_whom_nothing_holds_leaves_and_comes_back_when_production_rests(a_world: Callable[..., AWorld]) -> None:
    world = a_world(lambda look: Verdict({}, {}, ("h",) if look.processes[0].is_active else ()))
    production = world.join(PRODUCTION)
    world.join(HARVEST)
    production.begin(world.now)
    world.run(20)
    assert world.leases.out == {"h"}
    status = world.keeper.describe("h", uuid_of(0))
    assert status is not None
    assert status["unholdable"]
    world.run(10_000, each=100)
    production.end(world.now - SECOND, world.now)
    world.run(1000)
    assert world.leases.out == {"h"}
    world.run(2000)
    assert world.leases.out == set()
    production.begin(world.now)
    world.run(200)
    assert world.leases.out == {"h"}
    world.leave(production)
    assert world.leases.out == set()


@in_a_loop
def test_status_tells_shares_and_adds_up_over_controllers(a_world: Callable[..., AWorld]) -> None:
    def share(look: DeviceLook) -> Verdict:
        own = 10 * MILLISECOND * len(world.controllers[-1].looks)
        found = KernelShare(0.5, 0.25, own, stretch=1.03, bound=2 * MILLISECOND, reason="its turn is over")
        return Verdict({one.key: MEASURED for one in look.processes}, {"h": found})

    world = a_world(share)
    production, guest = world.join(PRODUCTION), world.join(HARVEST)
    guest.say(HookPage.THROTTLED, SECOND // 100)
    world.run(100)
    got = world.keeper.describe("h", uuid_of(0))
    assert got == {
        "share_entitled": 0.5,
        "share_used": 0.25,
        "own_seconds": 0.05,
        "stretch": 1.03,
        "throttled_seconds": 0.01,
        "bound_milliseconds": 2.0,
        "pace": "measured",
        "reason": "its turn is over",
        "unholdable": False,
        "is_capped": False,
    }
    world.leave(production)
    world.ask_nvml(p2=0.5)  # alone it is not measured, and NVML's word counts
    after = world.keeper.describe("h", uuid_of(0))
    assert after is not None
    assert (after["own_seconds"], after["share_used"], after["pace"]) == (0.55, 0.5, "open")
    world.keeper.forget("h")
    assert world.keeper.describe("h", uuid_of(0)) is None


@in_a_loop
def test_observers_are_nobodys_neighbours(a_world: Callable[..., AWorld]) -> None:
    world = a_world(hold_all)
    guest, observer = world.join(HARVEST), AProcess(5, PRODUCTION)
    observer.role = Role.OBSERVER
    world.processes.append(observer)
    world.keeper.joining(PRODUCTION, observer)
    world.keeper.joined(PRODUCTION, observer)
    world.run(40)
    assert (neighbours(guest), guest.gate) == (0, Gate.OPEN)
    world.keeper.left(observer)

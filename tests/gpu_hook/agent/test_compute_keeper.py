"""The compute keeper's orders, notices and failures, on real pages and a clock of the test."""

from __future__ import annotations

from collections.abc import Callable

from compute_world import HARVEST, PRODUCTION, AKernel, AProcess, AWorld, hold_all, in_a_loop, peers, uuid_of

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import (
    MILLISECOND,
    SECOND,
    DeviceSample,
    KernelShare,
    Verdict,
)
from jupyter_aliquot.gpu_hook.agent.compute.settings import ComputeSettings
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import MEASURED, Order
from jupyter_aliquot.gpu_hook.protocol.codec import (
    MAX_PEERS,
    NO_LIMIT,
    ActivityPageKind,
    AgentPage,
    Gate,
    HookPage,
    Pace,
    Role,
)


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
    assert guest.word(AgentPage.ALLOWED_WITH_BUSY_PEERS) == 0
    assert 0 < guest.word(AgentPage.ALLOWED) < 100 * MILLISECOND
    assert guest.notices == []  # it is not welcomed yet
    world.keeper.joined(HARVEST, guest)
    assert peers(guest) == 1
    assert peers(production) == 0
    assert (production.gate, production.pace()) == (Gate.PACED, Pace.MEASURE)
    assert world.controllers == []


@in_a_loop
def test_production_that_comes_holds_who_was_alone_before_its_own_welcome(a_world: Callable[..., AWorld]) -> None:
    world = a_world()
    guest = world.join(HARVEST)
    assert guest.gate is Gate.OPEN
    world.processes.append(AProcess(7, PRODUCTION))
    world.keeper.joining(PRODUCTION, world.processes[-1])
    assert (guest.gate, guest.word(AgentPage.ALLOWED_WITH_BUSY_PEERS)) == (Gate.PACED, 0)


@in_a_loop
def test_activity_pages_follow_joins_leaves_and_classes(a_world: Callable[..., AWorld]) -> None:
    world = a_world()
    kernel = AKernel("changes")
    first, guest, second = world.join(kernel), world.join(HARVEST), world.join(PRODUCTION)
    assert (peers(first), peers(guest), peers(second)) == (0, 2, 0)
    kernel.is_production = False
    world.keeper.resized(kernel)
    assert (peers(first), peers(guest), peers(second)) == (1, 1, 0)
    world.leave(second)
    assert (peers(first), peers(guest)) == (0, 0)
    assert [notice.kind for notice in guest.notices].count(ActivityPageKind.GONE) == 2


@in_a_loop
def test_a_reader_sees_what_its_peer_shows(a_world: Callable[..., AWorld]) -> None:
    world = a_world()
    production, guest = world.join(PRODUCTION), world.join(HARVEST)
    production.begin(world.now)
    assert guest.peers[0][64] == 1


@in_a_loop
def test_a_full_socket_is_told_later(a_world: Callable[..., AWorld]) -> None:
    world = a_world()
    guest = world.join(HARVEST)
    guest.room = 0
    world.join(PRODUCTION)
    assert peers(guest) == 0
    guest.room = 1
    world.run(20)
    assert peers(guest) == 1


@in_a_loop
def test_more_production_than_one_process_reads_is_shown_by_an_activity_page_of_the_agents(
    a_world: Callable[..., AWorld],
) -> None:
    world = a_world()
    guest = world.join(HARVEST)
    others = [world.join(AKernel(f"p{number}")) for number in range(MAX_PEERS + 3)]
    assert peers(guest) == MAX_PEERS
    world.run(20)
    assert not any(activity[64] for activity in guest.peers.values())
    others[-1].begin(world.now)  # the page has no room for its activity page
    world.run(20)
    assert [activity[64] for activity in guest.peers.values()].count(1) == 1


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
    """The new agent finds counters that run already."""

    def allow(look: DeviceSample) -> Verdict:
        paced = Order(Gate.PACED, Pace.TIME, allowed_with_busy_peers=3 * MILLISECOND)
        return Verdict(
            {o.key: Order(Gate.PACED, Pace.TIME, o.occupied + 5, 7) if o.key == 1 else paced for o in look.processes}
        )

    world = a_world(allow)
    first, second = world.join(HARVEST), world.join(AKernel("h2", is_production=False))
    first.say(HookPage.OCCUPIED, 1 << 60)
    world.run(20)
    assert first.word(AgentPage.ALLOWED) == (1 << 60) + 5
    assert second.word(AgentPage.ALLOWED) == NO_LIMIT
    assert second.word(AgentPage.ALLOWED_WITH_BUSY_PEERS) == 3 * MILLISECOND


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
def test_status_tells_shares_and_adds_up_over_controllers(a_world: Callable[..., AWorld]) -> None:
    def share(look: DeviceSample) -> Verdict:
        own = 10 * MILLISECOND * len(world.controllers[-1].looks)
        found = KernelShare(0.5, 0.25, own, slowdown=1.03, bound=2 * MILLISECOND, reason="its turn is over")
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
    world.ask_nvml(p2=0.5)  # alone it is not measured, and NVML's figure counts
    after = world.keeper.describe("h", uuid_of(0))
    assert after is not None
    assert (after["own_seconds"], after["share_used"], after["pace"]) == (0.55, 0.5, "open")
    world.keeper.forget("h")
    assert world.keeper.describe("h", uuid_of(0)) is None


@in_a_loop
def test_observers_are_nobodys_peers(a_world: Callable[..., AWorld]) -> None:
    world = a_world(hold_all)
    guest, observer = world.join(HARVEST), AProcess(5, PRODUCTION)
    observer.role = Role.OBSERVER
    world.processes.append(observer)
    world.keeper.joining(PRODUCTION, observer)
    world.keeper.joined(PRODUCTION, observer)
    world.run(40)
    assert (peers(guest), guest.gate) == (0, Gate.OPEN)
    world.keeper.left(observer)


def is_sampled(process: AProcess) -> bool:
    return process.half_word(AgentPage.IS_SAMPLED) == 1


@in_a_loop
def test_production_is_measured_by_samples_where_no_opportunistic_kernel_is(a_world: Callable[..., AWorld]) -> None:
    world = a_world(hold_all)
    production = [world.join(kernel) for kernel in (PRODUCTION, AKernel("q"))]
    assert [is_sampled(process) for process in production] == [True, True]
    world.run(40)
    assert [is_sampled(process) for process in production] == [True, True]
    guest = world.join(HARVEST)
    assert [is_sampled(process) for process in (*production, guest)] == [False, False, False]
    world.run(40)
    assert [is_sampled(process) for process in production] == [False, False]
    world.leave(guest)
    assert [is_sampled(process) for process in production] == [True, True]


@in_a_loop
def test_a_swapped_kernel_needs_no_exact_times_until_it_is_restored(a_world: Callable[..., AWorld]) -> None:
    world, kernel = a_world(hold_all), AKernel("h", is_production=False)
    production, guest = world.join(PRODUCTION), world.join(kernel)
    world.run(40)
    assert not is_sampled(production)
    kernel.is_swapped_out = True
    world.run(40)
    assert (is_sampled(production), is_sampled(guest)) == (True, False)
    kernel.is_swapped_out = False
    world.run(40)
    assert not is_sampled(production)


@in_a_loop
def test_samples_are_not_enough_for_a_kernel_that_is_held_back_by_time(a_world: Callable[..., AWorld]) -> None:
    orders = {1: Order(Gate.PACED, Pace.TIME), 2: MEASURED}
    world = a_world(lambda look: Verdict(orders))
    held, other = world.join(PRODUCTION), world.join(AKernel("q"))
    world.run(40)
    assert (is_sampled(held), is_sampled(other)) == (False, True)


@in_a_loop
def test_opportunistic_kernels_that_are_not_back_are_expected_to_work(a_world: Callable[..., AWorld]) -> None:
    world = a_world(hold_all)
    production = world.join(PRODUCTION)
    world.join(AKernel("q"))
    world.keeper.awaits(HARVEST, True)
    assert not is_sampled(production)
    world.keeper.awaits(HARVEST, False)
    assert is_sampled(production)

"""The compute keeper when a part fails, a page lies, or a kernel cannot be held back."""

from __future__ import annotations

from collections.abc import Callable

from compute_world import HARVEST, PRODUCTION, AWorld, hold_all, in_a_loop, peers, uuid_of

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, SECOND, DeviceSample, Verdict
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import Order
from jupyter_aliquot.gpu_hook.protocol.codec import NO_LIMIT, AgentPage, Gate, HookPage, Pace


@in_a_loop
def test_an_activity_page_on_which_nothing_moves_and_that_nvml_does_not_see_is_withdrawn(
    a_world: Callable[..., AWorld],
) -> None:
    world = a_world(hold_all)
    production, guest = world.join(PRODUCTION), world.join(HARVEST)
    production.begin(world.now)  # and then is stopped
    world.run(100)
    for _ in range(4):
        world.ask_nvml(p1=0.0)
        world.run(100)
    assert peers(guest) == 0
    assert world.controllers[-1].looks[-1].processes[0].is_active is False
    production.end(world.now - 50 * MILLISECOND, world.now)  # it runs again
    world.run(20)
    assert peers(guest) == 1


@in_a_loop
def test_a_long_launch_that_nvml_sees_keeps_its_activity_page(a_world: Callable[..., AWorld]) -> None:
    world = a_world(hold_all)
    production, guest = world.join(PRODUCTION), world.join(HARVEST)
    production.begin(world.now)
    world.run(100)
    for _ in range(10):
        world.ask_nvml(p1=1.0)
        world.run(100)
    assert peers(guest) == 1


@in_a_loop
def test_a_controller_that_fails_leaves_production_open_and_others_their_pauses(
    a_world: Callable[..., AWorld],
) -> None:
    def fail(look: DeviceSample) -> Verdict:
        raise ZeroDivisionError

    world = a_world(fail)
    production, guest = world.join(PRODUCTION), world.join(HARVEST)
    world.run(20)
    assert (production.pace(), guest.pace()) == (Pace.MEASURE, Pace.TIME)
    assert (production.gate, guest.gate) == (Gate.PACED, Gate.PACED)
    assert (guest.word(AgentPage.ALLOWED), guest.word(AgentPage.ALLOWED_WITH_BUSY_PEERS)) == (NO_LIMIT, 0)
    world.run(500)
    assert len(world.controllers) == 1
    world.run(1000)
    assert len(world.controllers) == 2


@in_a_loop
def test_one_that_reads_nothing_is_told_ever_more_rarely_and_still_told(a_world: Callable[..., AWorld]) -> None:
    world = a_world(hold_all)
    production, guest = world.join(PRODUCTION), world.join(HARVEST)
    asked: list[int] = []
    tell = guest.notify
    guest.notify = lambda *notice: not asked.append(world.now) and tell(*notice)  # type: ignore[method-assign]
    guest.room = 0
    world.leave(production)
    world.run(5000, each=5)
    assert len(asked) < 25, "for ever, it would cost a part of a core"
    guest.room = 1
    world.run(500, each=5)
    assert peers(guest) == 0


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
    world.leases.unswappable.add("h")
    status = world.keeper.describe("h", uuid_of(0))
    assert status is not None
    assert (status["unholdable"], status["reason"].endswith("it cannot be swapped out")) == (False, True)
    world.leases.unswappable.clear()
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

"""Memory of a departed process is lent to no other before the driver has it back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from jupyter_aliquot.gpu_hook.agent.base.processes import Process
from jupyter_aliquot.gpu_hook.agent.devices.departures import Departures
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceMonitor, DeviceReading
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts
from jupyter_aliquot.gpu_hook.agent.scheduling.leases import decide
from jupyter_aliquot.gpu_hook.agent.scheduling.room import Room
from jupyter_aliquot.gpu_hook.agent.scheduling.views import DeviceView, Holding, KernelView, Policy, Reason, Want

MIB = 1 << 20
CARD = 1000 * MIB
GONE = Process(7, 100)


def a_look(processes: Mapping[int, int | None], used: int = 0, is_lost: bool = False) -> list[DeviceReading]:
    facts = DeviceFacts("GPU-a", 0, "a", CARD)
    return [DeviceReading(facts, used_bytes=used, processes=processes, is_lost=is_lost)]


class TestDepartures:
    def departed(self, alive: int | None = None) -> Departures:
        departures = Departures(lambda pid: alive)
        departures.left("k", GONE, {"GPU-a": 300 * MIB, "GPU-b": 0}, now=10.0)
        return departures

    def test_a_look_that_began_before_it_left_says_nothing(self) -> None:
        departures = self.departed()
        assert not departures.look(a_look({}), began=9.9, now=10.2)
        assert departures.leaving_bytes("GPU-a") == 300 * MIB
        assert departures.look(a_look({}), began=10.1, now=10.3)
        assert (departures.leaving_bytes("GPU-a"), departures.next_look(10.3)) == (0, None)

    def test_it_has_what_the_driver_says_and_no_more_than_it_was_lent(self) -> None:
        departures = self.departed()
        for used, want in ((900 * MIB, 300 * MIB), (None, 300 * MIB), (120 * MIB, 120 * MIB), (200 * MIB, 120 * MIB)):
            departures.look(a_look({7: used}, used=CARD), began=10.1, now=10.2)
            assert departures.leaving_bytes("GPU-a") == want

    def test_without_its_word_they_have_together_what_the_device_has_in_use_beside_the_others(self) -> None:
        """Processes of one kernel borrow, free, leave and live.

        Otherwise each would keep its loan for ever.
        """
        departures, living = Departures(lambda pid: 100), range(7, 17)
        for pid in living:
            departures.left("k", Process(pid, 100), {"GPU-a": 300 * MIB}, now=10.0)
        seen = {**dict.fromkeys(living), 7: 100 * MIB}
        departures.look(a_look(seen, used=650 * MIB), began=10.1, now=10.2, on_device={"GPU-a": 200 * MIB})
        assert departures.leaving_bytes("GPU-a") == 450 * MIB
        departures.look(a_look(seen, used=250 * MIB), began=20.1, now=20.2, on_device={"GPU-a": 200 * MIB})
        assert departures.staying_bytes("GPU-a") == 100 * MIB

    def test_a_pid_that_is_used_again_and_a_lost_device_hold_nothing(self) -> None:
        again = Departures(lambda pid: 222)
        again.left("k", GONE, {"GPU-a": MIB}, now=10.0)
        again.look(a_look({7: MIB}), began=10.1, now=10.2)
        lost = self.departed()
        lost.look(a_look({7: MIB}, is_lost=True), began=10.1, now=10.2)
        assert (again.leaving_bytes("GPU-a"), lost.leaving_bytes("GPU-a")) == (0, 0)

    def test_who_lives_on_or_is_never_torn_down_stays_after_a_while(self) -> None:
        for alive, patience in ((100, 5.0), (None, 30.0)):
            departures = self.departed(alive)
            departures.look(a_look({7: 200 * MIB}), began=10.1, now=10.0 + patience)
            assert departures.leaving_bytes("GPU-a") == 200 * MIB
            departures.look(a_look({7: 200 * MIB}), began=10.1, now=10.1 + patience)
            assert (departures.leaving_bytes("GPU-a"), departures.staying_bytes("GPU-a")) == (0, 200 * MIB)
            assert departures.look(a_look({}), began=60.0, now=61.0)
            assert departures.staying_bytes("GPU-a") == 0

    def test_who_comes_back_is_counted_once(self) -> None:
        departures = self.departed(100)
        departures.returned(GONE, {"GPU-a": 250 * MIB})
        assert departures.leaving_bytes("GPU-a") == 50 * MIB
        departures.returned(Process(7, 101), {"GPU-a": 50 * MIB})
        assert departures.leaving_bytes("GPU-a") == 50 * MIB

    def test_one_that_leaves_again_and_again_keeps_no_more_than_the_driver_says(self) -> None:
        """The process comes back each time, and reports none of its memory."""
        departures, want = self.departed(100), 300 * MIB
        for turn in range(1, 12):
            departures.returned(GONE, {})
            departures.left("k", GONE, {"GPU-a": 300 * MIB}, now=10.0 + turn)
            assert departures.leaving_bytes("GPU-a") + departures.staying_bytes("GPU-a") == want
            departures.look(a_look({7: 300 * MIB}), began=10.5 + turn, now=10.5 + turn)
            assert departures.leaving_bytes("GPU-a") + departures.staying_bytes("GPU-a") == want
        assert departures.staying_bytes("GPU-a") == want, "to leave again makes it no newcomer"
        departures.left("k", GONE, {"GPU-a": 300 * MIB}, now=30.0)
        departures.look(a_look({7: 40 * MIB}), began=29.9, now=30.1)
        assert departures.staying_bytes("GPU-a") == want, "the look may have passed by its last leave"
        departures.look(a_look({7: 40 * MIB}), began=30.1, now=30.2)
        assert departures.staying_bytes("GPU-a") == 40 * MIB

    def test_the_next_look_comes_soon_at_first(self) -> None:
        departures = self.departed()
        assert departures.next_look(10.5) == 0.05
        assert departures.next_look(12.0) == 0.5


class TestLooks:
    def test_a_look_that_asks_for_another_is_followed_by_one_however_many_were_hurried(self) -> None:
        looks = 0

        class Source:
            def read(self) -> tuple[DeviceReading, ...]:
                return ()

            def close(self) -> None: ...

        def saw() -> None:
            nonlocal looks
            looks += 1
            monitor.look_within(0.1)

        monitor = DeviceMonitor(Source(), saw)

        async def run() -> None:
            nonlocal looks
            task = asyncio.create_task(monitor.run(60.0))
            while looks < 10:  # as ten processes that leave
                monitor.notify()
                await asyncio.sleep(0.005)
            looks, began = 0, time.monotonic()
            await asyncio.sleep(0.5)
            assert 1 <= looks <= (time.monotonic() - began) / 0.1 + 1
            task.cancel()
            await monitor.close()

        asyncio.run(run())


class TestRoom:
    def test_what_is_leaving_is_no_present_room_and_nobody_elses(self) -> None:
        room = Room()
        room.departures.left("k", GONE, {"GPU-a": 300 * MIB}, now=10.0)
        room.look(a_look({7: 300 * MIB}, used=350 * MIB), {"GPU-a": 0})
        want_others = 50 * MIB
        assert room.capacity_bytes("GPU-a") == CARD - want_others
        assert room.present_bytes("GPU-a") == CARD - want_others - 300 * MIB

    def test_who_wants_room_waits_for_what_is_leaving_and_displaces_nobody(self) -> None:
        idle = KernelView("idle", (Holding("GPU-a", 500 * MIB, 500 * MIB),), idle_since=0.0)
        wants = KernelView("wants", (Holding("GPU-a", 0, wanted_bytes=400 * MIB),), want=Want.CALL, wants_since=90.0)
        device = DeviceView("GPU-a", CARD, leaving_bytes=300 * MIB)
        decision = decide([device], [idle, wants], 100.0, Policy())
        assert (decision.outs, decision.grown) == ((), ())
        assert [(wait.kernel_id, wait.reason) for wait in decision.waits] == [("wants", Reason.MOVING)]
        there = decide([DeviceView("GPU-a", CARD)], [idle, wants], 100.0, Policy())
        assert there.grown == ("wants",)

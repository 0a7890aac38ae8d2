"""Credit that the quota allows and the device has no room for: it waits, and somebody gives or refuses the room."""

from __future__ import annotations

from jupyter_aliquot.gpu_hook.agent.ledger.credit import CreditDesk
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Ledger
from jupyter_aliquot.gpu_hook.placement.placement import Part

try:
    from tests.gpu_hook.agent.desk_world import QUOTA, FakeClock, FakeProcess, Mail, a_ledger
except ImportError:  # imported by its path
    from desk_world import QUOTA, FakeClock, FakeProcess, Mail, a_ledger


class TestRoom:
    """What the quota allows and the device has no room for."""

    def a_desk(self) -> tuple[Ledger, Mail, FakeClock, CreditDesk, list[int]]:
        ledger, mail, clock = a_ledger(), Mail(), FakeClock()
        mail.processes = {1: FakeProcess(), 2: FakeProcess()}
        room = [0]
        desk = CreditDesk(ledger, "k", 0, mail, clock.call_later, 0.2, lambda device, amount: amount <= room[0])
        return ledger, mail, clock, desk, room

    def ask(self, desk: CreditDesk, mail: Mail, process: int, amount: int, sequence: int) -> None:
        mail.processes[process].waits.append(sequence)
        desk.request(process, amount, sequence)

    def test_it_waits_and_is_asked_for_patience(self) -> None:
        ledger, mail, clock, desk, _ = self.a_desk()
        self.ask(desk, mail, 1, 600, 7)
        assert (desk.wanted_bytes, mail.answers, mail.patience) == (600, [], [7])
        for _ in range(20):
            clock.advance(0.5)
        assert (mail.answers, mail.patience) == ([], [7] * 21)
        desk.give_room()
        assert (mail.answers, desk.wanted_bytes) == ([(7, 600)], 0)
        ledger.check()

    def test_who_asks_after_it_waits_too_and_is_answered_after_it(self) -> None:
        _, mail, _, desk, room = self.a_desk()
        self.ask(desk, mail, 1, 600, 7)
        self.ask(desk, mail, 2, 100, 8)
        room[0] = 100
        desk.give_room()
        assert mail.answers == [(7, 600), (8, 100)]

    def test_what_an_interrupt_withdraws_wants_no_room_and_the_next_one_is_served(self) -> None:
        ledger, mail, clock, desk, room = self.a_desk()
        self.ask(desk, mail, 1, 600, 7)
        self.ask(desk, mail, 2, 100, 8)
        room[0] = 100
        desk.withdrawn(1, 7)
        assert (mail.answers, desk.wanted_bytes) == ([(8, 100)], 0)
        clock.advance(5)
        assert mail.patience == [7], "the answer is not read"
        desk.withdrawn(1, 7)
        desk.withdrawn(2, 8)
        assert mail.answers == [(8, 100)], "what was answered stays so"
        ledger.check()

    def test_what_is_refused_is_out_of_memory(self) -> None:
        _, mail, _, desk, _ = self.a_desk()
        self.ask(desk, mail, 1, 600, 7)
        desk.refuse_room()
        assert mail.answers == [(7, 0)]

    def test_credit_to_spare_waits_for_nobody(self) -> None:
        _, mail, _, desk, _ = self.a_desk()
        mail.processes[1].waits.append(7)
        desk.request(1, 600, 7, may_wait=False)
        assert mail.answers == [(7, 0)]

    def test_beyond_the_quota_nobody_waits_for_room(self) -> None:
        _, mail, _, desk, _ = self.a_desk()
        self.ask(desk, mail, 1, QUOTA + 1, 7)
        assert mail.answers == [(7, 0)]

    def test_a_process_that_ends_while_it_waits_makes_way_for_the_next(self) -> None:
        ledger, mail, _, desk, room = self.a_desk()
        self.ask(desk, mail, 1, 600, 7)
        self.ask(desk, mail, 2, 100, 8)
        room[0] = 100
        ledger.end_process("k", 1)
        desk.left(1)
        assert mail.answers == [(8, 100)]

    def test_a_kernel_that_was_made_smaller_meanwhile_is_refused(self) -> None:
        ledger, mail, _, desk, _ = self.a_desk()
        self.ask(desk, mail, 1, 600, 7)
        ledger.resize("k", [Part("GPU-a", 0, 50, 500)], None, is_production=True)
        desk.give_room()
        assert mail.answers == [(7, 0)]

    def test_a_grant_that_ends_refuses_who_waits(self) -> None:
        _, mail, _, desk, _ = self.a_desk()
        self.ask(desk, mail, 1, 600, 7)
        desk.close()
        desk.give_room()
        assert mail.answers == [(7, 0)]

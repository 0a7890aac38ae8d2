"""Credit within the quota waits for room on the device, until room is given or refused."""

from __future__ import annotations

import pytest

from jupyter_aliquot.gpu_hook.agent.ledger.credit import CreditQueue
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Ledger
from jupyter_aliquot.gpu_hook.placement.placement import Part

try:
    from tests.gpu_hook.agent.credit_world import QUOTA, FakeClock, FakeProcess, Mail, a_ledger
except ImportError:  # imported by its path
    from credit_world import QUOTA, FakeClock, FakeProcess, Mail, a_ledger


class TestRoom:
    """Requests within the quota for which the device has no room."""

    def a_queue(self) -> tuple[Ledger, Mail, FakeClock, CreditQueue, list[int]]:
        ledger, mail, clock = a_ledger(), Mail(), FakeClock()
        mail.processes = {1: FakeProcess(), 2: FakeProcess()}
        room = [0]
        queue = CreditQueue(ledger, "k", 0, mail, clock.call_later, 0.2, lambda device, amount: amount <= room[0])
        return ledger, mail, clock, queue, room

    def ask(self, queue: CreditQueue, mail: Mail, process: int, amount: int, sequence: int) -> None:
        mail.processes[process].waits.append(sequence)
        queue.request(process, amount, sequence)

    def test_it_waits_and_is_asked_for_patience(self) -> None:
        ledger, mail, clock, queue, _ = self.a_queue()
        self.ask(queue, mail, 1, 600, 7)
        assert (queue.wanted_bytes, mail.answers, mail.patience) == (600, [], [7])
        for _ in range(20):
            clock.advance(0.5)
        assert (mail.answers, mail.patience) == ([], [7] * 21)
        queue.give_room()
        assert (mail.answers, queue.wanted_bytes) == ([(7, 600)], 0)
        ledger.check()

    def test_who_asks_after_it_waits_too_and_is_answered_after_it(self) -> None:
        _, mail, _, queue, room = self.a_queue()
        self.ask(queue, mail, 1, 600, 7)
        self.ask(queue, mail, 2, 100, 8)
        room[0] = 100
        queue.give_room()
        assert mail.answers == [(7, 600), (8, 100)]

    def test_what_an_interrupt_withdraws_wants_no_room_and_the_next_one_is_served(self) -> None:
        ledger, mail, clock, queue, room = self.a_queue()
        self.ask(queue, mail, 1, 600, 7)
        self.ask(queue, mail, 2, 100, 8)
        room[0] = 100
        queue.withdrawn(1, 7)
        assert (mail.answers, queue.wanted_bytes) == ([(8, 100)], 0)
        clock.advance(5)
        assert mail.patience == [7], "the answer is not read"
        queue.withdrawn(1, 7)
        queue.withdrawn(2, 8)
        assert mail.answers == [(8, 100)], "what was answered stays so"
        ledger.check()

    def test_what_is_refused_is_out_of_memory(self) -> None:
        _, mail, _, queue, _ = self.a_queue()
        self.ask(queue, mail, 1, 600, 7)
        queue.refuse_room()
        assert mail.answers == [(7, 0)]

    def test_credit_to_spare_waits_for_nobody(self) -> None:
        _, mail, _, queue, _ = self.a_queue()
        mail.processes[1].waits.append(7)
        queue.request(1, 600, 7, may_wait=False)
        assert mail.answers == [(7, 0)]

    def test_beyond_the_quota_nobody_waits_for_room(self) -> None:
        _, mail, _, queue, _ = self.a_queue()
        self.ask(queue, mail, 1, QUOTA + 1, 7)
        assert mail.answers == [(7, 0)]

    def test_room_for_a_context_is_no_loan_and_may_pass_the_quota(self) -> None:
        ledger, mail, _, queue, room = self.a_queue()
        mail.processes[1].waits.append(7)
        queue.request_context(1, QUOTA + 1, 7)
        assert (queue.wanted_bytes, queue.wanted_context_bytes, mail.patience) == (QUOTA + 1, QUOTA + 1, [7])
        queue.give_room()
        assert (mail.contexts, mail.answers, ledger.account("k", 0).lent) == ([(7, QUOTA + 1)], [], 0)
        room[0] = 600
        mail.processes[1].waits.append(8)
        queue.request_context(1, 600, 8)
        assert mail.contexts[1:] == [(8, 600)]
        ledger.check()

    @pytest.mark.parametrize("end", ["refuse_room", "close"])
    def test_a_context_is_refused_as_a_loan_is(self, end: str) -> None:
        _, mail, _, queue, _ = self.a_queue()
        mail.processes[1].waits.append(7)
        queue.request_context(1, 600, 7)
        getattr(queue, end)()
        assert mail.contexts == [(7, 0)]

    def test_a_process_that_ends_while_it_waits_makes_way_for_the_next(self) -> None:
        ledger, mail, _, queue, room = self.a_queue()
        self.ask(queue, mail, 1, 600, 7)
        self.ask(queue, mail, 2, 100, 8)
        room[0] = 100
        ledger.end_process("k", 1)
        queue.left(1)
        assert mail.answers == [(8, 100)]

    def test_a_kernel_that_was_made_smaller_meanwhile_is_refused(self) -> None:
        ledger, mail, _, queue, _ = self.a_queue()
        self.ask(queue, mail, 1, 600, 7)
        ledger.resize("k", [Part("GPU-a", 0, 50, 500)], None, is_production=True)
        queue.give_room()
        assert mail.answers == [(7, 0)]

    def test_a_grant_that_ends_refuses_who_waits(self) -> None:
        _, mail, _, queue, _ = self.a_queue()
        self.ask(queue, mail, 1, 600, 7)
        queue.close()
        queue.give_room()
        assert mail.answers == [(7, 0)]

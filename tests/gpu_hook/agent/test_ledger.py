"""Bytes add up: after each random step of processes, the books are right.

Processes borrow, return, are recalled, stop and die.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jupyter_aliquot.gpu_hook.agent.ledger.credit import CreditQueue
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts, Ledger, LedgerError
from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription, Reserved
from jupyter_aliquot.gpu_hook.placement.placement import Part

try:
    from tests.gpu_hook.agent.credit_world import MEMORY, QUOTA, B, FakeClock, FakeProcess, Mail, a_ledger
except ImportError:  # imported by its path
    from credit_world import MEMORY, QUOTA, B, FakeClock, FakeProcess, Mail, a_ledger


class CreditMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger, self.mail, self.clock = a_ledger(), Mail(), FakeClock()
        self.queue = CreditQueue(self.ledger, "k", 0, self.mail, self.clock.call_later, 0.2)
        self.sequence = 0
        self.born = 0

    def pick(self, data: st.DataObject) -> tuple[int, FakeProcess]:
        number = data.draw(st.sampled_from(sorted(self.mail.processes)))
        return number, self.mail.processes[number]

    @rule()
    def start(self) -> None:
        self.born += 1
        self.mail.processes[self.born] = FakeProcess()

    @precondition(lambda self: self.mail.processes)
    @rule(data=st.data(), amount=st.integers(0, QUOTA + 200))
    def ask(self, data: st.DataObject, amount: int) -> None:
        number, process = self.pick(data)
        self.sequence += 1
        process.waits.append(self.sequence)
        self.queue.request(number, amount, self.sequence)

    @precondition(lambda self: self.mail.processes)
    @rule(data=st.data())
    def allocate_all(self, data: st.DataObject) -> None:
        _, process = self.pick(data)
        process.charged, process.spare = process.charged + process.spare, 0

    @precondition(lambda self: self.mail.processes)
    @rule(data=st.data(), part=st.floats(0, 1))
    def free(self, data: st.DataObject, part: float) -> None:
        _, process = self.pick(data)
        amount = int(process.charged * part)
        process.charged, process.spare = process.charged - amount, process.spare + amount

    @precondition(lambda self: self.mail.processes)
    @rule(data=st.data(), part=st.floats(0, 1))
    def give_back(self, data: st.DataObject, part: float) -> None:
        number, process = self.pick(data)
        amount = int(process.spare * part)
        process.spare -= amount
        self.queue.returned(number, amount, 0)

    @precondition(lambda self: self.mail.processes)
    @rule(data=st.data())
    def answer_recalls(self, data: st.DataObject) -> None:
        number, process = self.pick(data)
        while process.recalls and not process.is_stopped:
            wanted, sequence = process.recalls.pop(0)
            amount = min(wanted, process.spare)
            process.spare -= amount
            self.queue.returned(number, amount, sequence)

    @precondition(lambda self: self.mail.processes)
    @rule(data=st.data(), stopped=st.booleans())
    def stop_or_continue(self, data: st.DataObject, stopped: bool) -> None:
        self.pick(data)[1].is_stopped = stopped

    @precondition(lambda self: self.mail.processes)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        number, process = self.pick(data)
        del self.mail.processes[number]
        assert self.ledger.end_process("k", number) == process.charged + process.spare
        self.queue.left(number)

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.2]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def books_agree(self) -> None:
        self.ledger.check()
        account = self.ledger.accounts("k")[0]
        assert account.lent <= QUOTA
        lent = {number: loan.bytes for number, loan in account.loans.items() if loan.bytes}
        held = {n: p.charged + p.spare for n, p in self.mail.processes.items() if p.charged + p.spare}
        assert lent == held

    def teardown(self) -> None:
        waiting = sum(len(process.waits) for process in self.mail.processes.values())
        # at most two seconds of silence, with messages to wait on in between
        for _ in range(4 * (waiting + 1)):
            self.clock.advance(0.5)
        assert not any(process.waits for process in self.mail.processes.values()), "somebody was never answered"


SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))

TestCreditMachine = pytest.mark.soak(pytest.mark.timeout(max(300, 120 * SOAK))(CreditMachine.TestCase))
TestCreditMachine.settings = settings(max_examples=150 * SOAK, stateful_step_count=40, deadline=None)


class TestDesk:
    @pytest.fixture
    def mail(self) -> Mail:
        mail = Mail()
        mail.processes = {1: FakeProcess(), 2: FakeProcess(), 3: FakeProcess()}
        return mail

    @pytest.fixture
    def a_clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def queue(self, mail: Mail, a_clock: FakeClock) -> CreditQueue:
        return CreditQueue(a_ledger(), "k", 0, mail, a_clock.call_later, 0.2)

    def ask(self, queue: CreditQueue, mail: Mail, process: int, amount: int, sequence: int) -> None:
        mail.processes[process].waits.append(sequence)
        queue.request(process, amount, sequence)

    def test_an_answer_is_all_or_nothing(self, queue: CreditQueue, mail: Mail) -> None:
        self.ask(queue, mail, 1, 700, 1)
        self.ask(queue, mail, 1, 301, 2)
        self.ask(queue, mail, 1, 300, 3)
        assert mail.answers == [(1, 700), (2, 0), (3, 300)]

    def test_idle_credit_is_recalled_before_anybody_is_refused(self, queue: CreditQueue, mail: Mail) -> None:
        self.ask(queue, mail, 1, 900, 1)
        self.ask(queue, mail, 2, 400, 2)
        assert mail.processes[1].recalls == [(300, 1)]
        queue.returned(1, 300, 1)
        assert mail.answers == [(1, 900), (2, 400)]

    def test_a_process_that_keeps_silent_costs_one_deadline(
        self, queue: CreditQueue, mail: Mail, a_clock: FakeClock
    ) -> None:
        self.ask(queue, mail, 1, 900, 1)
        self.ask(queue, mail, 2, 400, 2)
        for _ in range(4):
            a_clock.advance(0.5)
        assert mail.answers[-1] == (2, 0)
        self.ask(queue, mail, 2, 400, 3)
        assert mail.answers[-1] == (3, 0), "it is not waited for again"
        queue.returned(1, 300, 1)
        self.ask(queue, mail, 2, 400, 4)
        assert mail.answers[-1] == (4, 400)

    def test_a_process_that_is_late_is_waited_for(self, queue: CreditQueue, mail: Mail, a_clock: FakeClock) -> None:
        self.ask(queue, mail, 1, 900, 1)
        mail.processes[2].waits.append(2)
        queue.request(2, 400, 2, may_wait=False)
        a_clock.advance(0.2)
        assert mail.answers[-1] == (2, 0), "more than it needs: it is not to wait"
        self.ask(queue, mail, 2, 350, 3)
        for _ in range(3):
            a_clock.advance(0.5)
        assert mail.answers[-1] == (2, 0)
        assert set(mail.patience) == {3}
        assert mail.processes[1].recalls == [(300, 1)], "it was asked once"
        queue.returned(1, 300, 1)
        assert mail.answers[-1] == (3, 350)

    def test_more_than_the_quota_recalls_nobody(self, queue: CreditQueue, mail: Mail) -> None:
        self.ask(queue, mail, 1, 900, 1)
        self.ask(queue, mail, 2, QUOTA + 1, 2)
        self.ask(queue, mail, 2, 2**64 - 1, 3)
        assert mail.answers[1:] == [(2, 0), (3, 0)]
        assert not mail.processes[1].recalls

    def test_a_death_serves_those_who_wait(self, queue: CreditQueue, mail: Mail) -> None:
        self.ask(queue, mail, 1, 900, 1)
        self.ask(queue, mail, 2, 400, 2)
        queue._ledger.end_process("k", 1)
        queue.left(1)
        assert mail.answers[-1] == (2, 400)

    def test_after_a_restart_requests_wait_until_the_kernels_processes_had_their_time(
        self, queue: CreditQueue, mail: Mail, a_clock: FakeClock
    ) -> None:
        queue.hold()
        self.ask(queue, mail, 1, 100, 1)
        a_clock.advance(60)
        self.ask(queue, mail, 2, 100, 2)
        queue._ledger.end_process("k", 2)
        queue.left(2)
        assert not mail.answers
        queue.resume()
        assert mail.answers == [(1, 100)]

    def test_a_closed_desk_answers_nothing_to_everybody(self, queue: CreditQueue, mail: Mail) -> None:
        self.ask(queue, mail, 1, 900, 1)
        self.ask(queue, mail, 2, 400, 2)
        queue.close()
        self.ask(queue, mail, 3, 1, 3)
        assert mail.answers[1:] == [(2, 0), (3, 0)]


class TestLedger:
    def test_a_reservation_is_entered_whole_or_not_at_all(self) -> None:
        ledger = a_ledger()
        want = ledger.device_states()
        with pytest.raises(LedgerError):
            ledger.reserve("l", [Part("GPU-b", 1, 100, MEMORY), Part("GPU-a", 0, 51, 10)])
        assert ledger.device_states() == want

    def test_release_is_idempotent_and_returns_all(self) -> None:
        ledger = a_ledger()
        ledger.lend("k", 0, 1, 500)
        assert [ledger.release("k"), ledger.release("k")] == [True, False]
        assert ledger.reserved("GPU-a") == Reserved()

    def test_what_was_lent_before_a_smaller_quota_is_taken_and_no_more(self) -> None:
        ledger = a_ledger()
        ledger.keep("k", (QUOTA + 100, 0))
        with pytest.raises(LedgerError, match="claims"):
            ledger.adopt("k", 0, 1, QUOTA + 101, known=QUOTA + 101)
        ledger.adopt("k", 0, 1, QUOTA + 100, known=QUOTA + 100)
        assert not ledger.lend("k", 0, 2, 1)
        ledger.take_back("k", 0, 1, 200)
        assert ledger.lend("k", 0, 2, 100)

    def test_an_unknown_process_may_claim_what_its_kernel_is_guaranteed(self) -> None:
        ledger = a_ledger()
        ledger.adopt("k", 0, 1, QUOTA - 1)
        with pytest.raises(LedgerError, match="claims 2 bytes"):
            ledger.adopt("k", 0, 2, 2)
        ledger.adopt("k", 0, 2, 1)

    def test_nobody_returns_more_than_it_was_lent(self) -> None:
        ledger = a_ledger()
        ledger.lend("k", 0, 1, 10)
        with pytest.raises(LedgerError, match="returns 11 bytes, was lent 10"):
            ledger.take_back("k", 0, 1, 11)

    def test_a_lost_device_keeps_its_kernels_and_takes_no_more(self) -> None:
        ledger = a_ledger()
        ledger.set_devices([B])
        states = {state.uuid: state.lost for state in ledger.device_states()}
        assert states == {"GPU-a": True, "GPU-b": False}
        ledger.release("k")
        ledger.set_devices([B])
        assert [state.uuid for state in ledger.device_states()] == ["GPU-b"]

    def test_a_lost_device_stays_known_while_the_memory_of_its_only_kernel_is_out(self) -> None:
        ledger = a_ledger()
        ledger.set_aside("k")
        ledger.set_devices([B])
        assert {state.uuid: state.lost for state in ledger.device_states()} == {"GPU-a": True, "GPU-b": False}
        ledger.adopt("k", 0, 1, 1)


def test_the_state_of_a_device_follows_each_change_of_what_it_is_made_of() -> None:
    def a_book(kernels: dict[str, int], rule: Oversubscription, memory: int, lost: bool, context: int) -> Ledger:
        found = Ledger(oversubscription=Oversubscription(16, 16))
        found.set_devices([DeviceFacts("GPU-0", 0, "Fake", MEMORY)])
        for kernel_id, hundredths in kernels.items():
            found.reserve(kernel_id, [Part("GPU-0", 0, hundredths, QUOTA)], is_restored=True)
        return settle(found, rule, memory, lost, context)

    def settle(book: Ledger, rule: Oversubscription, memory: int, lost: bool, context: int) -> Ledger:
        book.set_devices([DeviceFacts("GPU-0", 0, "Fake", memory)], ["GPU-0"] if lost else [])
        book.contexts.note_measured({"GPU-0": context})
        book.oversubscription = rule
        return book

    once, twice = Oversubscription(), Oversubscription(2.0, 2.0)
    kept = a_book({}, once, MEMORY, False, 0)
    held: dict[str, int] = {}
    settings = [(once, MEMORY, False, 0), (twice, MEMORY, False, 0), (twice, 2 * MEMORY, False, 0)]
    settings += [(twice, 2 * MEMORY, True, 0), (twice, 2 * MEMORY, False, MEMORY)]
    for words in settings:
        for change in ("", "reserve", "release"):
            if change == "reserve" and not words[2]:
                settle(kept, *words).reserve("k", [Part("GPU-0", 0, 10, QUOTA)], is_restored=True)
                held["k"] = 10
            elif change == "release" and kept.release("k"):
                del held["k"]
            settle(kept, *words)
            for word in ("production", "opportunistic"):
                assert kept.device_states(word) == a_book(held, *words).device_states(word), (words, change)


@pytest.mark.parametrize("is_crossing", [False, True])
@pytest.mark.parametrize("lost", "AB")
def test_a_device_that_is_lost_during_a_move_stays_known_until_the_move_ended(lost: str, is_crossing: bool) -> None:
    ledger = Ledger()
    facts = [DeviceFacts(uuid, at, "card", 1000) for at, uuid in enumerate("AB")]
    ledger.set_devices(facts)
    ledger.reserve("k", [Part("A", 0, 60, 600)])
    ledger.hold_beside("k", Part("B", 1, 60, 600))
    if is_crossing:
        ledger.change_sides("k")
    for _ in range(2):
        ledger.set_devices(one for one in facts if one.uuid != lost)
        assert (ledger.is_used(lost), ledger.is_lost(lost)) == (True, True)
        assert [state.uuid for state in ledger.device_states()] == ["A", "B"]
        ledger.check()
    ledger.drop_beside("k")
    ledger.check()
    ledger.release("k")
    ledger.set_devices(one for one in facts if one.uuid != lost)
    assert [state.uuid for state in ledger.device_states()] == [{"A": "B", "B": "A"}[lost]]


def test_a_kernel_that_moves_has_both_parts_until_it_is_there() -> None:
    ledger = Ledger()
    ledger.set_devices([DeviceFacts(uuid, at, "card", 1000) for at, uuid in enumerate("AB")])
    part, target = Part("A", 0, 60, 600), Part("B", 1, 60, 600)
    ledger.reserve("k", [part])
    assert ledger.lend("k", 0, 7, 500)
    ledger.hold_beside("k", target)
    for reserved in ("k", "l"):
        with pytest.raises(LedgerError):
            ledger.reserve(reserved, [Part("B", 1, 50, 500)])
    ledger.change_sides("k")
    ledger.check()
    assert (ledger.lent("A"), ledger.lent("B")) == (0, 500)
    assert [ledger.reserved(uuid).hundredths for uuid in "AB"] == [60, 60]
    ledger.change_sides("k")
    ledger.drop_beside("k")
    ledger.check()
    assert (ledger.lent("A"), [ledger.reserved(uuid).hundredths for uuid in "AB"]) == (500, [60, 0])
    ledger.hold_beside("k", target)
    ledger.change_sides("k")
    ledger.drop_beside("k")
    ledger.check()
    assert (ledger.lent("B"), [ledger.reserved(uuid).hundredths for uuid in "AB"]) == (500, [0, 60])
    ledger.hold_beside("k", part)
    ledger.release("k")
    ledger.check()
    assert [ledger.reserved(uuid).hundredths for uuid in "AB"] == [0, 0]

from __future__ import annotations

import random

from jupyter_aliquot.gateway.relays.acks import Ack, Deliveries, Leaving
from jupyter_aliquot.gateway.replay.seen_ids import Numbers


def test_numbers_are_a_set_in_few_ranges() -> None:
    order = list(range(1, 200))
    random.Random(4).shuffle(order)
    numbers, want = Numbers(), set[int]()
    for number in order:
        assert number not in numbers
        numbers.add(number)
        numbers.add(number)
        want.add(number)
        assert {n for n in range(201) if n in numbers} == want
    assert len(numbers) == 1


def test_what_every_socket_took_at_once_is_acknowledged() -> None:
    deliveries = Deliveries()
    for number in (1, 2, 3):
        deliveries.give(number, (), was_taken=True)
    assert deliveries.acknowledge() == [Ack(3)]
    assert deliveries.acknowledge() == [], "once"
    assert deliveries.is_known(2)
    assert not deliveries.is_known(4)


def test_an_acknowledgement_waits_for_what_came_before() -> None:
    deliveries = Deliveries()
    deliveries.give(1, ["slow"], was_taken=True)
    deliveries.give(2, (), was_taken=True)
    deliveries.give(3, ["slow"], was_taken=False)
    assert deliveries.acknowledge() == []
    deliveries.take(1, "slow")
    assert deliveries.acknowledge() == [Ack(2)]
    deliveries.take(3, "slow")
    assert deliveries.acknowledge() == [Ack(3)]
    assert len(deliveries) == 0


def test_what_came_before_counts_and_not_the_number() -> None:
    """Acknowledge in order of arrival: a reply that waited for its session has an old number."""
    deliveries = Deliveries()
    deliveries.give(7, (), was_taken=True)
    deliveries.give(5, ["a"], was_taken=False)
    deliveries.give(8, (), was_taken=True)
    assert deliveries.acknowledge() == [Ack(7)]
    deliveries.take(5, "a")
    assert deliveries.acknowledge() == [Ack(8)]


def test_all_open_sockets_must_have_it() -> None:
    deliveries = Deliveries()
    deliveries.give(1, ["a", "b"], was_taken=False)
    deliveries.take(1, "a")
    deliveries.take(1, "a")
    assert deliveries.acknowledge() == []
    assert deliveries.leave("b") == Leaving(missed=1, returned=0)
    assert deliveries.acknowledge() == [Ack(1)]


def test_what_nobody_took_is_not_acknowledged_and_may_come_again() -> None:
    deliveries = Deliveries()
    deliveries.give(1, (), was_taken=True)
    deliveries.give(2, ["a"], was_taken=False)
    deliveries.give(3, ["a"], was_taken=False)
    assert deliveries.leave("a") == Leaving(missed=0, returned=2)
    assert deliveries.acknowledge() == [Ack(1), Ack(3, keep=True)], "the relay may send more, and keeps these"
    assert not deliveries.is_known(2)
    deliveries.give(2, ["b"], was_taken=False)
    deliveries.take(2, "a")
    assert deliveries.acknowledge() == [], "a has left"
    deliveries.take(2, "b")
    assert deliveries.acknowledge() == [Ack(2)]


def test_a_message_that_comes_again_is_acknowledged_again_once_it_was_taken() -> None:
    deliveries = Deliveries()
    deliveries.give(1, (), was_taken=True)
    deliveries.acknowledge()
    deliveries.give(2, ["a"], was_taken=False)
    deliveries.begin()
    deliveries.repeat(1)
    deliveries.repeat(2)
    assert deliveries.acknowledge() == [Ack(1)]
    deliveries.take(2, "a")
    assert deliveries.acknowledge() == [Ack(2)]


def test_outputs_that_only_collaborators_had_are_acknowledged_to_keep_and_unknown_to_the_owner() -> None:
    deliveries = Deliveries()
    for number in (1, 2):
        deliveries.show(number)
    deliveries.give(1, (), was_taken=True, keep=True)
    deliveries.give(2, ["guest"], was_taken=False, keep=True)
    deliveries.give(3, ["guest"], was_taken=False, is_output=False)
    assert deliveries.acknowledge() == [Ack(1, keep=True)]
    assert deliveries.leave("guest") == Leaving(missed=0, returned=1), "the reply is no other's"
    assert deliveries.acknowledge() == [Ack(2, keep=True)]
    deliveries.begin()
    assert [number for number in (1, 2, 3) if deliveries.is_known(number)] == []
    assert [number for number in (1, 2, 3) if deliveries.was_shown(number)] == [1, 2]
    deliveries.give(1, (), was_taken=True)
    deliveries.give(2, ["owner"], was_taken=False)
    deliveries.take(2, "guest")
    assert deliveries.acknowledge() == [Ack(1)]
    deliveries.take(2, "owner")
    assert deliveries.acknowledge() == [Ack(2)]


def test_an_acknowledgement_to_keep_covers_nothing_that_the_owner_had_not() -> None:
    """Acknowledge in runs: one for all would have the relay forget what waits for the owner."""
    deliveries = Deliveries()
    deliveries.give(1, (), was_taken=True)
    deliveries.give(2, ["owner"], was_taken=False)
    deliveries.give(3, ["guest"], was_taken=False, is_output=False)
    deliveries.leave("owner")
    deliveries.take(3, "guest")
    assert deliveries.acknowledge() == [Ack(1), Ack(2, keep=True), Ack(3)]

"""Fragmentation and the choice of nodes: by hand, and for every sequence of requests."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from jupyter_aliquot.gateway.planning.fragmentation import Fragmentation
from jupyter_aliquot.gateway.planning.jobs import DEVICE
from jupyter_aliquot.gateway.planning.node import Demand, Node
from jupyter_aliquot.gateway.planning.node_choice import BestFit, FragmentationGradient, Largest, NodeRule, Spread
from jupyter_aliquot.gateway.planning.node_pool import NodePool

RULES = ("best-fit", "spread", "fragmentation")
USUAL = [Demand(500), Demand(500), Demand(250), Demand(1000), Demand(2500)]


def a_pool(rule: str, *devices: int, usual: list[Demand] = USUAL) -> NodePool:
    nodes = [Node(f"n{at}", count) for at, count in enumerate(devices)]
    largest = Largest.of(nodes)
    rules: dict[str, NodeRule] = {
        "best-fit": BestFit(largest),
        "spread": Spread(largest),
        "fragmentation": FragmentationGradient(Fragmentation(usual), largest),
    }
    return NodePool(nodes, rules[rule])


def free(pool: NodePool) -> list[tuple[int, ...]]:
    return [node.free for node in pool.nodes]


def test_fragmentation_is_what_the_usual_requests_cannot_use() -> None:
    measure = Fragmentation([Demand(500), Demand(500), Demand(2000), Demand(0, cpu=4)])
    # Halves find the 400 unusable; two whole devices and a request without GPU find all of it unusable.
    assert measure.of(0, (1000, 400)) == pytest.approx(0.5 * 400 + 0.25 * 1400 + 0.25 * 1400)
    assert measure.of(0, (0, 0)) == 0.0


def test_a_node_without_the_cpu_is_fragmented_for_those_that_need_it() -> None:
    measure = Fragmentation([Demand(500, cpu=8000), Demand(500, cpu=1000)])
    assert measure.of(8000, (1000,)) == 0.0
    assert measure.of(4000, (1000,)) == pytest.approx(500)


def test_the_gradient_fills_a_started_device_and_spread_does_not() -> None:
    for rule, want in (("fragmentation", [(0, 1000)]), ("best-fit", [(0, 1000)]), ("spread", [(500, 500)])):
        pool = a_pool(rule, 2)
        pool.place(Demand(500))
        pool.place(Demand(500))
        assert [tuple(sorted(one)) for one in free(pool)] == want, rule


def test_two_and_a_half_take_two_whole_devices_and_half_of_a_third() -> None:
    pool = a_pool("fragmentation", 4)
    pool.place(Demand(500))
    placed = pool.place(Demand(2500))
    assert placed is not None
    assert sorted(free(pool)[0]) == [0, 0, 0, 1000], "the half goes to the device that is half taken"


def test_a_gang_takes_the_fewest_nodes_or_nothing() -> None:
    pool = a_pool("best-fit", 8, 8, 4, 4)
    placed = pool.place(Demand(18_000))
    assert placed is not None
    assert len(placed.nodes) == 3
    assert pool.free_milli == 6000
    before = free(pool)
    assert pool.place(Demand(12_000)) is None
    assert free(pool) == before
    pool.give_back(placed)
    assert pool.free_milli == pool.milli


def test_a_request_larger_than_the_cluster_is_placed_nowhere() -> None:
    pool = a_pool("spread", 2)
    assert pool.place(Demand(2001)) is None
    assert a_pool("spread").place(Demand(1)) is None


requests = st.lists(
    st.tuples(st.sampled_from((0, 100, 250, 460, 500, 1000, 1500, 2000, 2500, 4000, 9000)), st.booleans()), max_size=40
)


@pytest.mark.parametrize("rule", RULES)
@given(requests=requests)
@settings(max_examples=60, deadline=None)
def test_no_device_is_promised_beyond_what_it_has(rule: str, requests: list[tuple[int, bool]]) -> None:
    pool, again = a_pool(rule, 4, 4, 2), a_pool(rule, 4, 4, 2)
    held = []
    for milli, is_end in requests:
        if is_end and held:
            placed, twin = held.pop(0)
            pool.give_back(placed)
            again.give_back(twin)
            continue
        placed, twin = pool.place(Demand(milli)), again.place(Demand(milli))
        assert placed == twin, "the same requests get the same places"
        if placed is None:
            assert milli > 1000 or max(max(one) for one in free(pool)) < milli, "a device would have had room"
        else:
            assert sum(demand.milli for _, demand, _ in placed.shares) == milli
            held.append((placed, twin))
        assert all(0 <= part <= DEVICE for one in free(pool) for part in one)
        assert pool.free_milli == sum(map(sum, free(pool)))
    for placed, _ in held:
        pool.give_back(placed)
    assert pool.free_milli == pool.milli

"""Plans of moves: what fits after them, what no step does, and that none is smaller."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count

import pytest
from hypothesis import given, settings, strategies as st

from jupyter_aliquot.gateway.planning.fragmentation import Fragmentation
from jupyter_aliquot.gateway.planning.moves import (
    Gpu,
    Move,
    NodeGpus,
    Resident,
    Wanted,
    fits,
    plan_for_size,
    plan_to_pack,
    room_for,
)
from jupyter_aliquot.gateway.planning.node import Demand
from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE, Part

GIB = 1 << 30
CARD = 16 * GIB


def a_node(
    *cards: Iterable[tuple[str, int]],
    name: str = "node",
    stays: Iterable[str] = (),
    used: int = 0,
    rule: Oversubscription | None = None,
) -> NodeGpus:
    """Return a node with these kernels, as name and hundredths, on each of its GPUs."""
    gpus, residents = [], []
    for index, kernels in enumerate(cards):
        gpu = Gpu(f"GPU-{index}", index, "card", CARD)
        for kernel, hundredths in kernels:
            part = Part(gpu.uuid, index, hundredths, CARD * hundredths // WHOLE)
            gpu = gpu.with_part(part, True, 1)
            residents.append(Resident(kernel, (part,), True, used, "it is busy" if kernel in stays else ""))
        gpus.append(gpu)
    return NodeGpus(name, tuple(gpus), tuple(residents), rule or Oversubscription())


def moves_of(node: NodeGpus, hundredths: int, **more: int) -> list[tuple[str, str]]:
    return [(one.kernel_id, one.target) for one in plan_for_size([node], Wanted(hundredths, **more)).moves]


def test_two_halves_of_two_gpus_become_a_whole_one() -> None:
    node = a_node([("a", 50)], [("b", 50)])
    assert moves_of(node, 100) == [("a", "GPU-1")]


def test_a_size_that_fits_needs_no_plan() -> None:
    plan = plan_for_size([a_node([("a", 50)], [])], Wanted(100))
    assert (plan.moves, plan.reason, plan.node) == ((), "", "node")


def test_the_plan_with_fewer_bytes_is_taken_of_those_with_as_many_moves() -> None:
    node = a_node([("a", 50)], [("b", 50)])
    heavy = replace(node, residents=(replace(node.residents[0], memory_bytes=9), replace(node.residents[1])))
    assert moves_of(heavy, 100) == [("b", "GPU-0")]


def test_a_move_waits_for_the_room_that_another_one_makes() -> None:
    # 60 fits nowhere until the 30 has left GPU-1.
    node = a_node([("a", 60)], [("b", 30), ("c", 20)], [("d", 60)], stays="c")
    assert moves_of(node, 100) == [("b", "GPU-0"), ("d", "GPU-1")]


def test_a_busy_kernel_is_never_moved_and_its_reason_is_told() -> None:
    assert moves_of(a_node([("a", 50)], [("b", 50)], stays="a"), 100) == [("b", "GPU-0")]
    plan = plan_for_size([a_node([("a", 50)], [("b", 50)], stays="ab")], Wanted(100))
    assert not plan.moves
    assert "it is busy" in plan.reason


@pytest.mark.parametrize(
    ("node", "wanted", "word"),
    [
        (a_node([("a", 60)], [("b", 60)]), Wanted(100), "0.8 GPU is free there in all"),
        (a_node([("a", 50)], [("b", 50)]), Wanted(300), "never fits"),
        (a_node([("a", 60)], [("b", 60)], [("c", 60)]), Wanted(100), "no order of moves"),
        (
            a_node([("a", 90), ("b", 30)], [("c", 80), ("d", 30)], rule=Oversubscription(2.0, 2.0)),
            Wanted(100),
            "only to room that no other kernel has, on a GPU of its model, whatever the overcommit; there is 0 GPU and",
        ),
    ],
)
def test_the_reason_for_no_plan_is_told(node: NodeGpus, wanted: Wanted, word: str) -> None:
    plan = plan_for_size([node], wanted)
    assert not plan.moves
    assert word in plan.reason


def test_a_kernel_moves_to_a_gpu_of_its_own_model_alone() -> None:
    node = a_node([("a", 50)], [("b", 50)])
    other = replace(node, gpus=(node.gpus[0], replace(node.gpus[1], model="other")))
    assert not plan_for_size([other], Wanted(100)).moves


def test_nothing_moves_to_a_closed_gpu() -> None:
    node = a_node([("a", 50)], [("b", 50)], [])
    closed = replace(node, gpus=(*node.gpus[:2], replace(node.gpus[2], is_closed=True)))
    assert moves_of(closed, 100) == [("a", "GPU-1")]


def test_the_node_with_the_smallest_plan_is_taken() -> None:
    two = a_node([("a", 30), ("b", 30)], [("c", 40)], name="two")
    one = a_node([("d", 50)], [("e", 50)], name="one")
    assert plan_for_size([two, one], Wanted(100)).node == "one"


def test_overcommit_makes_no_room_for_a_move() -> None:
    """A kernel that moves gets room of its own: on a GPU with overcommit it would take turns from then on."""
    rule = Oversubscription(2.0, 2.0)
    node = a_node([("a", 50)], [("b", 80)], rule=rule)
    assert not room_for(node.gpus[1], node.residents[0], rule)


def test_packing_lowers_the_fragmentation_and_ends() -> None:
    usual = Fragmentation([Demand(1000), Demand(500)])
    node = a_node([("a", 50)], [("b", 50)], [("c", 30)], [("d", 20)])
    plan = plan_to_pack(node, usual)
    after = node.after(plan.moves)
    free = [[10 * gpu.free_hundredths for gpu in one.gpus] for one in (node, after)]
    assert usual.of(0, free[1]) < usual.of(0, free[0])
    assert fits(after, Wanted(200))
    assert plan_to_pack(after, usual).reason == "no move lowers its fragmentation"


SIZES = st.sampled_from([20, 25, 30, 50, 60, 75, 100])


@st.composite
def nodes(draw: st.DrawFn) -> NodeGpus:
    """Return a node of two or three GPUs with a few kernels, some of which stay."""
    names, cards, stays = count(), [], []
    for _ in range(draw(st.integers(2, 3))):
        card: list[tuple[str, int]] = []
        for size in draw(st.lists(SIZES, max_size=2)):
            if sum(one for _, one in card) + size <= WHOLE:
                card.append((f"k{next(names)}", size))
                stays += [card[-1][0]] if draw(st.integers(0, 4)) == 0 else []
        cards.append(card)
    node = a_node(*cards, stays=stays)
    amounts = [draw(st.integers(0, 3)) for _ in node.residents]
    residents = (replace(one, memory_bytes=amount) for one, amount in zip(node.residents, amounts, strict=True))
    return replace(node, residents=tuple(residents))


def all_steps(node: NodeGpus) -> list[Move]:
    """Return every move that is possible, by the definition alone."""
    return [
        Move(one.kernel_id, one.parts[0].uuid, gpu.uuid, one.memory_bytes)
        for one in node.residents
        for gpu in node.gpus
        if one.is_movable
        and gpu.uuid != one.parts[0].uuid
        and gpu.reserved.hundredths + one.parts[0].hundredths <= WHOLE
        and gpu.reserved.bytes + one.parts[0].reserved_bytes <= gpu.memory_bytes
    ]


def smallest(node: NodeGpus, wanted: Wanted) -> tuple[int, int] | None:
    """Return the moves and bytes of the smallest plan, by looking at every arrangement."""
    numbers, done = count(), set()
    heap = [(0, 0, next(numbers), node)]
    while heap:
        moves, amount, _, now = heappop(heap)
        key = tuple(one.parts for one in now.residents)
        if key in done:
            continue
        done.add(key)
        if fits(now, wanted):
            return moves, amount
        for step in all_steps(now):
            heappush(heap, (moves + 1, amount + step.memory_bytes, next(numbers), now.after((step,))))
    return None


@settings(max_examples=150, deadline=None)
@given(nodes(), st.sampled_from([25, 50, 75, 100, 150, 200]))
def test_a_plan_is_as_small_as_any_and_no_step_overcommits(node: NodeGpus, hundredths: int) -> None:
    wanted = Wanted(hundredths)
    plan = plan_for_size([node], wanted)
    assert plan == plan_for_size([node], wanted)
    want = smallest(node, wanted)
    found = (len(plan.moves), sum(one.memory_bytes for one in plan.moves))
    assert found == (want or (0, 0))
    assert bool(plan.reason) == (want is None)
    now = node
    for move in plan.moves:
        assert move in all_steps(now)  # its room is there before it runs
        now = now.after((move,))
        assert all(gpu.reserved.hundredths <= WHOLE and gpu.reserved.bytes <= CARD for gpu in now.gpus)
    assert want is None or fits(now, wanted)


@settings(max_examples=60, deadline=None)
@given(nodes())
def test_packing_never_raises_the_fragmentation(node: NodeGpus) -> None:
    usual = Fragmentation(Demand(10 * one.parts[0].hundredths) for one in node.residents)
    plan, now = plan_to_pack(node, usual), node
    for move in plan.moves:
        before = usual.of(0, (10 * gpu.free_hundredths for gpu in now.gpus))
        assert move in all_steps(now)
        now = now.after((move,))
        assert usual.of(0, (10 * gpu.free_hundredths for gpu in now.gpus)) < before

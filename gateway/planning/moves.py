"""Moves of kernels between the GPUs of one node, after which a size fits there. Pure and deterministic.

A plan has the fewest moves, of such plans the fewest bytes, and of these the first by name. Each move
finds its room before it runs, as its kernel keeps the old part until it has the new one. The search
is A*: its estimate is how many kernels have to leave the GPU that lacks least.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription, Reserved, device_state
from jupyter_aliquot.gpu_hook.placement.placement import (
    WHOLE,
    DeviceState,
    Part,
    Refusal,
    format_bytes,
    format_gpus,
    place,
)

from .fragmentation import Fragmentation
from .jobs import DEVICE

# A search looks at so many arrangements of kernels, which takes about a second.
MOST_ARRANGEMENTS = 10_000
# A plan without a wanted size has so many moves at most.
MOST_MOVES = 16
_MILLI = DEVICE // WHOLE
_LEAST_GAIN = 1e-9  # of fragmentation: less is rounding


@dataclass(frozen=True)
class Gpu:
    """One GPU, and all that is reserved on it. ``is_closed``: nothing new starts there, and none moves there."""

    uuid: str
    index: int
    model: str
    memory_bytes: int
    reserved: Reserved = field(default_factory=Reserved)
    context_bytes: int = 0
    is_closed: bool = False

    def with_part(self, part: Part, is_normal: bool, sign: int) -> Gpu:
        """Return it with one part more; ``sign`` -1: with one less."""
        return replace(self, reserved=self.reserved.plus(part, is_normal, sign))

    @property
    def free_hundredths(self) -> int:
        """The hundredths that no kernel has, without overcommit."""
        return 0 if self.is_closed else max(0, WHOLE - self.reserved.hundredths)


@dataclass(frozen=True)
class Resident:
    """A kernel on the node. ``stays_because`` is why it cannot move; empty: it can.

    ``memory_bytes`` are copied if it moves. Only a kernel on one GPU moves.
    """

    kernel_id: str
    parts: tuple[Part, ...]
    is_normal: bool = True
    memory_bytes: int = 0
    stays_because: str = ""

    @property
    def is_movable(self) -> bool:
        return not self.stays_because and len(self.parts) == 1


@dataclass(frozen=True)
class NodeGpus:
    """A node: its GPUs, the rule by which their parts are reserved, and its kernels."""

    name: str
    gpus: tuple[Gpu, ...]
    residents: tuple[Resident, ...] = ()
    rule: Oversubscription = field(default_factory=Oversubscription)

    def after(self, moves: Iterable[Move]) -> NodeGpus:
        """Return the node after these moves."""
        gpus = {gpu.uuid: gpu for gpu in self.gpus}
        residents = {one.kernel_id: one for one in self.residents}
        for move in moves:
            one = residents[move.kernel_id]
            part = replace(one.parts[0], uuid=move.target, index=gpus[move.target].index)
            gpus[move.source] = gpus[move.source].with_part(one.parts[0], one.is_normal, -1)
            gpus[move.target] = gpus[move.target].with_part(part, one.is_normal, 1)
            residents[move.kernel_id] = replace(one, parts=(part,))
        return replace(self, gpus=tuple(gpus.values()), residents=tuple(residents.values()))


@dataclass(frozen=True)
class Wanted:
    """A size that is to fit: the values of a request."""

    hundredths: int
    memory_limit: int | None = None
    workload_class: str = "production"
    residency: str = ""


@dataclass(frozen=True)
class Move:
    """One move: a kernel leaves a GPU for another of its node, and so many bytes are copied."""

    kernel_id: str
    source: str
    target: str
    memory_bytes: int = 0


@dataclass(frozen=True)
class MovePlan:
    """The moves on a node, in order. Without any, ``reason`` says why; empty: the size fits already."""

    node: str
    moves: tuple[Move, ...] = ()
    reason: str = ""


def room_for(gpu: Gpu, one: Resident, rule: Oversubscription) -> bool:
    """Return whether a kernel's part may move to a GPU: it gets room there that no other kernel has."""
    part = one.parts[0]
    state = _state(gpu, rule, "production" if one.is_normal else "opportunistic")
    hundredths, amount = state.backed
    return (
        not gpu.is_closed
        and min(state.free_hundredths, hundredths) >= part.hundredths
        and min(state.free_bytes, amount) >= part.reserved_bytes
    )


def fits(node: NodeGpus, wanted: Wanted) -> bool:
    """Return whether the size could start on the node now."""
    states = [_state(gpu, node.rule, wanted.workload_class) for gpu in node.gpus if not gpu.is_closed]
    placed = place(states, wanted.hundredths, wanted.memory_limit, residency=wanted.residency)
    return not isinstance(placed, Refusal)


def could_ever_fit(node: NodeGpus, wanted: Wanted) -> bool:
    """Return whether the size would fit on the node without kernels, and with all its GPUs open."""
    gpus = tuple(replace(gpu, reserved=Reserved(), is_closed=False) for gpu in node.gpus)
    return fits(replace(node, gpus=gpus), wanted)


def plan_for_size(nodes: Sequence[NodeGpus], wanted: Wanted) -> MovePlan:
    """Return the smallest plan after which the size fits on one of the nodes, or why there is none."""
    ready = [node.name for node in nodes if fits(node, wanted)]
    if ready:
        return MovePlan(min(ready))
    plans = [_Search(node, wanted).plan() for node in nodes]
    found = [plan for plan in plans if plan.moves]
    if found:
        return min(found, key=lambda plan: (len(plan.moves), sum(one.memory_bytes for one in plan.moves), plan.node))
    if not plans:
        return MovePlan("", reason="no node is open")
    return MovePlan("", reason="; ".join(f"{plan.node or 'this node'}: {plan.reason}" for plan in plans))


def plan_to_pack(node: NodeGpus, usual: Fragmentation) -> MovePlan:
    """Return moves that lower the node's fragmentation: at each step the one that lowers it most.

    Of moves alike, that with the fewest bytes is taken, then the first by name. A kernel moves once.
    """
    moves: list[Move] = []
    now, moved = node, set[str]()
    while len(moves) < MOST_MOVES:
        before = _fragmentation(now, usual)
        steps = [step for step in _steps(now) if step.kernel_id not in moved]
        gains = [(before - _fragmentation(now.after((step,)), usual), step) for step in steps]
        better = [(gain, step) for gain, step in gains if gain > _LEAST_GAIN]
        if not better:
            break
        _, best = min(better, key=lambda one: (-round(one[0], 6), one[1].memory_bytes, *_name(one[1])))
        moves.append(best)
        moved.add(best.kernel_id)
        now = now.after((best,))
    return MovePlan(node.name, tuple(moves), "" if moves else "no move lowers its fragmentation")


def _fragmentation(node: NodeGpus, usual: Fragmentation) -> float:
    return usual.of(0, (_MILLI * gpu.free_hundredths for gpu in node.gpus))


def _name(move: Move) -> tuple[str, str]:
    return move.kernel_id, move.target


def _state(gpu: Gpu, rule: Oversubscription, workload_class: str) -> DeviceState:
    context = gpu.context_bytes
    words = (gpu.uuid, gpu.index, gpu.memory_bytes, gpu.reserved, rule, workload_class)
    return device_state(*words, context_bytes=context)


def _steps(node: NodeGpus) -> Iterator[Move]:
    """Yield the moves that are possible now; of kernels alike on one GPU, only those of the first."""
    gpus, seen = {gpu.uuid: gpu for gpu in node.gpus}, set[object]()
    for one in sorted(node.residents, key=lambda one: one.kernel_id):
        if not one.is_movable:
            continue
        if _kind(one) in seen:
            continue
        seen.add(_kind(one))
        source = gpus[one.parts[0].uuid]
        for gpu in node.gpus:
            is_alike = (gpu.model, gpu.memory_bytes) == (source.model, source.memory_bytes)
            if gpu.uuid != source.uuid and is_alike and room_for(gpu, one, node.rule):
                yield Move(one.kernel_id, source.uuid, gpu.uuid, one.memory_bytes)


_Cost = tuple[int, int, int, tuple[tuple[str, str], ...]]


class _Search:
    """The search on one node for one size that does not fit there yet."""

    def __init__(self, node: NodeGpus, wanted: Wanted) -> None:
        self._node = node
        self._wanted = wanted

    def plan(self) -> MovePlan:
        """Return the smallest plan, or why there is none."""
        if why := self._why_in_vain():
            return MovePlan(self._node.name, reason=why)
        heap: list[tuple[_Cost, int, tuple[Move, ...]]] = []
        done, looked = set[object](), 0
        heappush(heap, ((self._estimate(self._node), 0, 0, ()), 0, ()))
        while heap:
            _, _, moves = heappop(heap)
            now = self._node.after(moves)
            key = _key(now)
            if key in done:
                continue
            done.add(key)
            if fits(now, self._wanted):
                return MovePlan(self._node.name, moves)
            for step in _steps(now):
                looked += 1
                if looked > MOST_ARRANGEMENTS:
                    why = f"none of the first {MOST_ARRANGEMENTS} arrangements of its kernels makes room"
                    return MovePlan(self._node.name, reason=why)
                self._push(heap, looked, now, (*moves, step))
        return MovePlan(self._node.name, reason=self._why_none())

    def _why_none(self) -> str:
        """Return the reason after all orders of moves were looked at: the room that moves could use."""
        free = [
            f"{format_gpus(hundredths)} and {format_bytes(amount)} of gpu{gpu.index}"
            for gpu in self._node.gpus
            if not gpu.is_closed
            for hundredths, amount in [_state(gpu, self._node.rule, "production").backed]
        ]
        limit = ", whatever the overcommit" if self._node.rule.most > 1 else ""
        return (
            "no order of moves makes room. A kernel moves only to room that no other kernel has, on a GPU of its "
            f"model{limit}; there is {', '.join(free)}"
        )

    def _push(
        self, heap: list[tuple[_Cost, int, tuple[Move, ...]]], number: int, before: NodeGpus, moves: tuple[Move, ...]
    ) -> None:
        left = self._estimate(before.after(moves[-1:]))
        if left > len(self._node.residents):
            return
        amount = sum(one.memory_bytes for one in moves)
        heappush(heap, ((len(moves) + left, amount, len(moves), tuple(map(_name, moves))), number, moves))

    def _estimate(self, node: NodeGpus) -> int:
        """Return how many moves are needed at least: more than there are kernels where none helps."""
        whole, rest = divmod(self._wanted.hundredths, WHOLE)
        needed, sizes = WHOLE if whole else rest, _movable_sizes(node)
        never = len(node.residents) + 1
        counts = [
            _least_count(needed - free, sizes.get(uuid, ()), never) for uuid, free in self._free(node.gpus).items()
        ]
        return sum(sorted(counts)[: max(1, whole)])

    def _free(self, gpus: Iterable[Gpu]) -> Mapping[str, int]:
        """Return the hundredths of each open GPU that the request may reserve."""
        states = (_state(gpu, self._node.rule, self._wanted.workload_class) for gpu in gpus if not gpu.is_closed)
        return {state.uuid: state.free_hundredths for state in states}

    def _why_in_vain(self) -> str:
        """Return why no search can find a plan; empty: it may."""
        node, wanted = self._node, self._wanted
        emptied = replace(node, gpus=tuple(replace(gpu, reserved=Reserved()) for gpu in node.gpus))
        if not fits(emptied, wanted):
            return "the size never fits there"
        free = sum(self._free(node.gpus).values())
        # A move changes this sum where classes have different ratios.
        if node.rule.production == node.rule.opportunistic and free < wanted.hundredths:
            return f"{format_gpus(free)} is free there in all"
        if not any(one.is_movable for one in node.residents):
            why = next((one.stays_because for one in node.residents), "") or "none is on one GPU alone"
            return f"no kernel can move: {why}"
        return ""


def _least_count(lacking: int, sizes: Sequence[int], never: int) -> int:
    """Return how many parts of these sizes make up what lacks, the largest first."""
    for count, size in enumerate([0, *sorted(sizes, reverse=True)]):
        lacking -= size
        if lacking <= 0:
            return count
    return never


def _movable_sizes(node: NodeGpus) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = {}
    for one in node.residents:
        if one.is_movable:
            found.setdefault(one.parts[0].uuid, []).append(one.parts[0].hundredths)
    return found


def _key(node: NodeGpus) -> object:
    """Return the same for arrangements in which kernels alike are where others are."""
    return tuple(sorted((_kind(one) for one in node.residents if one.is_movable), key=repr))


def _kind(one: Resident) -> tuple[tuple[Part, ...], bool, int]:
    return one.parts, one.is_normal, one.memory_bytes

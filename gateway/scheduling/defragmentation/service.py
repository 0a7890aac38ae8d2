"""Plans of moves for handlers: what a plan would be now, and the run of one that was shown.

It runs one plan at a time, and one move of it at a time. A move that fails ends the run: the moves
after it count on its room. So does the loss of the lead: the next replica knows nothing of the run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jupyter_aliquot.gateway.base.clock import Clock, iso_moment
from jupyter_aliquot.gateway.base.lead import ALONE, CUT_OFF, Lead, lead_error
from jupyter_aliquot.gateway.planning.moves import Move, NodeGpus
from jupyter_aliquot.gateway.reports.moves import MovedGpu, MovePlan, MoveRun, PlannedMove, StayingKernel, WantedSize
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gateway.sizes.grammar import parse_size, size_suffix
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE, format_bytes, format_gpus
from jupyter_aliquot.gpu_hook.waiting import end_task
from jupyter_aliquot.provisioner.errors import AliquotError, GrantError, RequestError, SizeNameError
from jupyter_aliquot.provisioner.resources import Request

from .plan import ShownPlan, Size, find_too_small, make_plan
from .state import open_nodes, owners

_SIZE_MARK = "gpu-"
_NO_NAMES = ("", "")


@dataclass(frozen=True)
class MoveSources:
    """The state that a plan is made of, and the acts of its run.

    ``move`` moves a kernel to a GPU of its node, and returns when it is there; it raises AliquotError.
    ``tell`` writes the audit: the node, who ran the plan, and a line about a move. ``labels`` returns the
    present names of notebooks by kernel id.
    """

    admission: Callable[[], AdmissionSnapshot]
    statuses: Callable[[], Iterable[NodeStatus]]
    residency_of: Callable[[Request], str]
    move: Callable[[str, str], Awaitable[object]]
    tell: Callable[[str, str, str], None]
    labels: Callable[[], Mapping[str, str]] = dict
    lead: Lead = ALONE


@dataclass(frozen=True)
class _Run:
    by: str
    since: float
    node: str
    digest: str
    moves: tuple[PlannedMove, ...]
    is_over: bool = False
    reason: str = ""  # why it ended before its end

    def with_outcome(self, place: int, outcome: str, reason: str = "") -> _Run:
        moves = list(self.moves)
        moves[place] = {**moves[place], "outcome": outcome, "reason": reason or None}
        return replace(self, moves=tuple(moves))

    def ended(self, reason: str) -> _Run:
        """Return it at its end; the moves that had not begun are dropped for the reason."""
        run = self
        for place, told in enumerate(self.moves):
            if told["outcome"] == "planned":
                run = run.with_outcome(place, "dropped", reason)
        return replace(run, is_over=True, reason=reason)

    def report(self) -> MoveRun:
        return {
            "state": "over" if self.is_over else "running",
            "by": self.by,
            "since": iso_moment(self.since),
            "node": self.node,
            "digest": self.digest,
            "reason": self.reason or None,
            "moves": list(self.moves),
        }


class Defragmentation:
    """The plans of this gateway. Made by the extension; handlers find it in Sources."""

    def __init__(self, sources: MoveSources, clock: Clock, log: logging.Logger) -> None:
        self._sources = sources
        self._clock = clock
        self._log = log
        self._run: _Run | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def node_names(self) -> list[str]:
        """The nodes that a plan may be asked for."""
        return sorted(one.name for one in self._sources.admission().ledger.nodes if one.name)

    async def report(self, size: str = "", node: str = "") -> MovePlan:
        """Return the plan for a size, without one for the head of the queue, and else against fragmentation.

        *node*: on that node alone. Raises RequestError for a size that is none.
        """
        shown = await self._plan(size, node)
        names = owners(self._sources.admission().ledger, self._sources.labels())
        return {
            "size": None if shown.size is None else _size_report(shown.size),
            "node": None if shown.node is None else shown.node.name,
            "digest": shown.digest or None,
            "reason": shown.plan.reason or None,
            "moves": _move_reports(shown, names),
            "gpus": _gpu_reports(shown),
            "stays": _stays(shown.nodes, names),
            "run": None if self._run is None else self._run.report(),
        }

    async def begin(self, digest: str, by: str, size: str = "", node: str = "") -> None:
        """Begin the plan that has this digest. Raises GrantError where none has it now, and what `report` raises.

        Raises EngineUnavailableError while another replica may lead.
        """
        if not self._sources.lead.is_current():
            raise lead_error("a run of moves")
        shown = await self._plan(size, node)
        if self._task is not None and not self._task.done():
            raise GrantError("Another plan of moves runs. Look at it, and plan again when it is over")
        if shown.node is None or not digest or shown.digest != digest:
            why = f"the plan is {shown.digest} now" if shown.digest else shown.plan.reason or "no move is needed"
            raise GrantError(f"The plan {digest[:20]} is not made any more: {why}. Nothing moved; look at it again")
        moves = tuple(_move_reports(shown, owners(self._sources.admission().ledger, self._sources.labels())))
        self._run = _Run(by, self._clock.wall(), shown.node.name, digest, moves)
        self._task = asyncio.create_task(self._move_all(shown.plan.moves), name="aliquot-moves")

    async def stop(self) -> None:
        """End the run; the agent ends a move that has begun."""
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)

    async def _plan(self, size: str, node: str) -> ShownPlan:
        admission = self._sources.admission()
        nodes = open_nodes(admission.ledger, self._sources.statuses(), node)
        wanted = self._read(size) if size else _head(admission)
        if size and wanted is not None and (largest := find_too_small(nodes, wanted)) is not None:
            raise RequestError(_too_small_text(wanted, largest, is_named=bool(node)))
        return await asyncio.to_thread(make_plan, nodes, wanted)

    def _read(self, size: str) -> Size:
        """Read ``gpu-0.5-8g`` or ``0.5-8g``. Raises RequestError."""
        try:
            request = parse_size(size.lower().removeprefix(_SIZE_MARK))
        except SizeNameError as error:
            raise RequestError(str(error)) from None
        return Size(replace(request, residency=self._sources.residency_of(request)))

    async def _move_all(self, moves: Sequence[Move]) -> None:
        run, end = self._run, ""
        assert run is not None  # begin made it
        for place, move in enumerate(moves):
            if not self._sources.lead.is_current():
                end = CUT_OFF
                self._log.warning("node=%s plan=%s moves=ended reason=%r", run.node, run.digest, end)
                break
            self._run = run = run.with_outcome(place, "running")
            why = self._why_closed(run.node, move.target)
            outcome, reason = ("failed", why) if why else await self._move(move)
            self._run = run = run.with_outcome(place, outcome, reason)
            told = run.moves[place]
            line = f"gpu{told['source_index']} to gpu{told['target_index']}: {reason or outcome}"
            self._sources.tell(run.node, run.by, f"{move.kernel_id} from {line}")
            if outcome != "done":
                end = "a move failed"
                break
        self._run = run.ended(end)

    def _why_closed(self, node: str, target: str) -> str:
        """Return why nothing may move to a GPU any more: an earlier move took its time; empty: it may."""
        nodes = open_nodes(self._sources.admission().ledger, self._sources.statuses(), node)
        is_open = any(gpu.uuid == target and not gpu.is_closed for one in nodes for gpu in one.gpus)
        return "" if is_open else "its new GPU or the node takes no kernels any more. Plan again"

    async def _move(self, move: Move) -> tuple[str, str]:
        try:
            await self._sources.move(move.kernel_id, move.target)
        except AliquotError as error:
            return "failed", str(error)
        except Exception as error:
            self._log.exception("kernel=%s move=broke", move.kernel_id)
            return "failed", f"a defect of the gateway: {error}; its log says how"
        return "done", ""


def _head(admission: AdmissionSnapshot) -> Size | None:
    """Return the size of the first request that waits to start."""
    first = next(iter(sorted(admission.starts, key=lambda entry: entry.position)), None)
    if first is None:
        return None
    pending = next((one for one in admission.pending if one.kernel_id == first.kernel_id), None)
    models = () if pending is None else tuple(pending.wish.models)
    return Size(first.request, first.kernel_id, models)


def _too_small_text(size: Size, largest: NodeGpus, *, is_named: bool) -> str:
    """Return why no moves make room on the *largest* node; ``is_named``: the user named that one alone."""
    count, memory = len(largest.gpus), format_bytes(max(gpu.memory_bytes for gpu in largest.gpus))
    name, gpus = _size_report(size)["size"], f"{format_gpus(count * WHOLE)} of {memory}"
    if is_named:
        return (
            f"Requested moves on {largest.name} that make room for {name}, but it does not fit that node even without "
            f"kernels: the node has {gpus}. Choose a smaller size, or another node"
        )
    return (
        f"Requested moves that make room for {name}, but no open node fits it even without kernels: "
        f"the largest, {largest.name}, has {gpus}. Choose a smaller size"
    )


def _size_report(size: Size) -> WantedSize:
    try:
        name = size_suffix(size.request)
    except SizeNameError:
        name = f"{_SIZE_MARK}{size.request.gpus}"
    return {"size": name, "gpus": float(size.request.gpus), "kernel_id": size.kernel_id or None}


def _move_reports(shown: ShownPlan, names: Mapping[str, tuple[str, str]]) -> list[PlannedMove]:
    index = {} if shown.node is None else {gpu.uuid: gpu.index for gpu in shown.node.gpus}
    return [
        {
            "kernel_id": move.kernel_id,
            "owner": names.get(move.kernel_id, _NO_NAMES)[0],
            "label": names.get(move.kernel_id, _NO_NAMES)[1],
            "source": move.source,
            "source_index": index[move.source],
            "target": move.target,
            "target_index": index[move.target],
            "memory_bytes": move.memory_bytes,
            "outcome": "planned",
            "reason": None,
        }
        for move in shown.plan.moves
    ]


def _gpu_reports(shown: ShownPlan) -> list[MovedGpu]:
    if shown.node is None:
        return []
    after = shown.node.after(shown.plan.moves)
    return [
        {
            "uuid": before.uuid,
            "index": before.index,
            "free_gpus": before.free_hundredths / WHOLE,
            "free_gpus_after": then.free_hundredths / WHOLE,
        }
        for before, then in zip(shown.node.gpus, after.gpus, strict=True)
    ]


def _stays(nodes: Sequence[NodeGpus], names: Mapping[str, tuple[str, str]]) -> list[StayingKernel]:
    return [
        {
            "kernel_id": one.kernel_id,
            "owner": names.get(one.kernel_id, _NO_NAMES)[0],
            "label": names.get(one.kernel_id, _NO_NAMES)[1],
            "node": node.name,
            "reason": one.stays_because,
        }
        for node in nodes
        for one in node.residents
        if one.stays_because
    ]

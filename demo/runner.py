"""The demo: notebooks share one GPU in three acts.

Three share one GPU, two have two priorities, two have the whole GPU in turns. The module runs the
acts. EphemeralStack has the processes, notebook.py the notebooks, claims.py the claims.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager

from jupyter_aliquot.gateway.kernelspecs.installed import install_sizes
from jupyter_aliquot.gateway.kernelspecs.manager import SizedKernelSpecManager
from jupyter_aliquot.gateway.serverapp.ephemeral_stack import EphemeralStack
from jupyter_aliquot.gpu_hook.client.client import AgentClient
from jupyter_aliquot.gpu_hook.client.reports import KernelStatus, NodeStatus
from jupyter_aliquot.provisioner.errors import AliquotError
from jupyter_aliquot.provisioner.resources import Bytes

from . import oversubscription as demo_turns, two_classes as demo_pauses
from .claims import Claim, Reclaim, Seen, check_claims
from .notebook import NotebookRun, Part, Report

PARTS = (
    Part("kernel 1", "python3.gpu-0.5", "0.5", frozenset({"greedy", "long"})),
    Part("kernel 2", "python3.gpu-0.25", "0.25", frozenset({"long"})),
    Part("kernel 3", "python3.gpu-0.25", "0.25", frozenset({"greedy"})),
)
GREEDY, VICTIM = "kernel 2", "kernel 3"
LONG_CELL = "long"

_MID_CELL_SECONDS = 90.0
_MID_CELL_BUSY_SECONDS = 0.3
_RECLAIM_PATIENCE_SECONDS = 10.0
_EMPTY_SECONDS = 10.0
_LOOK_SECONDS = 0.005


class DemoError(AliquotError):
    """The demo could not run."""


@dataclass(frozen=True)
class Result:
    """All observations, and the claims about them."""

    node: NodeStatus
    kernels: list[Seen]
    claims: list[Claim]
    seconds: float

    @property
    def all_hold(self) -> bool:
        return all(claim.holds for claim in self.claims)


async def hold_demo(
    stack: EphemeralStack, notebook: Path, more: Path | None, report: Report, say: Callable[[str], None]
) -> Result:
    """Run the demo inside a stack that answers. Raises DemoError when a kernel cannot start.

    ``more``: the folder with the notebooks of the acts after the first; None leaves those out.
    """
    started = time.monotonic()
    runs = [NotebookRun(part, notebook, stack.log_path(part.name.replace(" ", "-")), report) for part in PARTS]
    victim = next(run for run in runs if run.part.name == VICTIM)
    async with await AgentClient.connect(stack.runtime.path) as agent:
        tasks: list[asyncio.Task[None]] = []
        try:
            await _start_all(runs)
            tasks += [asyncio.create_task(run.run()) for run in runs]
            before, reclaim = await _kill_mid_cell(agent, victim, runs, say)
            for run in runs:
                run.may_finish.set()
            await asyncio.wait(tasks)
            node, granted = await agent.status(), await stack.granted()
        finally:
            await _end_all(runs, tasks)
        pauses, turns = await _more_acts(stack, agent, more, say)
        left = await _what_is_left(agent)
    by_id = {kernel.kernel_id: kernel for kernel in node.kernels} | {before.kernel_id: before}
    kernels = [_seen(run, by_id.get(run.kernel_id)) for run in runs]
    claims = check_claims(kernels, granted, reclaim, left, pauses, turns)
    return Result(node, kernels, claims, time.monotonic() - started)


async def _more_acts(
    stack: EphemeralStack, agent: AgentClient, more: Path | None, say: Callable[[str], None]
) -> tuple[demo_pauses.Pauses, demo_turns.Turns]:
    pauses = demo_pauses.Pauses(reason="you named another notebook")
    turns = demo_turns.Turns(reason=pauses.reason)
    if more is not None:
        pauses = await demo_pauses.fill_pauses(stack, agent, more / demo_pauses.NOTEBOOK, say)
        turns = await demo_turns.take_turns(stack, agent, more / demo_turns.NOTEBOOK, say)
    if pauses.reason:
        say(f"the notebooks of two priorities are left out: {pauses.reason}")
    if turns.reason:
        say(f"two owners of the whole GPU are left out: {turns.reason}")
    return pauses, turns


def provide_kernelspecs(stack: EphemeralStack) -> None:
    """Make the parts' kernelspecs readable from disk.

    They are in the stack's folder where they are not installed.
    """
    wanted = {part.kernelspec for part in (*PARTS, *demo_pauses.PARTS, *demo_turns.PARTS)}
    if wanted <= set(KernelSpecManager().find_kernel_specs()):
        return
    folder = stack.runtime.path / "data"
    install_sizes(SizedKernelSpecManager(), folder / "kernels")
    os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, (str(folder), os.environ.get("JUPYTER_PATH"))))


async def _start_all(runs: Sequence[NotebookRun]) -> None:
    outcomes = await asyncio.gather(*(run.start() for run in runs), return_exceptions=True)
    for run, outcome in zip(runs, outcomes, strict=True):
        if isinstance(outcome, Exception):
            log = run.log.read_text(errors="replace").strip() if run.log.exists() else ""
            tail = "\n".join(log.splitlines()[-8:])
            raise DemoError(
                f"{run.part.name} ({run.part.kernelspec}) did not start: {outcome}\n{tail}".rstrip()
            ) from None
        if outcome is not None:
            raise outcome


async def _kill_mid_cell(
    agent: AgentClient, victim: NotebookRun, runs: Sequence[NotebookRun], say: Callable[[str], None]
) -> tuple[KernelStatus, Reclaim | None]:
    """Kill the victim while its long cell uses the GPU.

    Returns its last status, and the release of its memory.
    """
    before = await _until_mid_cell(agent, victim, runs)
    if victim.is_waiting.is_set():  # it ended before its time; the claims will say so
        return before, None
    if victim.pid not in before.pids:
        raise DemoError(f"the node agent knows processes {before.pids} of {victim.part.name}, not {victim.pid}")
    held = Bytes(sum(device.charged_bytes for device in before.devices))
    say(f"{victim.part.name} holds {held} and is in its long cell: kill -9 {victim.pid}")
    started = time.monotonic()
    os.kill(victim.pid, signal.SIGKILL)
    while time.monotonic() - started < _RECLAIM_PATIENCE_SECONDS:
        node = await agent.status()
        seconds = time.monotonic() - started
        if _is_given_back(node, victim.kernel_id):
            say(f"its memory was free after {seconds * 1000:.0f} ms")
            return before, Reclaim(held, seconds)
        await asyncio.sleep(_LOOK_SECONDS)
    return before, Reclaim(held, None)


async def _until_mid_cell(agent: AgentClient, victim: NotebookRun, runs: Sequence[NotebookRun]) -> KernelStatus:
    """Wait until the victim's long cell has used the GPU for a while.

    The others have work on the GPU, too.
    """
    deadline = time.monotonic() + _MID_CELL_SECONDS
    begin: float | None = None
    while True:
        kernels = {kernel.kernel_id: kernel for kernel in (await agent.status()).kernels}
        status = kernels.get(victim.kernel_id)
        if status is None:
            raise DemoError(f"the node agent does not know {victim.part.name} ({victim.kernel_id})")
        busy = sum(device.busy_seconds for device in status.devices)
        if victim.current == LONG_CELL and victim.printed(LONG_CELL):
            begin = busy if begin is None else begin
            others_wait = all(run.is_waiting.is_set() for run in runs if run is not victim)
            if others_wait and busy - begin >= _MID_CELL_BUSY_SECONDS:
                return status
        if victim.is_waiting.is_set() or time.monotonic() > deadline:
            return status
        await asyncio.sleep(0.05)


def _is_given_back(node: NodeStatus, kernel_id: str) -> bool:
    """Return whether neither the kernel nor its device is charged for it any more."""
    charged = {kernel.kernel_id: sum(device.charged_bytes for device in kernel.devices) for kernel in node.kernels}
    return charged.pop(kernel_id, 0) == 0 and sum(d.charged_bytes for d in node.devices) == sum(charged.values())


async def _what_is_left(agent: AgentClient) -> str:
    """Wait until the ledger is empty.

    Returns what is left in it when the time is over; empty for nothing.
    """
    deadline = time.monotonic() + _EMPTY_SECONDS
    while True:
        node = await agent.status()
        charged = Bytes(sum(device.charged_bytes for device in node.devices))
        reserved = Bytes(sum(device.reserved_bytes for device in node.devices))
        if not node.kernels and not charged and not reserved:
            return ""
        if time.monotonic() > deadline:
            return f"{len(node.kernels)} kernels, {charged} charged, {reserved} reserved"
        await asyncio.sleep(0.05)


async def _end_all(runs: Sequence[NotebookRun], tasks: Sequence[asyncio.Task[None]]) -> None:
    """End the kernels, then wait for the runs, which notice it."""
    await asyncio.gather(*(run.end_kernel() for run in runs))
    if tasks:
        await asyncio.wait(tasks)
    for run in runs:
        run.close()


def _seen(run: NotebookRun, status: KernelStatus | None) -> Seen:
    return Seen(
        name=run.part.name,
        gpus=run.part.gpus,
        is_greedy=run.part.name == GREEDY,
        is_victim=run.part.name == VICTIM,
        is_finished=run.is_finished,
        is_dead=run.is_dead,
        error=run.error,
        outputs=run.outputs,
        status=status,
    )

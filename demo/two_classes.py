"""The demo's act of two priorities: one notebook pauses between steps, another fills the pauses.

It runs the notebooks; claims.py has the claims. Where nothing paces launches the demo leaves it
out, and says so.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gateway.serverapp.ephemeral_stack import EphemeralStack
from jupyter_aliquot.gpu_hook.client.client import AgentClient
from jupyter_aliquot.gpu_hook.client.compute_reports import ComputeStatus
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus

from .notebook import NotebookRun, Part, on_stage

NOTEBOOK = "pauses.ipynb"
NORMAL = Part("normal priority", "python3.gpu-0.5", "0.5", frozenset({"low-priority"}))
LOW = Part("low priority", "python3.gpu-0.25-low", "0.25", frozenset({"normal-priority"}))
PARTS = (NORMAL, LOW)

_FILLING_SECONDS = 0.2
_PATIENCE_SECONDS = 60.0
_SAID = re.compile(r"([\d.]+) times as long; paused ([\d.]+) s")


@dataclass(frozen=True)
class Pauses:
    """The observations while both worked.

    ``slowed``: the normal kernel's steps against alone; ``paused``: its pauses, seconds.

    ``filled`` and ``throttled``: GPU time of the low kernel, and for how long its launches waited, in
    seconds of then. ``reason``: why the act was left out; ``error``: what went wrong in it; empty
    where nothing did.
    """

    slowed: float = 0.0
    paused: float = 0.0
    filled: float = 0.0
    throttled: float = 0.0
    reason: str = ""
    error: str = ""


def reason_against(node: NodeStatus) -> str:
    """Return why no kernel can be held back here; empty where it can."""
    if not any(actuator.name == "pacing" and actuator.in_force for actuator in node.actuators):
        return "nothing paces launches here"
    return ""


async def fill_pauses(stack: EphemeralStack, agent: AgentClient, notebook: Path, say: Callable[[str], None]) -> Pauses:
    """Run the normal kernel alone, and then next to the low one, which has begun by then.

    Raises the errors of a kernel's start.
    """
    reason = reason_against(await agent.status())
    if reason:
        return Pauses(reason=reason)
    runs = [NotebookRun(part, notebook, stack.log_path(part.name.replace(" ", "-")), _silent) for part in PARTS]
    normal, low = runs
    late = f"the two notebooks were not done within {_PATIENCE_SECONDS:.0f} s"
    async with on_stage(runs, late) as tasks:
        say("two more notebooks: normal priority pauses between its steps, low priority fills the pauses")
        tasks.append(asyncio.create_task(normal.run()))
        await asyncio.wait_for(normal.is_waiting.wait(), _PATIENCE_SECONDS)
        say(f"normal priority: {normal.outputs.get('alone', normal.error).strip()}")
        tasks.append(asyncio.create_task(low.run()))
        before = await asyncio.wait_for(_until_filling(agent, low), _PATIENCE_SECONDS)
        normal.may_finish.set()
        await asyncio.wait_for(asyncio.shield(tasks[0]), _PATIENCE_SECONDS)
        after = await _compute(agent, low)
        said = normal.outputs.get("beside", normal.error).strip()
        say(f"normal priority: {said}")
    return _seen(said, low.error, before, after)


async def _until_filling(agent: AgentClient, low: NotebookRun) -> ComputeStatus:
    """Wait until the low kernel has used the device for a while by itself."""
    begin: float | None = None
    while True:
        now = await _compute(agent, low)
        if low.printed("fill_pauses"):
            begin = now.own_seconds if begin is None else begin
            if now.own_seconds - begin >= _FILLING_SECONDS or low.is_waiting.is_set():
                return now
        await asyncio.sleep(0.05)


async def _compute(agent: AgentClient, run: NotebookRun) -> ComputeStatus:
    kernels = {kernel.kernel_id: kernel for kernel in (await agent.status()).kernels}
    parts = kernels[run.kernel_id].devices if run.kernel_id in kernels else ()
    return next((part.compute for part in parts if part.compute is not None), ComputeStatus())


def _seen(said: str, error: str, before: ComputeStatus, after: ComputeStatus) -> Pauses:
    found = _SAID.search(said)
    if found is None or error:
        return Pauses(error=error or said or "the normal-priority notebook printed nothing")
    return Pauses(
        slowed=float(found.group(1)),
        paused=float(found.group(2)),
        filled=after.own_seconds - before.own_seconds,
        throttled=after.throttled_seconds - before.throttled_seconds,
    )


def _silent(name: str, step: int, total: int, text: str) -> None:
    """Report nothing: fill_pauses reports the progress of these two."""

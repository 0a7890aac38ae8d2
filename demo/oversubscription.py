"""The demo's last act: two notebooks, each with a whole GPU of its own, on one GPU.

It runs the notebooks; claims.py has the claims. Where the host has no room for copies the demo
leaves it out, and says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gateway.serverapp.ephemeral_stack import EphemeralStack
from jupyter_aliquot.gpu_hook.client.client import AgentClient
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE
from jupyter_aliquot.provisioner.resources import Bytes

from .notebook import NotebookRun, Part, on_stage

NOTEBOOK = "turns.ipynb"
PARTS = tuple(Part(name, "python3.gpu-1", "1") for name in ("owner 1", "owner 2"))
# Short turns; that they both start is the agent's default.
AGENT_OPTIONS = ("--lease-hold", "0.5")

_LARGEST_DEVICE = 16 << 30
_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Owner:
    """The observations of one of the two, by its notebook and by the node agent."""

    name: str
    outcome: str
    filled: str
    verified: str
    used: Bytes
    swaps_out: int
    swaps_in: int


@dataclass(frozen=True)
class Turns:
    """The observations of the act.

    ``begun_together``: how many of them had a whole GPU, before a cell of any ran. ``reason``: why
    the act was left out; empty where it was not.
    """

    owners: tuple[Owner, ...] = ()
    memory_bytes: int = 0
    reason: str = ""
    begun_together: int = 0


def reason_against(node: NodeStatus) -> str:
    """Return why two kernels cannot each have the whole device here; empty where they can."""
    memory = max((device.memory_bytes for device in node.devices if not device.lost), default=0)
    budget = node.oversubscription_rule.host_bytes
    if node.oversubscription < 2:
        return "the node agent does not overcommit its devices"
    if memory > _LARGEST_DEVICE:
        return f"copies of {Bytes(memory)} would take long"
    if budget is not None and budget < 2 * memory:
        return f"the host has {Bytes(budget)} for copies, and two of {Bytes(memory)} are needed"
    return ""


async def take_turns(stack: EphemeralStack, agent: AgentClient, notebook: Path, say: Callable[[str], None]) -> Turns:
    """Let both fill the device, then verify it; in between each is swapped out for the other.

    Raises the errors of a kernel's start.
    """
    node = await agent.status()
    reason = reason_against(node)
    if reason:
        return Turns(reason=reason)
    runs = [NotebookRun(part, notebook, stack.log_path(part.name.replace(" ", "-")), _silent) for part in PARTS]
    late = f"a notebook did not get its turn within {_PATIENCE_SECONDS:.0f} s"
    async with on_stage(runs, late) as tasks:
        say(f"two more notebooks, each with the whole GPU: {', '.join(run.part.name for run in runs)}")
        begun = sum(kernel.hundredths == WHOLE for kernel in (await agent.status()).kernels)
        for run in runs:
            tasks.append(asyncio.create_task(run.run()))
            await asyncio.wait_for(run.is_waiting.wait(), _PATIENCE_SECONDS)
            say(f"{run.part.name} has {run.outputs.get('fill', run.error).strip()}")
        for run, task in zip(runs, tasks, strict=True):
            run.may_finish.set()
            await asyncio.wait_for(asyncio.shield(task), _PATIENCE_SECONDS)
            say(f"{run.part.name} found it {run.outputs.get('verify', run.error).strip()}")
        node = await agent.status()
    owners = tuple(_seen(run, node) for run in runs)
    return Turns(owners, sum(device.memory_bytes for device in node.devices), begun_together=begun)


def _seen(run: NotebookRun, node: NodeStatus) -> Owner:
    known = next((kernel for kernel in node.kernels if kernel.kernel_id == run.kernel_id), None)
    residency = None if known is None else known.residency
    peak = 0 if known is None else sum(device.peak_bytes for device in known.devices)
    return Owner(
        name=run.part.name,
        outcome=run.error or ("finished" if run.is_finished else "did not finish"),
        filled=run.outputs.get("fill", ""),
        verified=run.outputs.get("verify", ""),
        used=Bytes(peak),
        swaps_out=0 if residency is None else residency.swaps_out,
        swaps_in=0 if residency is None else residency.swaps_in,
    )


def _silent(name: str, step: int, total: int, text: str) -> None:
    """Report nothing: take_turns reports the progress of these two."""

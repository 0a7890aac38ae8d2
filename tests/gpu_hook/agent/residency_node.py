"""One kernel of a node agent on a test's own loop.

The devices do not exist, and the hooks are scripted.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_aliquot.gpu_hook.agent.base.descriptors import Descriptors
from jupyter_aliquot.gpu_hook.agent.host_copies.arena import Arena, HostBudget
from jupyter_aliquot.gpu_hook.agent.kernels.kernel import Kernel
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Entry, Reservation, Tally, read_entry
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts, Ledger
from jupyter_aliquot.gpu_hook.agent.swap.residency import SwapTools
from jupyter_aliquot.gpu_hook.agent.swap.settings import SwapSettings
from jupyter_aliquot.gpu_hook.placement.placement import Part

if TYPE_CHECKING:
    from tests.gpu_hook.agent.scripted_hook import MIB, ScriptedHook
else:
    from scripted_hook import MIB, ScriptedHook

PART = Part("GPU-00000000-0000-0000-0000-0000000000a0", 0, 100, 256 * MIB)
RESERVATION = Reservation("k", "ada", 100, None, "production", "", {}, (PART,), 1.0)
SETTINGS = SwapSettings(segment_bytes=4 * MIB, drain_milliseconds=100, patience_seconds=20)


class ANodeHere:
    """One kernel of a node agent, on the test's own loop, and the hooks of its processes."""

    def __init__(self, folder: Path, settings: SwapSettings = SETTINGS, budget: int = 256 * MIB) -> None:
        self.folder = folder / "k"
        self.settings = settings
        self.hooks: list[ScriptedHook] = []
        self.woken = 0
        self.start(Entry(RESERVATION, tallies=(Tally(),)), budget)

    def start(self, entry: Entry, budget: int = 256 * MIB) -> None:
        self.ledger = Ledger()
        self.ledger.set_devices([DeviceFacts(PART.uuid, 0, "Fake", 1024 * MIB)])
        self.ledger.reserve("k", (PART,))
        self.arena = Arena(HostBudget(budget), self.settings.segment_bytes, self.settings.spill_dir)
        tools = SwapTools(self.arena, self.settings)
        self.kernel = Kernel(entry, self.folder, self.ledger, 0.2, lambda *_: None, None, tools, Descriptors(1024))
        self.kernel.restore(entry)
        self.residency = self.kernel.residency
        self.residency.wants_wake = lambda _: self._note_wake()

    async def restart(self) -> None:
        """Restart as after a kill: the agent's connections close, and it writes nothing more."""
        entry = read_entry(self.folder)
        for hook in self.hooks:
            hook.lose_agent()
        self.kernel.close(keep=True)
        self.arena.close()
        self.start(entry)

    async def a_hook(self, mib: int = 0, *, seed: int = 1, **settings: Any) -> ScriptedHook:
        hook = ScriptedHook(self.folder, random.Random(seed).randbytes(mib * MIB), **settings)
        self.hooks.append(hook)
        await hook.connect()
        return hook

    def close(self) -> None:
        for hook in self.hooks:
            hook.die()
        self.kernel.close(keep=False)
        self.arena.close()

    def _note_wake(self) -> None:
        self.woken += 1


async def until(claim: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, "the claim did not come true in time"
        await asyncio.sleep(0.005)

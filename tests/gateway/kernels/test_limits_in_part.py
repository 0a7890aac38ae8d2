"""A size whose limits on the machine were refused: they are tried again when the kernel becomes idle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from jupyter_aliquot.gateway.kernels.relay_activity import RelayActivity
from jupyter_aliquot.gateway.kernels.resize import ResizeTracker
from jupyter_aliquot.gateway.relays.activity import read_activity
from jupyter_aliquot.provisioner.relay.client.link import Activity, KernelState
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request, WorkloadClass

GRANT = Grant("k", "ada", Request(GpuShare(25), None, WorkloadClass.PRODUCTION), "node", (), "/nowhere", (), 1)


class AKernel:
    """A kernel whose limits the system refuses as often as a test says."""

    def __init__(self, folder: Path, refusals: int) -> None:
        self.kernel_id, self.kernel_name = "k", "python3.gpu-0.25"
        self.pending_resize = None
        self.transport, self.ip = "ipc", str(folder / "f")
        self.execution_state, self.reason, self.last_activity = "starting", "", None
        self.shutting_down, self.autorestart = False, True
        self.applied = 0
        self._refusals = refusals
        (folder / "relay.json").touch()

    def take_grant(self, grant: Grant) -> None:
        pass

    async def apply_grant(self) -> str:
        self.applied += 1
        return "it has more memory" if self.applied <= self._refusals else ""


class ALink:
    """The link of its relay, which tells what a test lets it tell."""

    def __init__(self) -> None:
        self.kernel, self.activity = KernelState("started", 1, None), read_activity(None, Activity(0, 0, None, 1.0))
        self.update: Callable[[str, Any], None] = lambda *_: None

    def open(self, kernel_id: str, folder: Path, update: Callable[[str, Any], None]) -> ALink:
        self.update = update
        return self

    def becomes(self, work: int) -> None:
        self.activity = read_activity(self.activity, Activity(work, work, 2.0 if work else None, 2.0))
        self.update("k", self)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_refused_limit_is_tried_again_when_the_kernel_becomes_idle_until_it_is_set(tmp_path: Path) -> None:
    async def scene() -> None:
        kernel, link = AKernel(tmp_path, refusals=2), ALink()
        tracker = ResizeTracker(None, cast(Any, {"k": kernel}.get), lambda _: None, logging.getLogger("test"))
        links = cast(Any, SimpleNamespace(open=link.open))
        activity = RelayActivity({"k": kernel}, links, None, lambda _: None, tracker.try_again)
        activity.follow("k")
        assert kernel.applied == 0, "nothing was refused"
        link.becomes(1)
        tracker.take_outcome("k", GRANT)
        await settle()
        for want in (2, 3, 3):
            link.becomes(1)
            link.becomes(0)
            link.becomes(0)
            await settle()
            assert kernel.applied == want

    asyncio.run(scene())

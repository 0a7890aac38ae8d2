"""The agent's work for the kubelet goes on after a look that failed in another part of the agent."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from node_double.kubelet import Kubelet

from jupyter_aliquot.gpu_hook.agent.kubelet import node as module
from jupyter_aliquot.gpu_hook.agent.kubelet.node import KubeletNode, NodeSide
from jupyter_aliquot.gpu_hook.agent.kubelet.settings import GPU_RESOURCE, KubeletSettings
from jupyter_aliquot.gpu_hook.waiting import end_task

GPU = "GPU-00000000-0000-0000-0000-0000000000a0"


@pytest.fixture
def a_kubelet() -> Iterator[Kubelet]:
    folder = Path(tempfile.mkdtemp(prefix="aqk-"))  # a socket's path is short
    kubelet = Kubelet(folder)
    kubelet.start()
    kubelet.offer(GPU_RESOURCE, [GPU])
    kubelet.allocate("notebooks", "aliquot-holder-1", "holder", {GPU_RESOURCE: 1})
    yield kubelet
    kubelet.stop()
    shutil.rmtree(folder, ignore_errors=True)


def test_a_change_that_could_not_be_taken_is_told_again(
    a_kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    held = Mock(side_effect=[ValueError("no such device"), None])

    async def until(claim: Callable[[], object], running: asyncio.Task[None]) -> None:
        async with asyncio.timeout(60):
            while not claim():
                assert not running.done(), running
                await asyncio.sleep(0.01)

    async def scene() -> None:
        told = Mock()
        side = NodeSide(Mock(), lambda: True, told, lambda uuid: False, held)
        node = KubeletNode(KubeletSettings(a_kubelet.folder), a_kubelet.folder / "slots", Mock(), side)
        running = asyncio.create_task(node.run())
        await until(lambda: held.call_count == 2, running)
        await until(lambda: told.call_count, running)
        assert node.holder_of(GPU) == "notebooks/aliquot-holder-1"
        await end_task(running)

    asyncio.run(scene())
    assert "no such device" in caplog.text
    assert held.call_count == 2

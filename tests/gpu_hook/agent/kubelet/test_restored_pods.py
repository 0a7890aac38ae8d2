"""Kernels in pods over a restart of the agent, while the kubelet does not answer."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from reservations_node import AReservationsNode

from jupyter_aliquot.gpu_hook.agent.ledger.journal import POD_ATTRIBUTE, Reservation

SECONDS = 60


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not claim():  # noqa: ASYNC110 - timers of the loop make it true
            await asyncio.sleep(0)


def test_only_an_answer_of_the_kubelet_ends_a_restored_kernel_whose_pod_it_does_not_name() -> None:
    folder = Path(tempfile.mkdtemp(prefix="aqp-"))  # a socket's path is short
    asyncio.run(restart(folder))
    shutil.rmtree(folder)


async def restart(folder: Path) -> None:
    node = AReservationsNode(folder, grace_seconds=0.0, orphan_seconds=0.0)
    node.has_kubelet = True
    for kernel, pod in (("in-a-pod", {POD_ATTRIBUTE: "notebooks/pod-1"}), ("in-none", {})):
        asked = Reservation(kernel, "ada", 25, None, "production", "", pod, (), 1.0)
        node.reservations.reserve(asked, None, node.a_connection())
    await node.end(is_killed=True)
    node.start()
    await until(lambda: node.reservations.find("in-none") is None)
    assert node.reservations.find("in-a-pod") is not None

    node.reservations.note_pods(["notebooks/pod-1"])
    node.reservations.note_pods([])
    await until(lambda: node.reservations.find("in-a-pod") is None)
    await node.end(is_killed=False)

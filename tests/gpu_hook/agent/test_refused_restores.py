"""Restores that the driver refuses, of kernels that move to another GPU: what is told, and what becomes of them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.gpu_hook.agent.moving_ring import MIB, AProcess, ARing, bare, serve
else:
    from moving_ring import MIB, AProcess, ARing, bare, serve


@pytest.fixture
def a_ring(an_idle_node: Any, open_holder: Callable[[], Any]) -> Iterator[ARing]:
    yield from serve(an_idle_node, open_holder)


def test_a_driver_that_refuses_the_map_leaves_the_kernel_where_it_was(a_ring: ARing) -> None:
    a_ring.node.end(signal.SIGTERM)
    # The agent's checkpointing process alone restores: its second restore is the move's.
    a_ring.start(ALIQUOT_SOFTGPU_FAULTS="cuCheckpointProcessRestore:1=1")
    a_ring.processes["a"].ask("fill")
    a_ring.move("a", 1)
    state, reason = a_ring.outcome("a", 1)
    assert (state, "invalid value" in reason) == ("failed", True), reason
    assert a_ring.reserved() == [50, 50]
    assert a_ring.looks("a") == ("True", bare(a_ring.uuid(0)))
    assert a_ring.place("a") == 0
    a_ring.move("a", 1)
    assert a_ring.outcome("a", 1) == ("done", ""), "it may be tried again"


def waits_because(a_ring: ARing, name: str) -> str | None:
    waits = a_ring.kernel(name)["residency"]["waits"]
    return None if waits is None else str(waits["reason"])


def test_a_kernel_that_the_driver_does_not_restore_tells_why_and_is_tried_again(a_ring: ARing) -> None:
    a_ring.node.end(signal.SIGTERM)
    refused = {"ALIQUOT_SOFTGPU_FAULTS": "cuCheckpointProcessRestore=1"}
    a_ring.start(**refused)
    a_ring.processes["a"].ask("fill")
    a_ring.move("a", 1)
    assert a_ring.outcome("a", 1)[0] == "failed"
    told = a_ring.node.until(lambda: (told := waits_because(a_ring, "a")) and "could not come back" in told and told)
    for part in ("tries again", "restart the kernel", "to restore process", "invalid value"):
        assert part in told
    assert not a_ring.kernel("a")["residency"]["is_lost"]
    a_ring.node.end(signal.SIGTERM)
    a_ring.start()
    assert a_ring.looks("a") == ("True", bare(a_ring.uuid(0)))


def fill_up(a_ring: ARing, index: int) -> AProcess:
    """Take all memory of a device by a process without the hook."""
    environment = a_ring.grants["a"]["env"]
    plain = {"env": {"LD_LIBRARY_PATH_PREPEND": str(Path(environment["ALIQUOT_REAL_CUDA"]).parent)}}
    a_ring.processes["outsider"] = outsider = AProcess(
        a_ring.program,
        plain,
        ALIQUOT_SOFTGPU_STATE=environment["ALIQUOT_SOFTGPU_STATE"],
        CUDA_VISIBLE_DEVICES=a_ring.uuid(index),
    )
    assert outsider.ask("fill") == "full"
    size = 512 * MIB
    while size > 4096:
        size = size if outsider.ask(f"take {size}") == "0" else size // 2
    return outsider


def test_a_kernel_that_the_driver_gives_up_is_told_as_lost(a_ring: ARing) -> None:
    """The driver finds no room in the middle of a restore: the process never comes back."""
    hold = a_ring.restart_held("cuCheckpointProcessRestore")
    a_ring.processes["a"].ask("fill")
    a_ring.move("a", 1)
    a_ring.is_in("a", "restoring")
    outsider = fill_up(a_ring, 1)
    hold.unlink()
    state, reason = a_ring.outcome("a", 1)
    assert (state, reason.startswith("its GPU memory is lost: "), reason.endswith(". Restart the kernel")) == (
        "failed",
        True,
        True,
    ), reason
    outsider.close()
    assert a_ring.holder.ask("wake", kernel_id="a")["ok"]
    assert a_ring.node.until(lambda: waits_because(a_ring, "a")) == reason
    residency = a_ring.kernel("a")["residency"]
    assert (residency["state"], residency["is_lost"], residency["refusal"]) == ("checkpointed", True, reason)
    assert residency["waits"]["expected_seconds"] is None
    a_ring.node.end(signal.SIGTERM)
    a_ring.start()
    pid = a_ring.processes["a"].process.pid
    want = f"its GPU memory is lost: the driver has given process {pid} up. Restart the kernel"
    assert a_ring.holder.ask("wake", kernel_id="a")["ok"]
    a_ring.node.until(lambda: waits_because(a_ring, "a") == want or None, 30)
    a_ring.processes["a"].close()
    a_ring.node.until(lambda: not a_ring.kernel("a")["residency"]["is_lost"] or None, 30)

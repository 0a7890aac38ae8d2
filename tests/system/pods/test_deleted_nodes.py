"""A node that is deleted takes its kernel with it: that is told, the kernel starts elsewhere, and no grant is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from api_double.store import RESOURCES

from tests.system.conftest import Kernel, wait_until

from .conftest import Ring, a_ring

NODES = RESOURCES["nodes"]


def crash_of(kernel: Kernel) -> str:
    return str(((kernel.on_node() or {}).get("last_crash") or {}).get("message"))


@contextmanager
def lost(ring: Ring, name: str, *, is_half_open: bool) -> Iterator[None]:
    """Lose a node's machine, and delete the node as an autoscaler does.

    The connections of a machine that loses its power stay open: no packet says that they ended.
    """
    node = ring.nodes.pop(name)
    node.node.cut()
    node.agent.kill()
    node.agent.wait(30)
    ring.double.store.delete(NODES, "", name, {})
    with ExitStack() as stack:
        stack.callback(node.cable.close)
        stack.callback(node.node.close)
        if not is_half_open:
            stack.close()
        yield


@pytest.mark.parametrize(
    "is_half_open",
    [
        pytest.param(False, id="connections end", marks=pytest.mark.soak(alone="starts one more cluster")),
        pytest.param(True, id="connections stay open"),
    ],
)
def test_a_kernel_of_a_deleted_node_says_so_and_starts_on_another_one(is_half_open: bool) -> None:
    with a_ring() as ring, ExitStack() as stack:
        kernel, other = ring.server.start("box.gpu-0.25"), ring.server.start("box.gpu-1")
        for one in (kernel, other):
            assert one.run("here = 42").status == "ok", ring.logs()
        gone, stays = ring.node_of(kernel), ring.node_of(other)
        assert gone != stays
        other.end()
        stack.enter_context(lost(ring, gone, is_half_open=is_half_open))
        wait_until(lambda: "its node is gone (PodGC: node no longer exists)" in crash_of(kernel))
        wait_until(lambda: ring.node_of(kernel) == stays)
        kernel.reconnect()
        assert "NameError" in kernel.run("print(here)").error, ring.logs()
        nodes = ring.server.call("GET", "/aliquot/api/v1/nodes")["nodes"]
        assert [one["name"] for one in nodes] == [stays]
        assert ring.granted() == {kernel.id}
        kernel.end()
        wait_until(ring.is_empty)

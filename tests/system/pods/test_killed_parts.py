"""Each part beside a pod's kernel is killed while a cell prints: what the kernel keeps, and what the page gets."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from memory_cells import CHECK, FILL, GPU

from jupyter_aliquot.provisioner.kubernetes.kernel_pod import RELAY_CONTAINER, kernel_pod_name
from jupyter_aliquot.provisioner.relay.wire.files import read_relay_records
from tests.system.conftest import Kernel, wait_until
from tests.system.survival.conftest import Tab

from .conftest import GpuNode, Ring, relay_hosts

LINES = 40
CELL = f"import time\nfor n in range({LINES}):\n    print('line', n, flush=True)\n    time.sleep(0.05)"


def node_of(ring: Ring, kernel: Kernel) -> GpuNode:
    return ring.nodes[ring.node_of(kernel)]


def kill_gateway(ring: Ring, kernel: Kernel) -> None:
    ring.server.process.kill()
    ring.server.process.wait(30)
    ring.follow(ring.serve())


def kill_relay(ring: Ring, kernel: Kernel) -> None:
    def pids() -> list[int]:
        return [one.pid for one in read_relay_records(ring.runtime) if one.kernel_id == kernel.id]

    (pid,) = pids()
    os.kill(pid, signal.SIGKILL)
    # A request that is on its way just then is lost.
    wait_until(lambda: pids() not in ([], [pid]))


def kill_relay_host(ring: Ring, kernel: Kernel) -> None:
    (host,) = relay_hosts(ring.runtime)
    os.kill(host, signal.SIGKILL)


def kill_sidecar(ring: Ring, kernel: Kernel) -> None:
    tunnels = tunnels_made(ring, kernel)
    node_of(ring, kernel).node.run_of(kernel_pod_name(kernel.id)).kill(RELAY_CONTAINER)
    # A request that is on its way just then is lost.
    wait_until(lambda: tunnels_made(ring, kernel) > tunnels)


def tunnels_made(ring: Ring, kernel: Kernel) -> int:
    return ring.server.log.read_text().count(f"kernel={kernel.id} tunnel=up")


def kill_agent(ring: Ring, kernel: Kernel) -> None:
    node_of(ring, kernel).replace_agent()


SOAK_ALONE = pytest.mark.soak(alone="kills one more part of a cluster")


def restart_kubelet(ring: Ring, kernel: Kernel) -> None:
    node_of(ring, kernel).node.kubelet.restart()


@pytest.mark.parametrize(
    ("kill", "keeps_output"),
    [
        pytest.param(kill_gateway, True, marks=SOAK_ALONE),
        (kill_relay, True),
        (kill_sidecar, False),  # it alone has the kernel's sockets, and what is made without it is lost
        (kill_relay_host, True),
        (kill_agent, True),
        pytest.param(restart_kubelet, True, marks=SOAK_ALONE),
    ],
)
def test_a_kernel_keeps_its_memory_and_its_cells(
    the_ring: Ring, kill: Callable[[Ring, Kernel], None], keeps_output: bool
) -> None:
    kernel = the_ring.server.start("box.gpu-0.25")
    pod = wait_until(lambda: the_ring.pod(kernel).get("metadata"))["uid"]
    tab = Tab(the_ring.server, kernel.id)  # type: ignore[arg-type]  # it has what a Gateway has
    tab.run(GPU + FILL.format(seed=1, mebibytes=32))
    cell = tab.execute(CELL)
    tab.wait_for_text("line 3\n")
    kill(the_ring, kernel)
    if kill is kill_gateway:
        tab.reconnect(the_ring.server)  # type: ignore[arg-type]
    if keeps_output:
        assert tab.text(cell) == "".join(f"line {n}\n" for n in range(LINES)), the_ring.logs()
    assert tab.run(CHECK).split()[1] == "True", the_ring.logs()
    again = Kernel(the_ring.server, kernel.id)
    assert the_ring.pod(again)["metadata"]["uid"] == pod
    assert the_ring.granted() == {kernel.id}
    tab.close()
    again.end()
    wait_until(the_ring.is_empty)

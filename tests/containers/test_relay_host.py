"""The relay host in a container of its own.

Kernels outlive their gateway, and even the relay host's own end.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_aliquot.provisioner.engine.relay_host import RELAY_HOST_LABEL, relay_host_name

if TYPE_CHECKING:
    from tests.containers.container_engines import WHOLE_IMAGE
    from tests.containers.gateway_node import ContainerNode, parts
else:
    from container_engines import WHOLE_IMAGE
    from gateway_node import ContainerNode, parts


@pytest.mark.parametrize("relay_image", [WHOLE_IMAGE], ids=["in a container"])
def test_kernels_outlive_gateway_and_relay_host_where_all_are_apart(
    a_container_node: ContainerNode, open_tab: Callable[..., Any]
) -> None:
    node = a_container_node
    gateway = node.gateway()
    kernel_id = gateway.start_kernel("pytorch")
    tab = open_tab(gateway, kernel_id)
    tab.run("x = 41")
    host = node.engine.client().containers.get(relay_host_name(node.runtime))
    assert host.labels[RELAY_HOST_LABEL] == "1"
    relay = node.relays()[kernel_id]
    with open(f"/proc/{relay.pid}/cgroup") as groups:
        assert host.id in groups.read(), "the relay lives in the relay host's container"
    assert host.attrs["HostConfig"]["CapDrop"]

    cell = tab.execute("import time\nfor n in range(40):\n    print('line', n, flush=True)\n    time.sleep(0.05)")
    tab.wait_for_text("line 3\n")
    box = node.box_id(kernel_id)
    gateway.stop(signal.SIGKILL)
    after = node.next(gateway)
    tab.reconnect(after)
    assert tab.text(cell) == "".join(f"line {n}\n" for n in range(40))
    assert (node.box_id(kernel_id), node.relays()[kernel_id].pid) == (box, relay.pid)
    host.reload()
    assert host.status == "running"

    # Its process ends, and the relays with it: the engine starts it again, and it finds the kernel.
    os.kill(host.attrs["State"]["Pid"], signal.SIGKILL)
    parts.wait_until(lambda: (found := node.relays().get(kernel_id)) and found.pid != relay.pid)
    assert tab.reconnect(after).run("print(x + 1)") == "42"
    assert node.box_id(kernel_id) == box

    after.call("DELETE", f"/api/kernels/{kernel_id}")
    parts.wait_until(lambda: (node.boxes(), node.relays()) == ([relay_host_name(node.runtime)], {}))

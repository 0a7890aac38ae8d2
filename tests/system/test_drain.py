"""A drained node: its kernel leaves the GPU with its process alive, and comes back with its memory, all parts real."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from memory_cells import CHECK, FILL, GPU, MIB


def state(kernel: Any) -> str:
    return str((kernel.on_node() or {}).get("state"))


def test_a_drained_node_keeps_its_kernels_on_the_host_until_it_is_uncordoned(a_shared_server, eventually) -> None:
    node = a_shared_server.status()["node"]["name"]
    path = f"/aliquot/api/v1/nodes/{quote(node)}"
    kernel = a_shared_server.start("python3.gpu-0.5")
    kernel.run(GPU)
    at = kernel.run(FILL.format(seed=5, mebibytes=256)).text.split()
    told = a_shared_server.call("POST", f"{path}/drain", {"reason": "new driver"})
    assert [one["kernel_id"] for one in told["kernels"]] == [kernel.id]
    eventually(lambda: [one["state"] for one in a_shared_server.call("GET", path)["kernels"]] == ["evicted"])
    report = eventually(lambda: kernel.on_node() if state(kernel) == "swapped_out" else None)
    assert report["residency"]["swapped_bytes"] == 256 * MIB
    assert "an administrator drains the node" in report["reason"]
    assert a_shared_server.status()["devices"][0]["reserved_gpus"] == 0
    assert kernel.run("print(1 + 1)").text.strip() == "2", "cells that do not use the GPU run on"
    waiting = a_shared_server.start("python3.gpu-0.25")
    eventually(lambda: state(waiting) == "queued")
    cell = kernel.send(CHECK)
    assert a_shared_server.call("POST", f"{path}/uncordon")["cordon"] is None
    assert kernel.outcome(cell).text.splitlines()[-1].split() == [*at, "True"], "the cell went on where it waited"
    eventually(lambda: state(waiting) == "on_gpu")
    waiting.end()
    kernel.end()

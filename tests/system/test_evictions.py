"""A kernel that passed a larger request leaves for it, and returns with its memory, all parts real."""

from __future__ import annotations

from typing import Any

from memory_cells import CHECK, FILL, GPU, MIB


def state(kernel: Any) -> str:
    return str((kernel.on_node() or {}).get("state"))


def test_a_small_kernel_passes_a_large_one_leaves_for_it_and_returns_with_its_memory(
    a_shared_server, eventually
) -> None:
    first = a_shared_server.start("python3.gpu-0.5")
    eventually(lambda: state(first) == "on_gpu")
    large = a_shared_server.start("python3.gpu-1")
    eventually(lambda: state(large) == "queued")
    small = a_shared_server.start("python3.gpu-0.25")
    small.run(GPU)
    at = small.run(FILL.format(seed=3, mebibytes=256)).text.split()
    assert state(large) == "queued"
    first.end()
    eventually(lambda: state(large) == "on_gpu")
    report = eventually(lambda: small.on_node() if state(small) == "swapped_out" else None)
    assert report["residency"]["swapped_bytes"] == 256 * MIB
    assert report["reason"].startswith("Evicted: another request took back the GPU")
    assert small.run("print(1 + 1)").text.strip() == "2", "cells that do not use the GPU run on"
    (waiting,) = a_shared_server.call("GET", "/aliquot/api/v1/queue")["requests"]
    assert (waiting["kernel_id"], waiting["kind"], waiting["wait_reason"]["code"]) == (small.id, "return", "evicted")
    cell = small.send(CHECK)
    assert large.run(GPU + "print(mebibytes())").text.split()[1] == "4096", "it has the whole GPU"
    large.end()
    assert small.outcome(cell).text.splitlines()[-1].split() == [*at, "True"], "the cell went on where it waited"
    assert a_shared_server.call("GET", "/aliquot/api/v1/queue") == {"length": 0, "requests": []}
    small.end()

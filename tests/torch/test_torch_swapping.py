"""PyTorch notebooks that together own four times the devices, by each of its allocators.

They run under a real node agent.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.torch

_NOTEBOOK = """
import zlib
on_host = [torch.randint(0, 255, ({size} * MIB,), dtype=torch.uint8) for _ in range(4)]
on_device = [block.to("cuda") for block in on_host]
places = [block.data_ptr() for block in on_device]
print("ready", flush=True)
for line in sys.stdin:
    for number in range(4):
        same = torch.equal(on_device[number].cpu(), on_host[number])
        assert same and on_device[number].data_ptr() == places[number], number
    on_host[0] = torch.randint(0, 255, ({size} * MIB,), dtype=torch.uint8)
    on_device[0].copy_(on_host[0])
    torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    print("whole", flush=True)
"""


def say(notebook: subprocess.Popen[str], line: str) -> str:
    assert notebook.stdin is not None
    assert notebook.stdout is not None
    notebook.stdin.write(line + "\n")
    notebook.stdin.flush()
    return notebook.stdout.readline().strip()


def open_notebooks(make_kernel: Callable[..., Any], count: int, size: int, allocator: str) -> list[Any]:
    """Open notebooks of a whole device each, idle between cells, as their relays would report."""
    opened = []
    for _ in range(count):
        kernel = make_kernel(100)
        assert kernel.ask("activity", open=0, work=0, since=0.0)["ok"]
        notebook = kernel.start(_NOTEBOOK.format(size=size), PYTORCH_ALLOC_CONF=allocator)
        assert notebook.stdout is not None
        assert notebook.stdout.readline() == "ready\n"
        opened.append((kernel, notebook))
    return opened


@pytest.mark.parametrize("allocator", ["", "expandable_segments:True", "backend:cudaMallocAsync"])
def test_notebooks_that_own_four_times_the_devices_keep_every_byte(
    make_kernel: Callable[..., Any], allocator: str
) -> None:
    """Eight of 1 GiB on two devices of 1 GiB.

    Each has 640 MiB of tensors, so that no two fit on a device.
    """
    opened = open_notebooks(make_kernel, 8, 160, allocator)
    for _ in range(2):
        assert [say(notebook, "cell") for _, notebook in opened] == ["whole"] * 8
    swaps = [kernel.status()["residency"]["swaps_out"] for kernel, _ in opened]
    assert all(count >= 1 for count in swaps), swaps


def test_the_asynchronous_allocators_pool_leaves_with_every_byte(make_kernel: Callable[..., Any]) -> None:
    """Its pool is one of the hook's: nothing of it stays on the device, and the status names no pool."""
    ((kernel, notebook),) = open_notebooks(make_kernel, 1, 40, "backend:cudaMallocAsync")
    for _ in range(3):
        while not kernel.ask("swap_out")["ok"]:
            pass  # until its last call is old enough
        while kernel.status()["residency"]["state"] != "swapped":
            pass
        assert kernel.status()["residency"]["swapped_bytes"] >= 160 << 20
        assert all("pool" not in one["reason"] for one in kernel.status()["residency"]["unswappable"])
        assert say(notebook, "cell") == "whole"

"""What the hook has charged is what is gone from the device, after every step of any program."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

MIB = 1 << 20
SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))
FAILING = (
    *("cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocManaged", "cuMemFree_v2"),
    *("cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemPoolCreate", "cuMemPoolDestroy"),
    *("cuMemPoolTrimTo", "cuArray3DCreate_v2", "cuMipmappedArrayCreate", "cuArrayDestroy", "cuMipmappedArrayDestroy"),
    *("cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap", "cuMemRetainAllocationHandle", "cuIpcGetMemHandle"),
    *("cuMemAllocHost_v2", "cuMemHostRegister_v2", "cuMemFreeHost", "cuMemHostUnregister"),
)
FAULTS = ",".join(f"{call}:{nth}={code}" for call in FAILING for nth, code in ((3, 999), (11, 2)))


@pytest.mark.soak
@pytest.mark.timeout(240 * SOAK)
@pytest.mark.parametrize("quota", [96 * MIB, 512 * MIB], ids=["below_device", "above_device"])
@pytest.mark.parametrize("chunk", ["2MiB", "16MiB"])
def test_what_is_charged_is_what_is_used(make_node: Callable[..., Any], families: Any, quota: int, chunk: str) -> None:
    machine = families.configure(make_node(devices=1, memory="256MiB", pool_chunk=chunk), quota)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60 * SOAK,
            stateful_step_count=40,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def walk(machine: Any, seed: int, steps: int) -> None:
    """A seeded walk: faults fall by the number of the call, so hypothesis could not replay it."""
    random = Random(seed)
    amounts = [1, 700, MIB - 1, MIB, 3 * MIB, 17 * MIB]
    moves: list[Callable[[], None]] = [
        lambda: machine.allocate(random.choice(amounts)),
        lambda: machine.allocate_rows(random.randrange(1, 5000), random.randrange(1, 2000)),
        lambda: machine.allocate_in_order(random.choice(amounts), pick(), random.choice(["", "_ptsz"])),
        lambda: machine.make_array(
            (random.randrange(1, 3000), random.randrange(2000)), random.choice(["u8", "float"]), 2
        ),
        lambda: machine.make_mipmapped((random.randrange(1, 900), 500), 3),
        lambda: machine.make_handle(random.randrange(1, 4)),
        lambda: machine.lock_pages(random.choice(amounts), random.random() < 0.5),
        lambda: machine.synchronize("cuCtxSynchronize"),
        lambda: not machine.contexts and machine.allocate_managed(random.choice(amounts)),
        lambda: len(machine.pools) < 3 and machine.make_pool(random.choice([0, 1 << 63])),
        lambda: len(machine.contexts) < 2 and machine.begin_context(),
        lambda: machine.contexts and machine.end_context(),
        lambda: machine.live() and machine.free(pick()),
        lambda: machine.managed and not machine.contexts and machine.free_managed(pick()),
        lambda: machine.in_order and machine.free_in_order(pick(), random.choice(["free_later", "free", "free_async"])),
        lambda: machine.pools and machine.trim_pool(pick(), 0),
        lambda: machine.pools and machine.end_pool(pick()),
        lambda: machine.live_arrays() and machine.end_array(pick()),
        lambda: machine.handles and machine.release_handle(pick()),
        lambda: machine.handles and len(machine.mapped) < 8 and machine.map_handle(pick()),
        lambda: machine.mapped and machine.unmap_some(pick(), random.randrange(1, 8)),
        lambda: machine.mapped and machine.retain_handle(pick()),
        lambda: machine.host and machine.unlock_pages(pick()),
        lambda: machine.pointers and len(machine.opened) < 3 and machine.open_in_peer(pick()),
        lambda: machine.opened and machine.close_in_peer(pick()),
    ]

    def pick() -> int:
        return random.randrange(1 << 16)

    for _ in range(steps):
        random.choice(moves)()
        machine.charged_is_used()
    machine.teardown()


@pytest.mark.soak
@pytest.mark.timeout(120 * SOAK)
@pytest.mark.parametrize("quota", [96 * MIB, 512 * MIB], ids=["below_device", "above_device"])
def test_what_is_charged_is_what_is_used_when_the_driver_fails(
    make_node: Callable[..., Any], families: Any, quota: int
) -> None:
    machine = families.configure(make_node(devices=1, memory="256MiB"), quota, FAULTS)()
    walk(machine, seed=20, steps=1500 * SOAK)

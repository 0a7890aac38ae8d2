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
    *("cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuGraphUpload", "cuGraphExecDestroy", "cuDeviceGraphMemTrim"),
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


AMOUNTS = (1, 700, MIB - 1, MIB, 3 * MIB, 17 * MIB)
FREES = ("free_later", "free", "free_async")
Move = tuple[str, Callable[[Any], Any], Callable[[Random], tuple[Any, ...]]]
# A rule, what it needs, and its arguments.
MOVES: list[Move] = [
    ("allocate", lambda machine: True, lambda random: (random.choice(AMOUNTS),)),
    ("allocate_rows", lambda machine: True, lambda random: (random.randrange(1, 5000), random.randrange(1, 2000))),
    ("allocate_managed", lambda machine: not machine.contexts, lambda random: (random.choice(AMOUNTS),)),
    ("allocate_in_order", lambda machine: True, lambda random: (random.choice(AMOUNTS), random.randrange(99), "_ptsz")),
    ("begin_context", lambda machine: len(machine.contexts) < 2, lambda random: ()),
    ("end_context", lambda machine: machine.contexts, lambda random: ()),
    ("free", lambda machine: machine.live(), lambda random: (random.randrange(99),)),
    ("free_managed", lambda machine: machine.managed and not machine.contexts, lambda random: (random.randrange(99),)),
    ("free_in_order", lambda machine: machine.in_order, lambda random: (random.randrange(99), random.choice(FREES))),
    ("synchronize", lambda machine: True, lambda random: ("cuCtxSynchronize",)),
    ("make_pool", lambda machine: len(machine.pools) < 3, lambda random: (random.choice([0, 1 << 63]),)),
    ("trim_pool", lambda machine: machine.pools, lambda random: (random.randrange(99), 0)),
    ("end_pool", lambda machine: machine.pools, lambda random: (random.randrange(99),)),
    (
        "make_array",
        lambda machine: True,
        lambda random: ((random.randrange(1, 3000), 500), random.choice(["u8", "half"]), 2),
    ),
    ("make_mipmapped", lambda machine: True, lambda random: ((random.randrange(1, 900), 500), 3)),
    ("end_array", lambda machine: machine.live_arrays(), lambda random: (random.randrange(99),)),
    ("make_handle", lambda machine: True, lambda random: (random.randrange(1, 4),)),
    ("release_handle", lambda machine: machine.handles, lambda random: (random.randrange(99),)),
    ("map_handle", lambda machine: machine.handles and len(machine.mapped) < 8, lambda random: (random.randrange(99),)),
    ("unmap_some", lambda machine: machine.mapped, lambda random: (random.randrange(99), random.randrange(1, 8))),
    ("retain_handle", lambda machine: machine.mapped, lambda random: (random.randrange(99),)),
    ("lock_pages", lambda machine: True, lambda random: (random.choice(AMOUNTS), random.random() < 0.5)),
    ("unlock_pages", lambda machine: machine.host, lambda random: (random.randrange(99),)),
    ("make_graph", lambda machine: len(machine.execs) < 4, lambda random: (random.sample(AMOUNTS, 3),)),
    ("launch_graph", lambda machine: machine.execs, lambda random: (random.randrange(99), "cuGraphLaunch")),
    ("end_graph", lambda machine: machine.execs, lambda random: (random.randrange(99),)),
    ("trim_graphs", lambda machine: True, lambda random: ()),
    (
        "open_in_peer",
        lambda machine: machine.pointers and len(machine.opened) < 3,
        lambda random: (random.randrange(99),),
    ),
    ("close_in_peer", lambda machine: machine.opened, lambda random: (random.randrange(99),)),
]


def walk(machine: Any, seed: int, steps: int) -> None:
    """A seeded walk: faults fall by the number of the call, so hypothesis could not replay it."""
    random = Random(seed)
    for _ in range(steps):
        name, may_go, arguments = random.choice(MOVES)
        if may_go(machine):
            getattr(machine, name)(*arguments(random))
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

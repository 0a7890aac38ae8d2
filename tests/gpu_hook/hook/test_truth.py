"""The hook's charges equal the device's missing bytes, after every step of any program."""

from __future__ import annotations

import os
from collections.abc import Callable
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
@pytest.mark.timeout(max(300, 240 * SOAK))
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


@pytest.mark.soak
@pytest.mark.timeout(max(300, 120 * SOAK))
@pytest.mark.parametrize("quota", [96 * MIB, 512 * MIB], ids=["below_device", "above_device"])
def test_what_is_charged_is_what_is_used_when_the_driver_fails(
    make_node: Callable[..., Any], families: Any, quota: int
) -> None:
    machine = families.configure(make_node(devices=1, memory="256MiB"), quota, FAULTS)()
    families.walk(machine, seed=20, steps=1500 * SOAK)

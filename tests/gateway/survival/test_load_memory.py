"""The memory of measured loads: from agents' reports to profiles, pairs and a model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_aliquot.gateway.planning.colocation import NO_LOADS, Profile
from jupyter_aliquot.gateway.scheduling.ledger import Holding, KernelRef, LedgerSnapshot
from jupyter_aliquot.gateway.state.load_memory import MOST_EARLIER, NEW_PAIRS, LoadMemory
from jupyter_aliquot.gpu_hook.client.compute_reports import ComputeStatus, DeviceLoad
from jupyter_aliquot.gpu_hook.client.reports import KernelDeviceStatus, KernelStatus, NodeStatus
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request


def a_kernel(
    name: str, *loads: float, uuid: str = "GPU", slowdown: float | None = None, used: float = 0.5
) -> KernelStatus:
    """Return a kernel with these loads, each on a device of its own; without any it has not worked."""
    compute = ComputeStatus(0.5, used, 1.0, slowdown)
    devices = tuple(
        KernelDeviceStatus(
            f"{uuid}{at}", at, 50, 1, 0, 0, 0, 0.0, 0, compute=compute, load=DeviceLoad(load, 0.2, 10, True)
        )
        for at, load in enumerate(loads)
    )
    return KernelStatus(name, "ann", "", 50, None, "production", 1, (), 0.0, "holds", (1,), False, devices)


def a_status(*kernels: KernelStatus) -> NodeStatus:
    return NodeStatus("n", "softgpu", "hook", (), kernels, 1)


def a_ledger(*names: str, owner: str = "ann", kernelspec: str = "python3.gpu-0.5") -> LedgerSnapshot:
    request = Request(GpuShare(50))
    held = {
        one: Holding(Grant(one, owner, request, "n", (), "", ()), KernelRef(one, owner, kernelspec=kernelspec), 0.0)
        for one in names
    }
    return LedgerSnapshot(holdings=held)


def test_kernels_that_have_worked_have_a_profile_in_steps_until_they_end() -> None:
    memory = LoadMemory()
    assert memory.now() is NO_LOADS
    memory.note_status(None)
    memory.note_status(a_status(a_kernel("idle"), a_kernel("heavy", 0.94), a_kernel("wide", 0.2, 0.6)))
    assert memory.now().of_kernels == {"heavy": Profile(0.2, 0.9), "wide": Profile(0.2, 0.4)}
    assert memory.now() is memory.now()
    memory.note_status(a_status(a_kernel("wide", 0.2, 0.6)))
    assert memory.now().of_kernels == {"wide": Profile(0.2, 0.4)}


def test_the_last_load_of_an_owners_kernelspec_outlives_the_kernel_whatever_its_size() -> None:
    memory = LoadMemory()
    memory.note_status(a_status(a_kernel("k", 0.9)))
    memory.note(a_ledger("k"))
    memory.note_status(a_status())
    memory.note(a_ledger())
    found = memory.now().newcomer("ann", "python3", 0.1, is_normal=True)
    assert found is not None
    assert (found.profile, found.is_measured) == (Profile(0.2, 0.9), True)


def test_earlier_loads_are_bounded() -> None:
    memory = LoadMemory()
    for at in range(MOST_EARLIER + 5):
        memory.note_status(a_status(a_kernel("k", 0.9)))
        memory.note(a_ledger("k", owner=f"u{at}"))
    assert len(memory.now().of_earlier) == MOST_EARLIER
    assert ("u0", "python3") not in memory.now().of_earlier


def test_pairs_that_share_a_device_teach_a_model() -> None:
    memory = LoadMemory()
    before = memory.now().model
    for at in range(NEW_PAIRS):
        one = a_kernel(f"a{at}", at / NEW_PAIRS, slowdown=2.0)
        memory.note_status(a_status(one, a_kernel(f"b{at}", at / NEW_PAIRS, slowdown=1.1)))
    model = memory.now().model
    assert model is not before
    assert model.of(Profile(0.2, 0.1), Profile(0.2, 0.1)).mean == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    "other",
    [
        a_kernel("b", 0.5, uuid="other", slowdown=2.0),  # on another device
        a_kernel("b", 0.5, slowdown=2.0, used=0.0),  # it does not work now
        a_kernel("b", slowdown=2.0),  # never measured
    ],
)
def test_kernels_that_do_not_work_side_by_side_teach_nothing(other: KernelStatus) -> None:
    memory = LoadMemory()
    before = memory.now().model
    for at in range(NEW_PAIRS):
        one = a_kernel(f"a{at}", 0.5, slowdown=2.0)
        memory.note_status(a_status(one, replace(other, kernel_id=f"b{at}")))
    assert memory.now().model is before

"""Enforcers under faults.

Cgroups go, kernels run within kernels, and one kernel's fault stays its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_aliquot.gpu_hook.agent.enforcers.base import EnforcerError, HookEnforcer, KernelLimits
from jupyter_aliquot.gpu_hook.agent.enforcers.cgroups import CgroupHierarchy
from jupyter_aliquot.gpu_hook.agent.enforcers.choice import Choice
from jupyter_aliquot.gpu_hook.agent.enforcers.driver import DriverEnforcer, DriverLimit
from jupyter_aliquot.gpu_hook.agent.enforcers.enforcement import Enforcement
from jupyter_aliquot.gpu_hook.agent.enforcers.mps import MpsEnforcer
from jupyter_aliquot.gpu_hook.agent.kernels.kernel import Kernel
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol import codec as protocol


class AMachine:
    """Cgroups and a /proc in a folder: plain files, which Linux does not fill by itself."""

    def __init__(self, folder: Path) -> None:
        self._cgroups, self._proc = folder / "cgroup", folder / "proc"
        self._cgroups.mkdir()
        self.hierarchy = CgroupHierarchy(self._cgroups, proc=self._proc)

    def put(self, cgroups: Mapping[str, list[int]]) -> None:
        """Set the processes of these cgroups."""
        for name, pids in cgroups.items():
            self.folder(name).mkdir(parents=True, exist_ok=True)
            (self.folder(name) / "cgroup.procs").write_text("\n".join(map(str, pids)))
            for pid in pids:
                (self._proc / str(pid)).mkdir(parents=True, exist_ok=True)
                (self._proc / str(pid) / "cgroup").write_text(f"0::/{name}\n")

    def remove(self, name: str) -> None:
        (self.folder(name) / "cgroup.procs").unlink()
        self.folder(name).rmdir()

    def folder(self, name: str) -> Path:
        return self._cgroups / name


@pytest.fixture
def a_machine(tmp_path: Path) -> AMachine:
    return AMachine(tmp_path)


def test_a_restarted_kernel_in_a_new_container_has_the_new_ones_cgroup(a_machine: AMachine) -> None:
    a_machine.put({"box-1": [101]})
    assert a_machine.hierarchy.leaf_of("k", [101]) == a_machine.folder("box-1")
    a_machine.remove("box-1")
    a_machine.put({"box-2": [102]})
    assert a_machine.hierarchy.leaf_of("k", [102]) == a_machine.folder("box-2")
    assert not a_machine.folder("box-1").exists()


def test_no_process_is_moved_out_of_the_cgroup_of_its_container(a_machine: AMachine) -> None:
    a_machine.put({"box-1": [101]})
    assert a_machine.hierarchy.leaf_of("k", [101]) == a_machine.folder("box-1")
    a_machine.put({"box-1": [], "box-2": [102]})
    assert a_machine.hierarchy.leaf_of("k", [102]) == a_machine.folder("box-2")
    assert (a_machine.folder("box-1") / "cgroup.procs").read_text() == ""


def test_a_kernel_that_a_notebook_started_is_not_within_the_notebooks_limit(a_machine: AMachine) -> None:
    a_machine.put({"shared": [1], "shared/aliquot-outer": [101, 102]})
    assert a_machine.hierarchy.leaf_of("outer", [101]) == a_machine.folder("shared/aliquot-outer")
    assert a_machine.hierarchy.leaf_of("inner", [102]) == a_machine.folder("shared/aliquot-inner")


def test_a_cgroup_that_cannot_be_read_is_an_error_of_this_kernel(a_machine: AMachine) -> None:
    a_machine.put({"box": [101]})
    (a_machine.folder("box") / "cgroup.procs").unlink()
    with pytest.raises(EnforcerError, match=r"kernel k .*cgroup\.procs"):
        a_machine.hierarchy.leaf_of("k", [101])


def test_a_cgroup_outside_of_our_namespace_is_none(a_machine: AMachine) -> None:
    a_machine.put({"..": [101]})
    assert a_machine.hierarchy.folder_of(101) is None


class OneLost(DriverEnforcer):
    """A driver that lost its first device."""

    def __init__(self, hierarchy: CgroupHierarchy) -> None:
        super().__init__(Path("libnvidia-ml.so.1"), hierarchy)
        self.limits: dict[str, tuple[int, int]] = {}

    def read(self, leaf: Path, uuid: str) -> DriverLimit:
        if uuid == "GPU-a0":
            raise EnforcerError("GPU-a0 is lost")
        return DriverLimit(*self.limits.get(uuid, (0, 0)), used_bytes=0)

    def _set(self, leaf: Path, uuid: str, soft_bytes: int, hard_bytes: int) -> None:
        if uuid == "GPU-a0":
            raise EnforcerError("GPU-a0 is lost")
        self.limits[uuid] = (soft_bytes, hard_bytes)


def test_a_lost_device_does_not_cost_the_limits_on_the_others(a_machine: AMachine) -> None:
    a_machine.put({"box": [101]})
    driver = OneLost(a_machine.hierarchy)
    limits = KernelLimits("k", (Part("GPU-a0", 0, 100, 8), Part("GPU-a1", 1, 50, 4)), (101,))
    with pytest.raises(EnforcerError, match="GPU-a0 is lost"):
        driver.hold(limits)
    assert driver.limits == {"GPU-a1": (4, 4)}
    with pytest.raises(EnforcerError, match="GPU-a0 is lost"):
        driver.release("k")
    assert driver.limits == {"GPU-a1": (0, 2**64 - 1)}


class Faulty(HookEnforcer):
    """Fails for kernel ``bad`` in a way that no enforcer should."""

    name = "driver"
    word = protocol.Enforcer.DRIVER

    def hold(self, limits: KernelLimits) -> tuple[str, ...]:
        if limits.kernel_id == "bad":
            raise ZeroDivisionError
        return ()


def test_a_fault_with_one_kernel_costs_the_others_nothing_and_is_shown() -> None:
    words: dict[str, protocol.Enforcer] = {}

    def kernel(name: str) -> Any:
        reservation = SimpleNamespace(parts=())
        return SimpleNamespace(
            kernel_id=name, reservation=reservation, pids=[1], set_enforcer=lambda word: words.update({name: word})
        )

    kernels = [cast(Kernel, kernel("bad")), cast(Kernel, kernel("good"))]
    enforcement = Enforcement(Choice(Faulty(), ()), lambda: kernels, tuple)
    asyncio.run(enforcement.hold())
    assert enforcement.state_of("good") == "holds"
    assert enforcement.state_of("bad").startswith("failed: a defect of the agent (ZeroDivisionError")
    assert words == {"good": protocol.Enforcer.DRIVER, "bad": protocol.Enforcer.HOOK}


class Movers(HookEnforcer):
    """Moves a kernel to another device while it holds its limits."""

    name = "driver"
    word = protocol.Enforcer.DRIVER

    def __init__(self, kernel: Any) -> None:
        self.held: list[tuple[Part, ...]] = []
        self._kernel = kernel

    def hold(self, limits: KernelLimits) -> tuple[str, ...]:
        self.held.append(limits.parts)
        self._kernel.reservation = SimpleNamespace(parts=(Part("GPU-a1", 1, 50, 4),))
        return ()


def test_the_hook_holds_the_limits_of_a_moved_kernel_until_the_driver_does() -> None:
    words: list[protocol.Enforcer] = []
    kernel = SimpleNamespace(kernel_id="k", pids=[1], set_enforcer=words.append)
    kernel.reservation = SimpleNamespace(parts=(Part("GPU-a0", 0, 50, 4),))
    movers = Movers(kernel)
    enforcement = Enforcement(Choice(movers, ()), lambda: [cast(Kernel, kernel)], tuple)
    asyncio.run(enforcement.hold())
    assert words == [], "its limits are on the device before"
    asyncio.run(enforcement.hold())
    assert words == [protocol.Enforcer.DRIVER]
    assert [part.uuid for (part,) in movers.held] == ["GPU-a0", "GPU-a1"]


def test_a_pipe_directory_that_cannot_be_looked_at_keeps_no_agent_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-cuda-mps-control"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = MpsEnforcer(tmp_path / ("n" * 300)).unavailable()
    assert "File name too long" in reason
    assert "CUDA_MPS_PIPE_DIRECTORY" in reason

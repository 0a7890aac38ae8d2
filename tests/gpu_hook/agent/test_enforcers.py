"""The choice of the enforcer, the settings for MPS, and the kernel's own cgroup."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.agent.enforcers.base import EnforcerError, HookEnforcer, KernelLimits
from jupyter_aliquot.gpu_hook.agent.enforcers.cgroups import CgroupHierarchy, find_hierarchy
from jupyter_aliquot.gpu_hook.agent.enforcers.choice import choose
from jupyter_aliquot.gpu_hook.agent.enforcers.driver import DriverEnforcer
from jupyter_aliquot.gpu_hook.agent.enforcers.mps import MpsEnforcer
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol import codec as protocol

MIB = 1 << 20
PARTS = (Part("GPU-a0", 3, 100, 4096 * MIB), Part("GPU-a1", 5, 50, 2048 * MIB))


class Absent(HookEnforcer):
    name = "driver"
    word = protocol.Enforcer.DRIVER

    def unavailable(self) -> str:
        return "the driver is too old"


class Present(HookEnforcer):
    name = "mps"
    word = protocol.Enforcer.MPS


ALL = (HookEnforcer(), Absent(), Present())


class TestChoice:
    def test_auto_is_the_hook_and_says_why_the_others_are_not_in_force(self) -> None:
        choice = choose("auto", ALL)
        assert choice.enforcer.name == "hook"
        hook, driver, mps = choice.reports
        assert (hook.in_force, hook.experimental, hook.reason) == (True, False, "")
        assert (driver.available, driver.reason) == (False, "the driver is too old")
        assert (mps.available, mps.experimental) == (True, True)
        assert "--enforcer mps" in mps.reason

    def test_an_experimental_one_is_in_force_when_it_is_asked_for(self) -> None:
        choice = choose("mps", ALL)
        assert choice.enforcer.name == "mps"
        assert [report.in_force for report in choice.reports] == [False, False, True]
        assert "--enforcer hook" in choice.reports[0].reason

    def test_one_that_is_not_there_is_an_error_and_no_silent_hook(self) -> None:
        with pytest.raises(EnforcerError, match=r"Requested --enforcer driver, .* the driver is too old"):
            choose("driver", ALL)

    def test_an_agent_does_not_start_without_what_was_asked(self, an_idle_node: Any) -> None:
        done = subprocess.run(
            an_idle_node.command("--enforcer", "driver"), capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 1
        assert (
            "Requested --enforcer driver, but this node does not have it: the driver has no nvmlDeviceSet"
            in done.stderr
        )

    def test_the_status_names_all_of_them(self, a_node: Any) -> None:
        status = a_node.status()
        assert status["enforcer"] == "hook"
        assert [report["name"] for report in status["enforcers"]] == ["hook", "driver", "mps"]
        assert all(report["reason"] for report in status["enforcers"][1:])

    def test_a_driver_before_release_615_is_told_so(self) -> None:
        reason = DriverEnforcer(Path("libc.so.6"), None).unavailable()
        assert "release 615" in reason


@pytest.fixture
def a_control_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the folder with the control program of MPS.

    The program is a stand-in, which answers as ``answer`` says.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "nvidia-cuda-mps-control"
    program.write_text('#!/bin/sh\nread question\n[ "$question" = get_server_list ] || exit 3\n. "$0.answer"\n')
    program.chmod(0o755)
    Path(f"{program}.answer").write_text("exit 0\n")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return Path(f"{program}.answer")


@pytest.fixture
def a_pipe_directory(tmp_path: Path) -> Path:
    folder = tmp_path / "pipe"
    folder.mkdir()
    (folder / "control").touch()
    return folder


def a_started_program(env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a program, and wait until its environment can be read: during exec there is none."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"
    return process


class TestMps:
    def test_limits_are_by_the_kernels_own_ordinals_and_whole_devices_stay_whole(self, a_pipe_directory: Path) -> None:
        env = MpsEnforcer(a_pipe_directory).environment(PARTS)
        assert env == {
            "CUDA_MPS_PIPE_DIRECTORY": str(a_pipe_directory),
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M,1=2048M",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
        }

    def test_it_is_there_when_a_control_daemon_answers(self, a_control_program: Path, a_pipe_directory: Path) -> None:
        assert MpsEnforcer(a_pipe_directory).unavailable() == ""

    def test_a_daemon_that_does_not_answer_is_none(self, a_control_program: Path, a_pipe_directory: Path) -> None:
        a_control_program.write_text("echo 'Cannot find MPS control daemon process' >&2; exit 1\n")
        assert "Cannot find MPS control daemon" in MpsEnforcer(a_pipe_directory).unavailable()

    def test_a_wrong_pipe_directory_is_told(self, a_control_program: Path, tmp_path: Path) -> None:
        assert "CUDA_MPS_PIPE_DIRECTORY" in MpsEnforcer(tmp_path / "none").unavailable()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
    def test_a_daemon_of_another_user_is_told(self, a_control_program: Path, a_pipe_directory: Path) -> None:
        os.chown(a_pipe_directory, 65534, -1)
        assert "uid 65534's" in MpsEnforcer(a_pipe_directory).unavailable()

    def test_without_the_control_program_it_is_not_there(
        self, a_pipe_directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(a_pipe_directory))
        assert "not on PATH" in MpsEnforcer(a_pipe_directory).unavailable()

    def test_a_process_with_other_limits_is_told_once(self, a_pipe_directory: Path) -> None:
        mps = MpsEnforcer(a_pipe_directory)
        good = {**os.environ, **mps.environment(PARTS)}
        for env, want in ((good, 0), ({**good, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=9G"}, 1)):
            with a_started_program(env) as process:
                limits = KernelLimits("k", PARTS, (process.pid,))
                drifts = mps.hold(limits)
                assert len(drifts) == want
                assert all("PINNED_DEVICE_MEM_LIMIT" in drift for drift in drifts)
                assert mps.hold(limits) == ()
                process.communicate(b"\n")

    def test_after_a_resize_a_running_process_is_told_to_be_restarted(self, a_pipe_directory: Path) -> None:
        mps = MpsEnforcer(a_pipe_directory)
        env = {**os.environ, **mps.environment(PARTS)}
        with a_started_program(env) as process:
            (drift,) = mps.hold(KernelLimits("k", PARTS[:1], (process.pid,)))
            assert "until it is restarted" in drift
            process.communicate(b"\n")


class TestCgroups:
    def test_version_2_is_preferred_and_version_1_must_be_allowed(self, tmp_path: Path) -> None:
        assert find_hierarchy(True, tmp_path) is None
        (tmp_path / "memory").mkdir()
        assert find_hierarchy(False, tmp_path) is None
        found = find_hierarchy(True, tmp_path)
        assert found is not None
        assert found.root == tmp_path / "memory"
        (tmp_path / "cgroup.controllers").touch()
        found = find_hierarchy(True, tmp_path)
        assert found is not None
        assert found.root == tmp_path

    @pytest.fixture
    def a_hierarchy(self) -> CgroupHierarchy:
        hierarchy = find_hierarchy(may_be_version_1=True)
        reason = "no cgroup hierarchy is mounted" if hierarchy is None else hierarchy.unavailable()
        if os.geteuid() != 0 or hierarchy is None or reason:
            pytest.skip(f"no cgroup can be made here: {reason or 'that needs root'}")
        return hierarchy

    @pytest.fixture
    def a_process(self) -> Iterator[int]:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            yield process.pid
            process.communicate(b"\n")

    def test_a_process_that_shares_a_cgroup_moves_to_one_of_its_own(
        self, a_hierarchy: CgroupHierarchy, a_process: int
    ) -> None:
        shared = a_hierarchy.folder_of(a_process)
        assert shared is not None
        leaf = a_hierarchy.leaf_of("test-e1", [a_process])
        try:
            assert leaf == shared / "aliquot-test-e1"
            assert a_hierarchy.folder_of(a_process) == leaf
            assert a_hierarchy.folder_of(os.getpid()) == shared
            assert CgroupHierarchy(a_hierarchy.root, a_hierarchy._controller).leaf_of("test-e1", [a_process]) == leaf
        finally:
            (shared / "cgroup.procs").write_text(str(a_process))
            a_hierarchy.forget("test-e1")
        assert not leaf.exists()

    def test_a_cgroup_that_a_runtime_made_for_the_kernel_alone_is_taken(
        self, a_hierarchy: CgroupHierarchy, a_process: int
    ) -> None:
        shared = a_hierarchy.folder_of(a_process)
        assert shared is not None
        container = shared / "test-e2-container"
        container.mkdir()
        try:
            (container / "cgroup.procs").write_text(str(a_process))
            assert a_hierarchy.leaf_of("test-e2", [a_process]) == container
            a_hierarchy.forget("test-e2")
            assert container.exists()
        finally:
            (shared / "cgroup.procs").write_text(str(a_process))
            container.rmdir()

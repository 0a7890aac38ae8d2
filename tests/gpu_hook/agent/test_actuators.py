"""The choice of actuators, the environment that each gives a kernel, and the settings that need a restart."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.agent.actuators.actuation import ChosenActuators
from jupyter_aliquot.gpu_hook.agent.actuators.base import ActuatorError, KernelCompute, Pacing
from jupyter_aliquot.gpu_hook.agent.actuators.choice import ACTUATORS, AUTO, choose_actuators, read_actuators
from jupyter_aliquot.gpu_hook.agent.actuators.mps import Mps
from jupyter_aliquot.gpu_hook.placement.placement import Part

MIB = 1 << 20
PARTS = (Part("GPU-a0", 3, 100, 4096 * MIB), Part("GPU-a1", 5, 25, 1024 * MIB))
PRODUCTION = KernelCompute("p", "production", PARTS)
OPPORTUNISTIC = KernelCompute("o", "opportunistic", PARTS)
CAPPED = KernelCompute("c", "opportunistic", PARTS, is_capped=True)


class Absent(Pacing):
    name = "mps"

    def unavailable(self) -> str:
        return "the driver is too old"


class Opt(Pacing):
    name = "mps"


class TestChoice:
    def test_auto_is_pacing_alone(self) -> None:
        chosen = choose_actuators(read_actuators("auto"), (Pacing(), Absent()))
        assert (chosen.names, chosen.paces, chosen.runs_side_by_side) == (AUTO, True, False)
        pacing, absent = chosen.reports
        assert (pacing.in_force, pacing.reason) == (True, "")
        assert (absent.available, absent.reason) == (False, "the driver is too old")
        _, there = choose_actuators(read_actuators("auto"), (Pacing(), Opt())).reports
        assert (there.available, there.reason) == (True, "not requested; request it with --compute-actuators …,mps")

    def test_one_that_is_not_there_is_an_error(self) -> None:
        with pytest.raises(ActuatorError, match=r"Requested --compute-actuators mps, .* too old"):
            choose_actuators(read_actuators("pacing,mps"), (Pacing(), Absent()))

    @pytest.mark.parametrize("text", ["", "hook", "auto,pacing", "pacing,pacing", "pacing,"])
    def test_a_list_that_means_nothing_is_refused_with_the_names(self, text: str) -> None:
        with pytest.raises(argparse.ArgumentTypeError, match=r"is not valid: .*Use auto, or some of pacing,"):
            read_actuators(text)

    def test_environments_of_several_are_put_together(self) -> None:
        class One(Pacing):
            def environment(self, kernel: KernelCompute) -> Mapping[str, str]:
                return {"ONE": kernel.kernel_id}

        class Other(Pacing):
            def environment(self, kernel: KernelCompute) -> Mapping[str, str]:
                return {"OTHER": "x"}

        assert ChosenActuators((One(), Other()), ()).environment(CAPPED) == {"ONE": "c", "OTHER": "x"}


@pytest.fixture
def a_folder_of_pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make pipe directories of both classes, and a control program that answers for them.

    The program is a stand-in.
    """
    program = tmp_path / "bin" / "nvidia-cuda-mps-control"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nread question\n[ -e "$CUDA_MPS_PIPE_DIRECTORY/control" ] || exit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for name in ("production", "opportunistic"):
        (tmp_path / "pools" / name).mkdir(parents=True)
        (tmp_path / "pools" / name / "control").touch()
    return tmp_path / "pools"


def an_mps(folder: Path) -> Mps:
    mps = Mps(folder)
    assert mps.unavailable() == ""
    return mps


class TestMps:
    def test_each_class_has_a_server_of_its_own_and_production_goes_first(self, a_folder_of_pools: Path) -> None:
        mps = an_mps(a_folder_of_pools)
        assert mps.environment(PRODUCTION) == {
            "CUDA_MPS_PIPE_DIRECTORY": str(a_folder_of_pools / "production"),
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
            "CUDA_MPS_CLIENT_PRIORITY": "0",
        }
        assert mps.environment(OPPORTUNISTIC) == {
            "CUDA_MPS_PIPE_DIRECTORY": str(a_folder_of_pools / "opportunistic"),
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
            "CUDA_MPS_CLIENT_PRIORITY": "1",
        }

    def test_only_a_cap_is_a_percentage_and_whole_devices_stay_whole(self, a_folder_of_pools: Path) -> None:
        mps = an_mps(a_folder_of_pools)
        part_only = KernelCompute("c", "opportunistic", PARTS[1:], is_capped=True)
        assert mps.environment(part_only)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
        assert mps.environment(CAPPED)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "100"

    def test_a_class_without_a_daemon_goes_without_mps(self, a_folder_of_pools: Path) -> None:
        (a_folder_of_pools / "production" / "control").unlink()
        mps = an_mps(a_folder_of_pools)
        assert mps.classes == ("opportunistic",)
        assert mps.environment(PRODUCTION) == {}
        assert mps.environment(OPPORTUNISTIC)

    def test_without_any_daemon_it_is_not_there_and_says_of_which_class(self, tmp_path: Path) -> None:
        reason = Mps(tmp_path / "none").unavailable()
        assert "production: " in reason
        assert "opportunistic: " in reason

    def test_in_force_it_warns_of_faults(self, a_folder_of_pools: Path) -> None:
        candidates = (Pacing(), Mps(a_folder_of_pools))
        assert "fatal fault" in choose_actuators(("pacing", "mps"), candidates).reports[1].warning
        assert choose_actuators(("pacing",), candidates).reports[1].warning == ""

    def test_a_running_process_keeps_what_it_was_started_with(self, a_folder_of_pools: Path) -> None:
        mps = an_mps(a_folder_of_pools)
        env = {**os.environ, **mps.environment(OPPORTUNISTIC)}
        command = [sys.executable, "-c", "print(flush=True); input()"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"\n"  # during exec there is no environment
            assert mps.needs_restart(OPPORTUNISTIC, [process.pid]) == ()
            (text,) = mps.needs_restart(PRODUCTION, [process.pid])
            assert "CUDA_MPS_PIPE_DIRECTORY=" in text
            assert "until the kernel is restarted" in text
            process.communicate(b"\n")
        assert mps.needs_restart(PRODUCTION, [process.pid]) == ()


class TestAgent:
    def test_it_does_not_start_without_what_was_asked(self, an_idle_node: Any, tmp_path: Path) -> None:
        options = ("--compute-actuators", "pacing,mps", "--mps-folder", str(tmp_path / "none"))
        command = an_idle_node.command(*options)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert "Requested --compute-actuators mps, but this node does not have it: production: " in done.stderr

    def test_two_ways_of_mps_are_refused_together(self, an_idle_node: Any, a_folder_of_pools: Path) -> None:
        options = ("--compute-actuators", "mps", "--enforcer", "mps", "--mps-folder", str(a_folder_of_pools))
        env = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(a_folder_of_pools / "production")}
        command = an_idle_node.command(*options)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)
        assert done.returncode == 1
        assert "Request one of them" in done.stderr

    def test_the_status_names_all_of_them(self, a_node: Any) -> None:
        reports = a_node.status()["actuators"]
        assert [report["name"] for report in reports] == list(ACTUATORS)
        assert [report["in_force"] for report in reports] == [True, False]

    def test_a_change_of_class_names_who_has_to_be_restarted(
        self, an_idle_node: Any, open_holder: Any, a_folder_of_pools: Path
    ) -> None:
        an_idle_node.start("--compute-actuators", "pacing,mps", "--mps-folder", str(a_folder_of_pools))
        holder = open_holder()
        grant = holder.reserve(hundredths=25, workload_class="opportunistic")["grant"]
        assert grant["env"]["CUDA_MPS_PIPE_DIRECTORY"] == str(a_folder_of_pools / "opportunistic")
        env = {**os.environ, **{name: grant["env"][name] for name in grant["env"] if name.startswith("CUDA_MPS_")}}
        command = [sys.executable, "-c", "print(flush=True); input()"]
        with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"\n"
            started = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
            assert holder.ask("bind", kernel_id="k", pid=process.pid, start_time_ticks=int(started))["ok"]
            hook = an_idle_node.a_hook()
            hook.hello()

            # of this process; the hook's value is the test's own
            def told(needs_restart: list[str]) -> list[str]:
                return [text for text in needs_restart if text.startswith(f"pid {process.pid} ")]

            assert told(an_idle_node.kernel()["misfits"]) == []
            answer = holder.ask("resize", kernel_id="k", hundredths=25, workload_class="production")
            (misfit,) = told(answer["misfits"])
            assert "was started with CUDA_MPS_PIPE_DIRECTORY=" in misfit
            assert answer["grant"]["env"]["CUDA_MPS_PIPE_DIRECTORY"] == str(a_folder_of_pools / "production")
            assert told(an_idle_node.kernel()["misfits"]) == [misfit]
            process.communicate(b"\n")

"""The program aliquot-kernel-start: its reports, and the kernel's start whatever it finds."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook import paths
from jupyter_aliquot.gpu_hook.protocol.codec import (
    LARGEST_MESSAGE,
    SOCKET_NAME,
    Hello,
    Role,
    SelfCheck,
    SelfCheckResult,
    unpack,
)

MIB = 1 << 20
START = paths.native_dir() / "bin" / "aliquot-kernel-start"


def start(env: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(START), *command], env=env, capture_output=True, text=True, timeout=60)


def report_of(agent: Any) -> SelfCheckResult:
    def reports() -> list[SelfCheckResult]:
        return [one for one in agent.heard if isinstance(one, SelfCheckResult)]

    agent.wait_for(lambda: len(reports()) == 1)
    return reports()[0]


def test_the_program_starts_with_its_arguments_and_environment(a_node: Any) -> None:
    a_node.grant(("00" * 16, 64 * MIB))
    env = {**a_node.hooked_env, "MARK": "kept"}
    done = start(env, "--", "sh", "-c", 'echo "$MARK" "$0" "$1"', "a b", "--")
    assert (done.stdout, done.stderr, done.returncode) == ("kept a b --\n", "", 0)


def test_it_becomes_the_program_under_the_same_pid(a_node: Any) -> None:
    with subprocess.Popen(
        [str(START), "sh", "-c", "echo $$; ls /proc/self/fd | wc -l"], env=a_node.hooked_env, stdout=subprocess.PIPE
    ) as process:
        output, _ = process.communicate(timeout=60)
    pid, descriptors = output.split()
    assert int(pid) == process.pid
    assert int(descriptors) == 4  # three standard ones and the folder that ls reads


def test_a_sound_environment_passes_every_check(a_node: Any) -> None:
    agent = a_node.grant(("00" * 16, 64 * MIB))
    done = start(a_node.hooked_env, "true")
    report = report_of(agent)
    assert (report.passed, report.text, done.returncode) == (SelfCheck.ALL, "", 0)
    assert agent.heard[0].role is Role.CHECK


def test_a_covered_absolute_path_is_reported(a_node: Any) -> None:
    agent = a_node.grant(("00" * 16, 64 * MIB))
    env = {**a_node.hooked_env, "LD_AUDIT": str(paths.shim_dir() / "libaliquot-audit.so")}
    assert start(env, "true").returncode == 0
    assert report_of(agent).passed == SelfCheck.ALL | SelfCheck.ABSOLUTE_PATH


def test_the_preload_library_passes_every_check(a_node: Any, a_folder: Path) -> None:
    agent = a_node.grant(("00" * 16, 64 * MIB))
    names = ("libcuda.so.1", "libnvidia-ml.so.1", "libaliquot-preload.so")
    env = {**a_node.hooked_env, "LD_LIBRARY_PATH": str(paths.softgpu_driver().cuda.parent)}
    # The loader ends a name in LD_PRELOAD at a space, which the checkout's own path may have.
    (a_folder / "shim").symlink_to(paths.shim_dir())
    env["LD_PRELOAD"] = ":".join(str(a_folder / "shim" / name) for name in names)
    assert start(env, "true").returncode == 0
    assert report_of(agent).passed == SelfCheck.ALL | SelfCheck.ABSOLUTE_PATH


def test_without_the_library_path_every_check_fails_and_says_so(a_node: Any) -> None:
    agent = a_node.grant(("00" * 16, 64 * MIB))
    env = {name: value for name, value in a_node.hooked_env.items() if name != "LD_LIBRARY_PATH"}
    done = start(env, "true")
    assert done.returncode == 0
    assert "the memory limit of this kernel is not held" in done.stderr, "its user sees it, too"
    assert "libcuda.so.1: " in done.stderr
    report = report_of(agent)
    assert not report.passed & (SelfCheck.CUDA_NAME | SelfCheck.CUDA_LINK_NAME | SelfCheck.QUERY | SelfCheck.NVML_NAME)
    assert "libcuda.so.1: " in report.text


def test_a_driver_that_comes_first_is_named(a_node: Any) -> None:
    agent = a_node.grant(("00" * 16, 64 * MIB))
    driver = paths.softgpu_driver().cuda
    env = {**a_node.hooked_env, "LD_LIBRARY_PATH": f"{driver.parent}:{paths.shim_dir()}"}
    assert start(env, "true").returncode == 0
    report = report_of(agent)
    assert not report.passed & (SelfCheck.CUDA_NAME | SelfCheck.QUERY)
    assert str(driver) in report.text


def test_a_link_name_that_leads_past_the_hook_is_found(a_node: Any, a_folder: Path) -> None:
    agent = a_node.grant(("00" * 16, 64 * MIB))
    shutil.copy(paths.softgpu_driver().cuda, a_folder / "libcuda.so")
    env = {**a_node.hooked_env, "LD_LIBRARY_PATH": f"{a_folder}:{paths.shim_dir()}"}
    assert start(env, "true").returncode == 0
    report = report_of(agent)
    assert report.passed & SelfCheck.CUDA_NAME
    assert not report.passed & SelfCheck.CUDA_LINK_NAME
    assert not report.passed & SelfCheck.ONE_DRIVER
    assert f"{a_folder}/libcuda.so" in report.text


def test_the_kill_switch_is_reported(a_node: Any) -> None:
    agent = a_node.grant(("00" * 16, 64 * MIB))
    assert start({**a_node.hooked_env, "ALIQUOT_HOOK": "off"}, "true").returncode == 0
    assert not report_of(agent).passed & SelfCheck.QUERY


def test_a_library_that_crashes_at_loading_does_not_keep_the_kernel_from_starting(a_node: Any, a_folder: Path) -> None:
    agent = a_node.grant(("00" * 16, 64 * MIB))
    source = a_folder / "crash.c"
    source.write_text("__attribute__((constructor)) static void crash(void) { __builtin_trap(); }")
    library = a_folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    env = {**a_node.hooked_env, "LD_LIBRARY_PATH": f"{a_folder}:{paths.shim_dir()}"}
    assert start(env, "echo", "alive").stdout == "alive\n"
    report = report_of(agent)
    assert report.passed == 0
    assert "ended the process" in report.text


def test_without_an_agent_the_kernel_starts(a_node: Any) -> None:
    assert start(a_node.hooked_env, "echo", "alive").stdout == "alive\n"


def test_the_kernel_does_not_wait_for_an_agent_that_is_busy(a_node: Any) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(a_node.kernel_dir / SOCKET_NAME))
        listener.listen()
        assert start(a_node.hooked_env, "echo", "alive").stdout == "alive\n"
        connection, _ = listener.accept()
        with connection:
            hello, check, end = (unpack(data) if (data := connection.recv(LARGEST_MESSAGE)) else None for _ in range(3))
    assert isinstance(hello, Hello)
    assert isinstance(check, SelfCheckResult)
    assert (hello.role, check.passed, end) == (Role.CHECK, SelfCheck.ALL, None)


def test_outside_a_kernel_nothing_is_checked() -> None:
    assert start({"PATH": os.environ["PATH"]}, "echo", "alive").stdout == "alive\n"


def test_a_program_that_does_not_exist_is_127_with_a_reason(a_node: Any) -> None:
    done = start(a_node.hooked_env, "no-such-program")
    assert done.returncode == 127
    assert "cannot start no-such-program: No such file or directory" in done.stderr
    assert start(a_node.hooked_env).returncode == 127
    assert "usage" in start(a_node.hooked_env, "--").stderr

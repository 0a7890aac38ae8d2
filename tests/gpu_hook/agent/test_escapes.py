"""Processes of a kernel that go past the hook on the software GPU: found, named, and gone when they end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_start

from jupyter_aliquot.gpu_hook.agent.base.processes import start_time_ticks
from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, softgpu_driver, softgpu_state_path

MIB = 1 << 20
# Takes 64 MiB from the library in its argument, prints its pid, and waits for its stdin to end.
CLIENT = """
import ctypes, os, sys
cuda = ctypes.CDLL(sys.argv[1])
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(64 << 20)) == 0
print(os.getpid(), flush=True)
sys.stdin.read()
"""
# A kernel: runs the program in its arguments, and waits for it.
KERNEL = "import subprocess, sys; subprocess.run(sys.argv[1:])"


@pytest.fixture
def a_node_with_slack(an_idle_node: Any) -> Iterator[Any]:
    """Start an agent on the software GPU that lets a context take 32 MiB."""
    try:
        softgpu_driver()
    except PathError as error:
        pytest.skip(f"no software GPU: {error}")
    command = [
        sys.executable,
        "-m",
        "jupyter_aliquot.gpu_hook.agent",
        "--driver",
        "softgpu",
        "--softgpu-memory",
        "1GiB",
    ]
    log = an_idle_node.folder / "agent.log"
    command += ["--runtime-dir", str(an_idle_node.folder), "--log-file", str(log), "--context-slack", "32MiB"]
    an_idle_node.process = warm_start.start(warm_start.AGENT, command[1:])
    an_idle_node.until(an_idle_node.answers)
    yield an_idle_node
    remove_state(softgpu_state_path(RuntimeDir(an_idle_node.folder)))


@pytest.fixture
def start(a_node_with_slack: Any, open_holder: Callable[[], Any]) -> Callable[..., subprocess.Popen[str]]:
    """Start a bound process of kernel ``k`` that runs a command; return the command's output."""
    holder = open_holder()
    grant = holder.reserve()["grant"]

    def start_one(*command: str, **more_env: str) -> subprocess.Popen[str]:
        env = {**os.environ, **grant["env"], **more_env}
        env["LD_LIBRARY_PATH"] = env.pop("LD_LIBRARY_PATH_PREPEND")
        words = [word.format(**grant["env"]) for word in command]
        process = subprocess.Popen(
            [sys.executable, "-c", KERNEL, *words],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        a_node_with_slack.helpers.append(process)
        assert holder.ask("bind", kernel_id="k", pid=process.pid, start_time_ticks=start_time_ticks(process.pid))["ok"]
        return process

    return start_one


IN_A_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
WITHOUT = "ALIQUOT_SOFTGPU_CONTEXT=0"
STRIPPED = ("env", "-i", "ALIQUOT_SOFTGPU_STATE={ALIQUOT_SOFTGPU_STATE}", WITHOUT, sys.executable, "-c", CLIENT)


def unhooked(node: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.kernel()["unhooked_processes"]
    return found


def test_a_process_that_cleared_its_environment_is_found(
    a_node_with_slack: Any, start: Callable[..., subprocess.Popen[str]]
) -> None:
    kernel = start(*STRIPPED, "{ALIQUOT_REAL_CUDA}")
    assert kernel.stdout is not None
    pid = int(kernel.stdout.readline())
    (found,) = a_node_with_slack.until(lambda: unhooked(a_node_with_slack))
    assert (found["pid"], found["used_bytes"], found["charged_bytes"]) == (pid, 64 * MIB, 0)
    assert (found["index"], found["why"]) == (0, "not registered")
    assert found["name"].startswith("python")
    assert f"event=unhooked_process kernel=k pid={pid}" in a_node_with_slack.log()
    kernel.communicate("")
    a_node_with_slack.until(lambda: not unhooked(a_node_with_slack))


def test_a_process_with_the_hook_is_none_and_its_context_is_shown_beside_its_charge(
    a_node_with_slack: Any, start: Callable[..., subprocess.Popen[str]]
) -> None:
    kernel = start(sys.executable, "-c", CLIENT, "libcuda.so.1", ALIQUOT_SOFTGPU_CONTEXT="20MiB")
    assert kernel.stdout is not None
    kernel.stdout.readline()
    a_node_with_slack.until(lambda: a_node_with_slack.device()["context_bytes"] == 20 * MIB)
    assert a_node_with_slack.device()["charged_bytes"] == 64 * MIB
    assert unhooked(a_node_with_slack) == []
    kernel.communicate("")
    a_node_with_slack.until(lambda: a_node_with_slack.device()["context_bytes"] == 0)


def test_a_hooked_process_that_holds_more_than_its_charge_and_the_slack_is_found(
    a_node_with_slack: Any, start: Callable[..., subprocess.Popen[str]]
) -> None:
    kernel = start(sys.executable, "-c", CLIENT, "libcuda.so.1", ALIQUOT_SOFTGPU_CONTEXT="40MiB")
    assert kernel.stdout is not None
    pid = int(kernel.stdout.readline())
    (found,) = a_node_with_slack.until(lambda: unhooked(a_node_with_slack))
    assert (found["pid"], found["used_bytes"], found["charged_bytes"]) == (pid, 104 * MIB, 64 * MIB)
    assert found["why"] == "past its charge"
    kernel.communicate("")


def test_a_process_of_nobodys_kernel_is_shown_with_the_node(
    a_node_with_slack: Any, open_holder: Callable[[], Any]
) -> None:
    grant = open_holder().reserve()["grant"]["env"]
    env = {name: grant[name] for name in ("ALIQUOT_SOFTGPU_STATE", "ALIQUOT_SOFTGPU_CONTEXT")}
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, grant["ALIQUOT_REAL_CUDA"]],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        (found,) = a_node_with_slack.until(lambda: a_node_with_slack.status()["foreign_processes"])
        assert (found["pid"], found["used_bytes"]) == (pid, 64 * MIB)
        assert unhooked(a_node_with_slack) == []
        process.communicate("")


def test_processes_of_a_pid_namespace_are_their_kernels_whether_hooked_or_not(
    a_node_with_slack: Any, start: Callable[..., subprocess.Popen[str]]
) -> None:
    node = a_node_with_slack
    if subprocess.run([*IN_A_NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid and mount namespaces here: run as root")
    kernel = start(*IN_A_NAMESPACE, sys.executable, "-c", CLIENT, "libcuda.so.1", ALIQUOT_SOFTGPU_CONTEXT="20MiB")
    assert kernel.stdout is not None
    assert kernel.stdout.readline() == "1\n", "its own name for itself"
    node.until(lambda: node.device()["context_bytes"] == 20 * MIB)
    hooked = next(pid for pid in node.kernel()["pids"] if pid != kernel.pid)
    assert (unhooked(node), node.status()["foreign_processes"]) == ([], [])
    grant = dict(word.split("=", 1) for word in environment_of(hooked) if word.startswith("ALIQUOT_"))
    # As an engine's exec: into the namespaces, but with another parent, session and environment.
    with subprocess.Popen(
        ["nsenter", "-t", str(hooked), "-p", "-m", sys.executable, "-c", CLIENT, grant["ALIQUOT_REAL_CUDA"]],
        env={"ALIQUOT_SOFTGPU_STATE": grant["ALIQUOT_SOFTGPU_STATE"], "ALIQUOT_SOFTGPU_CONTEXT": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as entered:
        assert entered.stdout is not None
        inner = entered.stdout.readline().strip()
        (found,) = node.until(lambda: unhooked(node))
        assert (found["used_bytes"], found["why"]) == (64 * MIB, "not registered")
        assert Path(f"/proc/{found['pid']}/status").read_text().partition("NSpid:")[2].split()[:2] == [
            str(found["pid"]),
            inner,
        ]
        assert node.status()["foreign_processes"] == []
        entered.communicate("")
    kernel.communicate("")
    node.until(lambda: node.status()["devices"][0]["used_bytes"] == 0)


def environment_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")

"""The agent on the real software GPU: its NVML, its state file, and their faults."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_start

from jupyter_aliquot.gpu_hook.agent.base.processes import start_time_ticks
from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import is_in_use, prepare, remove as remove_state
from jupyter_aliquot.gpu_hook.client.client import query
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, softgpu_driver, softgpu_state_path

# Joins the software GPU, takes memory, reports it, and waits for its stdin to end.
CLIENT = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(64 << 20)) == 0
print("ready", flush=True)
sys.stdin.read()
"""

# Keeps the software GPU in use, with its first device lost until a line comes.
LOSER = """
import ctypes, sys
cuda, nvml = map(ctypes.CDLL, sys.argv[1:])
assert cuda.cuInit(0) == nvml.nvmlInit_v2() == nvml.aliquot_softgpu_set_lost(0, 1) == 0
print("lost", flush=True)
sys.stdin.readline()
nvml.aliquot_softgpu_set_lost(0, 0)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _a_built_software_gpu() -> None:
    try:
        softgpu_driver()
    except PathError as error:
        pytest.skip(f"no software GPU: {error}")


@pytest.fixture
def a_state(a_folder: Path) -> Iterator[Path]:
    state = softgpu_state_path(RuntimeDir(a_folder))
    yield state
    remove_state(state)


Start = Callable[..., "subprocess.Popen[bytes] | warm_start.WarmProcess"]


@pytest.fixture
def start(an_idle_node: Any, a_state: Path) -> Start:
    def start_one(*arguments: str) -> subprocess.Popen[bytes] | warm_start.WarmProcess:
        command = [sys.executable, "-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu"]
        log = an_idle_node.folder / "agent.log"
        command += ["--runtime-dir", str(an_idle_node.folder), "--log-file", str(log), *arguments]
        an_idle_node.process = warm_start.start(warm_start.AGENT, command[1:])
        an_idle_node.until(an_idle_node.answers)
        process: subprocess.Popen[bytes] | warm_start.WarmProcess = an_idle_node.process
        return process

    return start_one


def test_devices_are_as_asked_and_say_what_they_are(an_idle_node: Any, start: Start) -> None:
    start("--softgpu-devices", "2", "--softgpu-memory", "1GiB")
    devices = an_idle_node.status()["devices"]
    assert [device["name"] for device in devices] == ["Aliquot Software GPU"] * 2
    assert [device["memory_bytes"] for device in devices] == [1 << 30] * 2
    assert an_idle_node.status()["driver"] == "softgpu"


def test_memory_of_any_process_is_seen(
    an_idle_node: Any, start: Start, open_holder: Callable[[], Any], a_state: Path
) -> None:
    start("--softgpu-memory", "1GiB")
    grant = open_holder().reserve()["grant"]
    env = {**os.environ, **grant["env"]}
    del env["LD_LIBRARY_PATH_PREPEND"]
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, grant["env"]["ALIQUOT_REAL_CUDA"]],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    an_idle_node.helpers.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert is_in_use(a_state)
    an_idle_node.until(lambda: an_idle_node.status()["devices"][0]["used_bytes"] == 64 << 20)
    process.kill()
    an_idle_node.until(lambda: an_idle_node.status()["devices"][0]["used_bytes"] == 0)
    assert not is_in_use(a_state)


def test_a_device_that_is_lost_at_the_start_costs_only_itself(
    an_idle_node: Any, start: Start, a_folder: Path, a_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = softgpu_driver()
    prepare(a_state, RuntimeDir(a_folder))
    monkeypatch.setenv("ALIQUOT_SOFTGPU_STATE", str(a_state))
    program = subprocess.Popen(
        [sys.executable, "-c", LOSER, str(driver.cuda), str(driver.nvml)],
        env={**os.environ, "ALIQUOT_SOFTGPU_DEVICES": "2"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    an_idle_node.helpers.append(program)
    assert program.stdout is not None
    assert program.stdout.readline() == "lost\n"
    start()
    assert [device["index"] for device in an_idle_node.status()["devices"]] == [1]
    assert program.stdin is not None
    program.stdin.write("\n")
    program.stdin.flush()
    an_idle_node.until(lambda: [device["index"] for device in an_idle_node.status()["devices"]] == [0, 1])


def test_the_machine_goes_with_its_agent(an_idle_node: Any, start: Start, a_state: Path) -> None:
    start()
    assert a_state.exists()
    assert an_idle_node.end() == 0
    assert not a_state.exists()


@pytest.fixture
def an_abandoned_folder(an_idle_node: Any) -> Iterator[Path]:
    """The runtime folder of a killed agent.

    Its machine is there, until any agent of this user starts.
    """
    node = type(an_idle_node)(Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp")))
    command = [
        sys.executable,
        "-m",
        "jupyter_aliquot.gpu_hook.agent",
        "--driver",
        "softgpu",
        "--runtime-dir",
        str(node.folder),
    ]
    node.process = warm_start.start(warm_start.AGENT, [*command[1:], "--log-file", str(node.folder / "agent.log")])
    node.until(node.answers)
    node.end(9)
    yield node.folder
    shutil.rmtree(node.folder, ignore_errors=True)
    remove_state(softgpu_state_path(RuntimeDir(node.folder)))


@pytest.mark.parametrize("is_folder_gone", [True, False])
def test_a_machine_that_a_killed_agent_left_goes_when_another_agent_starts(
    start: Start, an_abandoned_folder: Path, is_folder_gone: bool
) -> None:
    left = softgpu_state_path(RuntimeDir(an_abandoned_folder))
    if is_folder_gone:
        shutil.rmtree(an_abandoned_folder)
    start()
    assert not left.parents[1].exists()


@pytest.mark.parametrize("why", ["an agent runs", "a kernel may live", "a process uses it", "an older agent made it"])
def test_a_machine_that_may_be_needed_stays_when_another_agent_starts(
    an_idle_node: Any, start: Start, an_abandoned_folder: Path, why: str
) -> None:
    other = softgpu_state_path(RuntimeDir(an_abandoned_folder))
    with contextlib.ExitStack() as stack:
        held = prepare(other, RuntimeDir(an_abandoned_folder))
        stack.callback(os.close, held)
        if why == "a kernel may live":
            RuntimeDir(an_abandoned_folder).kernel("k").mkdir()
        elif why == "an older agent made it":
            (other.parents[1] / "runtime").unlink()
        elif why == "a process uses it":
            environment = {**os.environ, "ALIQUOT_SOFTGPU_STATE": str(other)}
            program = [sys.executable, "-c", CLIENT, str(softgpu_driver().cuda)]
            process = subprocess.Popen(program, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            an_idle_node.helpers.append(process)
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        if why != "an agent runs":
            fcntl.flock(held, fcntl.LOCK_UN)
        start()
        assert other.exists()


def test_a_new_agent_makes_a_machine_of_its_own_settings(an_idle_node: Any, start: Start) -> None:
    start("--softgpu-memory", "1GiB")
    an_idle_node.end(9)
    start("--softgpu-memory", "2GiB")
    assert an_idle_node.status()["devices"][0]["memory_bytes"] == 2 << 30


def test_a_machine_that_cannot_be_made_ends_the_agent_with_one_line(a_folder: Path, a_state: Path) -> None:
    a_state.mkdir(parents=True)
    command = [
        sys.executable,
        "-m",
        "jupyter_aliquot.gpu_hook.agent",
        "--driver",
        "softgpu",
        "--runtime-dir",
        str(a_folder),
    ]
    result = subprocess.run(
        [*command, "--log-file", os.devnull], capture_output=True, text=True, timeout=90, check=False
    )
    a_state.rmdir()
    assert result.returncode == 1
    assert str(a_state) in result.stderr
    assert result.stderr.startswith("aliquot agent: the software GPU (")
    assert result.stderr.count("\n") == 1


def test_a_full_dev_shm_ends_the_agent_with_a_clear_line(a_folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small /dev/shm")
    agent = f"{sys.executable} -m jupyter_aliquot.gpu_hook.agent --driver softgpu --log-file /dev/null"
    agent += f" --runtime-dir {a_folder}"
    script = f"mount -t tmpfs -o size=64k tmpfs /dev/shm && exec {agent}"
    result = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=90, check=False
    )
    if "unshare" in result.stderr or "mount" in result.stderr:
        pytest.skip(f"no mount namespace here: {result.stderr.strip()}")
    assert result.returncode == 1
    assert "No space left on device; make room" in result.stderr
    assert result.stderr.count("\n") == 1


def test_any_user_of_a_container_may_use_the_machine_and_nobody_else_of_the_host(a_state: Path, start: Start) -> None:
    start()
    modes = [oct(stat.S_IMODE(path.stat().st_mode)) for path in (a_state.parents[1], a_state.parent, a_state)]
    assert modes == ["0o700", "0o711", "0o666"]


def test_the_machines_folder_stays_while_kernels_may_have_it_mounted(
    an_idle_node: Any, start: Start, open_holder: Callable[[], Any], a_state: Path
) -> None:
    start()
    sleeper = subprocess.Popen(["sleep", "60"])
    an_idle_node.helpers.append(sleeper)
    holder = open_holder()
    holder.reserve()
    holder.ask("bind", kernel_id="k", pid=sleeper.pid, start_time_ticks=start_time_ticks(sleeper.pid))
    folder = a_state.parent.stat().st_ino
    for number in (15, 9):
        an_idle_node.end(number)
        assert a_state.exists()
        start()
    assert a_state.parent.stat().st_ino == folder
    assert open_holder().ask("release", kernel_id="k")["ok"]
    assert an_idle_node.end() == 0
    assert not a_state.parents[1].exists()


def test_a_folder_of_somebody_else_is_no_machine(a_folder: Path, a_state: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    a_state.parents[1].mkdir()
    os.chown(a_state.parents[1], 1234, 1234)
    with pytest.raises(PathError, match="is not a folder of user 0; remove it"):
        prepare(a_state, RuntimeDir(a_folder))
    a_state.parents[1].rmdir()


def test_a_file_that_older_agents_had_there_is_replaced(a_folder: Path, a_state: Path) -> None:
    a_state.parents[1].write_bytes(b"old")
    prepare(a_state, RuntimeDir(a_folder))
    assert a_state.is_file()


def test_query_without_an_agent_does_not_touch_the_machine(a_folder: Path, a_state: Path) -> None:
    with pytest.raises(Exception, match="no node agent answers"):
        query("status", runtime_dir=a_folder)
    assert not a_state.exists()

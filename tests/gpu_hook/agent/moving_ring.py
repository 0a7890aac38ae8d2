"""A node of two software GPUs with an agent, its checkpointer, and kernels that move between the GPUs."""

from __future__ import annotations

import os
import signal
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
# A large block that is swapped, and a small one that only a checkpoint takes off the device.
CLIENT = """
import ctypes, os, subprocess, sys
cuda = ctypes.CDLL("libcuda.so.1")
def uuid():
    found = (ctypes.c_ubyte * 16)()
    assert cuda.cuDeviceGetUuid_v2(found, 0) == 0
    return bytes(found).hex()
if len(sys.argv) > 1:
    assert cuda.cuInit(0) == 0
    print(uuid()); sys.exit()
def begin():
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
def take(size):
    pointer = ctypes.c_uint64()
    return cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)), pointer
blocks = []
print("up", flush=True)
for line in sys.stdin:
    if line.strip() == "fill":
        begin()
        for size in (64 << 20, 512 << 10):
            data = os.urandom(size)
            error, pointer = take(size)
            assert error == 0
            assert cuda.cuMemcpyHtoD_v2(pointer, data, ctypes.c_size_t(size)) == 0
            blocks.append((pointer, data))
        print("full", flush=True)
    elif line.strip() == "begin":
        error = cuda.cuInit(0)
        print(error or uuid(), flush=True)
    elif line.strip() == "child":
        print(subprocess.check_output([sys.executable, __file__, "child"], text=True).strip(), flush=True)
    elif line.strip() == "nvml":
        nvml, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
        name, memory = ctypes.create_string_buffer(96), (ctypes.c_uint64 * 3)()
        assert nvml.nvmlInit_v2() == 0
        assert nvml.nvmlDeviceGetHandleByUUID(os.environ["CUDA_VISIBLE_DEVICES"].encode(), ctypes.byref(device)) == 0
        assert nvml.nvmlDeviceGetUUID(device, name, 96) == nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
        print(name.value.decode(), memory[0], flush=True)
    elif line.startswith("take"):
        print(take(int(line.split()[1]))[0], flush=True)
    else:
        whole = True
        for pointer, data in blocks:
            back = ctypes.create_string_buffer(len(data))
            assert cuda.cuMemcpyDtoH_v2(back, pointer, ctypes.c_size_t(len(data))) == 0
            whole = whole and back.raw == data
        print(whole, uuid(), flush=True)
"""


class AProcess:
    """One process of a kernel."""

    def __init__(self, program: Path, grant: dict[str, Any], **settings: str) -> None:
        environment = {**os.environ, **grant["env"], **settings}
        environment["LD_LIBRARY_PATH"] = environment.pop("LD_LIBRARY_PATH_PREPEND")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, str(program)], env=environment, stdin=pipe, stdout=pipe, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n"

    def ask(self, word: str) -> str:
        self.tell(word)
        return self.answer()

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class ARing:
    """A node of two GPUs, with half of each in use by a kernel."""

    def __init__(self, node: Any, open_holder: Callable[[], Any]) -> None:
        self.node, self._open_holder = node, open_holder
        self.program = node.folder / "client.py"
        self.program.write_text(CLIENT)
        self.start()
        self.processes = {name: AProcess(self.program, grant) for name, grant in self.grants.items()}
        for name, one in self.processes.items():
            ticks = start_time_ticks(one.process.pid)
            assert self.holder.ask("bind", kernel_id=name, pid=one.process.pid, start_time_ticks=ticks)["ok"]

    def start(self, *more: str, **environment: str) -> None:
        """Start an agent, and a connection that holds both kernels."""
        words = ["-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu", "--softgpu-devices", "2"]
        words += ["--softgpu-memory", "1GiB", "--overcommit", "1", "--runtime-dir", str(self.node.folder)]
        words += ["--log-file", str(self.node.folder / "agent.log"), *more]
        self.node.process = warm_start.start(warm_start.AGENT, words, env={**os.environ, **environment})
        self.node.until(self.node.answers)
        self.holder = self._open_holder()
        places = {name: [{"uuid": self.uuid(at), "hundredths": 50}] for at, name in enumerate("ab")}
        self.grants = {
            name: self.holder.reserve(kernel_id=name, hundredths=50, placement=place)["grant"]
            for name, place in places.items()
        }

    def restart_held(self, call: str) -> Path:
        """Replace the agent by one whose checkpointing process waits in this call until the file is gone."""
        self.node.end(signal.SIGTERM)
        hold: Path = self.node.folder / "hold"
        hold.touch()
        self.start(ALIQUOT_SOFTGPU_FAULTS=f"{call}=hold", ALIQUOT_SOFTGPU_HOLD=str(hold))
        return hold

    def add(self, name: str, **settings: str) -> AProcess:
        """Start another process of a kernel."""
        self.processes[f"{name}{len(self.processes)}"] = process = AProcess(self.program, self.grants[name], **settings)
        return process

    def is_told(self, log: Path, text: str) -> None:
        self.node.until(lambda: (log.exists() and text in log.read_text()) or None, 30)

    def is_in(self, name: str, state: str) -> None:
        self.node.until(lambda: self.kernel(name)["residency"]["state"] == state or None, 30)

    def uuid(self, index: int) -> str:
        return str(self.node.status()["devices"][index]["uuid"])

    def is_idle(self, name: str) -> None:
        """Report a kernel's idleness, as its relay would, and wait until the agent agrees."""
        assert self.holder.ask("activity", kernel_id=name, open=0, work=0, since=0.0)["ok"]
        self.node.until(lambda: self.kernel(name)["residency"]["immovable_because"] == "" or None, 30)

    def kernel(self, name: str) -> dict[str, Any]:
        found = self.node.kernel(name)
        assert found is not None
        return dict(found)

    def place(self, name: str) -> int:
        (device,) = self.kernel(name)["devices"]
        return int(device["index"])

    def reserved(self) -> list[int]:
        return [device["reserved_hundredths"] for device in self.node.status()["devices"]]

    def ask_to_move(self, name: str, index: int) -> dict[str, Any]:
        return dict(self.holder.ask("move", kernel_id=name, device=self.uuid(index)))

    def move(self, name: str, index: int) -> None:
        """Begin a move, once the agent has noticed that the last call was a moment ago."""
        self.is_idle(name)
        self.node.until(lambda: self.ask_to_move(name, index)["ok"] or None, 30)

    def outcome(self, name: str, index: int) -> tuple[str, str]:
        """Wait for the end of a move, in which no device is ever reserved beyond what it has."""
        asked = {"kernel_id": name, "device": self.uuid(index)}

        def over() -> Any:
            assert max(self.reserved()) <= 100
            answer = self.holder.ask("moved", **asked)
            return answer if answer["state"] != "moving" else None

        answer = self.node.until(over, 60)
        return answer["state"], answer["reason"]

    def looks(self, name: str) -> tuple[str, str]:
        whole, uuid = self.processes[name].ask("look").split()
        return whole, uuid

    def used(self) -> list[int]:
        return [int(device["used_bytes"]) for device in self.node.status()["devices"]]


def bare(uuid: str) -> str:
    return uuid.removeprefix("GPU-").replace("-", "")


def serve(node: Any, open_holder: Callable[[], Any]) -> Iterator[ARing]:
    """Yield a ring for a test, and end it."""
    try:
        softgpu_driver()
    except PathError as error:
        pytest.skip(f"no software GPU: {error}")
    ring = ARing(node, open_holder)
    yield ring
    for process in ring.processes.values():
        process.close()
    remove_state(softgpu_state_path(RuntimeDir(node.folder)))

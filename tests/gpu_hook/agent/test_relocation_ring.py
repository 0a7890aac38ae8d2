"""Agent, hook, checkpointer and two software GPUs: an idle kernel moves to the other GPU with its bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_start

from jupyter_aliquot.gpu_hook.agent.base.processes import start_time_ticks
from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.agent.enforcers.cgroups import find_hierarchy
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


# The bytes that the driver limits a cgroup to, by device: LIBRARY FOLDER.
LIMITS = """
import ctypes, os, sys
u64 = ctypes.c_ulonglong
class Limits(ctypes.Structure): _fields_ = [("path", ctypes.c_char_p), ("soft", u64), ("hard", u64), ("used", u64)]
nvml, device = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p()
assert nvml.nvmlInit_v2() == 0
for index in range(2):
    limits = Limits(os.fsencode(sys.argv[2]))
    assert nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0
    assert nvml.nvmlDeviceGetMemoryLimits_v1(device, ctypes.byref(limits)) == 0
    print(limits.soft, limits.hard)
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


@pytest.fixture
def a_ring(an_idle_node: Any, open_holder: Callable[[], Any]) -> Iterator[ARing]:
    try:
        softgpu_driver()
    except PathError as error:
        pytest.skip(f"no software GPU: {error}")
    ring = ARing(an_idle_node, open_holder)
    yield ring
    for process in ring.processes.values():
        process.close()
    remove_state(softgpu_state_path(RuntimeDir(an_idle_node.folder)))


def test_a_move_counts_a_kernels_memory_once(a_ring: ARing) -> None:
    """The agent's last look at the driver may be from before the swap-out."""
    hold = a_ring.restart_held("cuCheckpointProcessRestore")
    a_ring.processes["a"].ask("fill")
    a_ring.move("a", 1)
    a_ring.is_in("a", "restoring")
    swapped = a_ring.kernel("a")["residency"]["swapped_bytes"]
    hold.unlink()
    a_ring.outcome("a", 1)
    assert swapped < 70 * MIB


def test_an_idle_kernel_moves_to_the_other_gpu_with_all_its_bytes(a_ring: ARing) -> None:
    for name in "ab":
        assert a_ring.processes[name].ask("fill") == "full"
        a_ring.is_idle(name)
    before = a_ring.used()
    a_ring.move("a", 1)
    assert a_ring.outcome("a", 1) == ("done", "")
    assert a_ring.reserved() == [0, 100]
    a_ring.node.until(lambda: a_ring.used() == [0, sum(before)] or None, 30)
    assert a_ring.looks("a") == ("True", bare(a_ring.uuid(1)))
    assert a_ring.looks("b") == ("True", bare(a_ring.uuid(1)))
    uuid, total = a_ring.processes["a"].ask("nvml").split()
    assert (uuid, int(total)) == (a_ring.uuid(1), 512 * MIB), "as CUDA names it, though its environment is of before"
    assert (a_ring.place("a"), a_ring.kernel("a")["generation"]) == (1, 2)
    # A new kernel finds the whole GPU that is free now.
    assert a_ring.holder.reserve(kernel_id="whole", hundredths=100)["ok"]


def test_a_moved_kernel_is_accounted_and_limited_on_its_new_gpu(a_ring: ARing) -> None:
    a_ring.processes["a"].ask("fill")
    a_ring.move("a", 1)
    assert a_ring.outcome("a", 1) == ("done", "")
    assert a_ring.processes["a"].ask(f"take {64 * MIB}") == "0"
    charged = a_ring.node.until(
        lambda: (found := a_ring.kernel("a")["devices"][0]["charged_bytes"]) > 127 * MIB and found
    )
    assert charged < 132 * MIB
    assert a_ring.processes["a"].ask(f"take {512 * MIB}") == "2", "beyond its limit it is out of memory"
    assert a_ring.processes["a"].ask("child") == bare(a_ring.uuid(1)), "a process of it that begins now is there, too"
    a_ring.move("a", 0)
    assert a_ring.outcome("a", 0) == ("done", ""), "and back again"
    assert a_ring.looks("a") == ("True", bare(a_ring.uuid(0)))
    assert a_ring.processes["a"].ask("child") == bare(a_ring.uuid(0))


def test_a_kernel_that_never_used_its_gpu_moves_at_once(a_ring: ARing) -> None:
    a_ring.move("a", 1)
    assert a_ring.outcome("a", 1) == ("done", "")
    assert a_ring.reserved() == [0, 100]
    assert a_ring.processes["a"].ask("fill") == "full"
    assert a_ring.looks("a") == ("True", bare(a_ring.uuid(1)))
    again = a_ring.holder.reserve(kernel_id="a", hundredths=50)["grant"]
    assert again["env"]["CUDA_VISIBLE_DEVICES"] == a_ring.uuid(1), "a restart of the kernel begins there"
    a_ring.node.end(signal.SIGKILL)
    a_ring.start()
    told = [{"kernel_id": "a", "device": a_ring.uuid(1)}]
    assert a_ring.node.status()["moved"] == told, "a gateway that has the device before asks again"


def test_a_process_may_choose_the_gpu_of_a_moved_kernel_by_its_uuid_before_and_after(a_ring: ARing) -> None:
    """A framework reads the present UUID from CUDA, and starts its workers with it."""
    a_ring.move("a", 1)
    assert a_ring.outcome("a", 1) == ("done", "")
    old, new = a_ring.uuid(0), a_ring.uuid(1)
    for chosen in (new, old, new[:12], f"{new},{old}", "0"):
        worker = a_ring.add("a", CUDA_VISIBLE_DEVICES=chosen)
        assert worker.ask("begin") == bare(new), chosen
    for chosen in (f"GPU-{'0' * 8}", "1", ""):
        assert a_ring.add("a", CUDA_VISIBLE_DEVICES=chosen).ask("begin") == "100", "it names no device of the kernel"


def test_what_cannot_move_is_refused_with_its_reason(a_ring: ARing) -> None:
    a_ring.processes["a"].ask("fill")
    a_ring.is_idle("a")
    assert "gone from this node" in a_ring.holder.ask("move", kernel_id="a", device="GPU-none")["message"]
    assert "no kernel z" in a_ring.holder.ask("move", kernel_id="z", device=a_ring.uuid(1))["message"]
    assert "already" in a_ring.ask_to_move("a", 0)["message"]
    a_ring.holder.reserve(kernel_id="c", hundredths=50, placement=[{"uuid": a_ring.uuid(1), "hundredths": 50}])
    assert a_ring.ask_to_move("a", 1)["code"] == "no_room"
    a_ring.holder.ask("release", kernel_id="c")
    assert a_ring.holder.ask("activity", kernel_id="a", open=1, work=1, since=1.0)["ok"]
    a_ring.node.until(lambda: "busy" in a_ring.kernel("a")["residency"]["immovable_because"] or None, 30)
    refused = a_ring.ask_to_move("a", 1)
    assert refused["code"] == "conflict"
    assert "busy" in refused["message"]
    assert a_ring.reserved() == [50, 50]
    assert a_ring.looks("a") == ("True", bare(a_ring.uuid(0)))


def test_a_driver_that_refuses_the_map_leaves_the_kernel_where_it_was(a_ring: ARing) -> None:
    a_ring.node.end(signal.SIGTERM)
    # The agent's checkpointing process alone restores: its second restore is the move's.
    a_ring.start(ALIQUOT_SOFTGPU_FAULTS="cuCheckpointProcessRestore:1=1")
    a_ring.processes["a"].ask("fill")
    a_ring.move("a", 1)
    state, reason = a_ring.outcome("a", 1)
    assert (state, "invalid value" in reason) == ("failed", True), reason
    assert a_ring.reserved() == [50, 50]
    assert a_ring.looks("a") == ("True", bare(a_ring.uuid(0)))
    assert a_ring.place("a") == 0
    a_ring.move("a", 1)
    assert a_ring.outcome("a", 1) == ("done", ""), "it may be tried again"


def waits_because(a_ring: ARing, name: str) -> str | None:
    waits = a_ring.kernel(name)["residency"]["waits"]
    return None if waits is None else str(waits["reason"])


def test_a_kernel_that_the_driver_does_not_restore_tells_why_and_is_tried_again(a_ring: ARing) -> None:
    a_ring.node.end(signal.SIGTERM)
    refused = {"ALIQUOT_SOFTGPU_FAULTS": "cuCheckpointProcessRestore=1"}
    a_ring.start(**refused)
    a_ring.processes["a"].ask("fill")
    a_ring.move("a", 1)
    assert a_ring.outcome("a", 1)[0] == "failed"
    told = a_ring.node.until(lambda: (told := waits_because(a_ring, "a")) and "could not come back" in told and told)
    for part in ("tries again", "restart the kernel", "to restore process", "invalid value"):
        assert part in told
    assert not a_ring.kernel("a")["residency"]["is_lost"]
    a_ring.node.end(signal.SIGTERM)
    a_ring.start()
    assert a_ring.looks("a") == ("True", bare(a_ring.uuid(0)))


def fill_up(a_ring: ARing, index: int) -> AProcess:
    """Take all memory of a device by a process without the hook."""
    environment = a_ring.grants["a"]["env"]
    plain = {"env": {"LD_LIBRARY_PATH_PREPEND": str(Path(environment["ALIQUOT_REAL_CUDA"]).parent)}}
    a_ring.processes["outsider"] = outsider = AProcess(
        a_ring.program,
        plain,
        ALIQUOT_SOFTGPU_STATE=environment["ALIQUOT_SOFTGPU_STATE"],
        CUDA_VISIBLE_DEVICES=a_ring.uuid(index),
    )
    assert outsider.ask("fill") == "full"
    size = 512 * MIB
    while size > 4096:
        size = size if outsider.ask(f"take {size}") == "0" else size // 2
    return outsider


def test_a_kernel_that_the_driver_gives_up_is_told_as_lost(a_ring: ARing) -> None:
    """The driver finds no room in the middle of a restore: the process never comes back."""
    hold = a_ring.restart_held("cuCheckpointProcessRestore")
    a_ring.processes["a"].ask("fill")
    a_ring.move("a", 1)
    a_ring.is_in("a", "restoring")
    outsider = fill_up(a_ring, 1)
    hold.unlink()
    state, reason = a_ring.outcome("a", 1)
    assert (state, reason.startswith("its GPU memory is lost: "), reason.endswith(". Restart the kernel")) == (
        "failed",
        True,
        True,
    ), reason
    outsider.close()
    assert a_ring.holder.ask("wake", kernel_id="a")["ok"]
    assert a_ring.node.until(lambda: waits_because(a_ring, "a")) == reason
    residency = a_ring.kernel("a")["residency"]
    assert (residency["state"], residency["is_lost"], residency["refusal"]) == ("checkpointed", True, reason)
    assert residency["waits"]["expected_seconds"] is None
    a_ring.node.end(signal.SIGTERM)
    a_ring.start()
    pid = a_ring.processes["a"].process.pid
    want = f"its GPU memory is lost: the driver has given process {pid} up. Restart the kernel"
    assert a_ring.holder.ask("wake", kernel_id="a")["ok"]
    a_ring.node.until(lambda: waits_because(a_ring, "a") == want or None, 30)
    a_ring.processes["a"].close()
    a_ring.node.until(lambda: not a_ring.kernel("a")["residency"]["is_lost"] or None, 30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_the_next_agent_ends_a_move_that_the_last_one_had_begun(a_ring: ARing, number: int) -> None:
    """The restore hangs until the agent is gone: the kernel is saved, and its journal names its new GPU."""
    hold = a_ring.restart_held("cuCheckpointProcessRestore")
    a_ring.processes["a"].ask("fill")
    a_ring.move("a", 1)
    journal = a_ring.node.folder / "kernels" / "a" / "grant.json"
    a_ring.node.until(lambda: json.loads(journal.read_text())["moves_to"] is not None or None, 30)
    a_ring.is_in("a", "restoring")
    a_ring.node.end(number)
    hold.unlink()
    a_ring.start()
    assert a_ring.reserved() == [50, 100], "both parts are its own until it is there"
    assert a_ring.outcome("a", 1) == ("done", "")
    assert a_ring.reserved() == [0, 100]
    assert a_ring.looks("a") == ("True", bare(a_ring.uuid(1)))
    a_ring.node.end(signal.SIGTERM)
    a_ring.start()
    assert (a_ring.place("a"), a_ring.reserved()) == (1, [0, 100])
    assert a_ring.looks("a") == ("True", bare(a_ring.uuid(1)))


def test_a_kernel_that_ends_while_it_moves_leaves_nothing(a_ring: ARing) -> None:
    a_ring.processes["a"].ask("fill")
    a_ring.move("a", 1)
    a_ring.processes["a"].close()
    a_ring.holder.ask("release", kernel_id="a")
    a_ring.node.until(lambda: a_ring.node.kernel("a") is None or None, 30)
    assert a_ring.reserved() == [0, 50]
    a_ring.node.until(lambda: a_ring.used()[0] == 0 or None, 30)


def test_a_process_that_begins_cuda_during_a_move_waits_and_sees_the_new_gpu(a_ring: ARing) -> None:
    hold, log = a_ring.restart_held("cuCheckpointProcessRestore"), a_ring.node.folder / "hook.log"
    a_ring.processes["a"].ask("fill")
    a_ring.move("a", 1)
    a_ring.is_in("a", "restoring")
    second = a_ring.add("a", ALIQUOT_HOOK_LOG=str(log))
    second.tell("fill")
    a_ring.is_told(log, "event=waits_for_move")
    hold.unlink()
    assert a_ring.outcome("a", 1) == ("done", "")
    assert second.answer() == "full"
    assert second.ask("look") == f"True {bare(a_ring.uuid(1))}"
    assert a_ring.looks("a") == ("True", bare(a_ring.uuid(1)))


def hold_cuda(a_ring: ARing) -> tuple[AProcess, Path]:
    """Start another process of a kernel, and hold it inside the driver's cuInit."""
    hold, log = a_ring.node.folder / "hold", a_ring.node.folder / "driver.log"
    hold.touch()
    held = {"ALIQUOT_SOFTGPU_FAULTS": "cuInit=hold", "ALIQUOT_SOFTGPU_HOLD": str(hold)}
    process = a_ring.add("a", ALIQUOT_SOFTGPU_LOG=str(log), **held)
    process.tell("fill")
    a_ring.is_told(log, "event=fault function=cuInit")
    return process, hold


def test_a_kernel_does_not_move_while_its_first_process_begins_cuda(a_ring: ARing) -> None:
    process, hold = hold_cuda(a_ring)
    a_ring.move("a", 1)
    assert a_ring.holder.ask("moved", kernel_id="a", device=a_ring.uuid(1))["state"] == "moving"
    assert a_ring.place("a") == 0
    hold.unlink()
    assert process.answer() == "full"
    state, _ = a_ring.outcome("a", 1)
    place = {"done": 1, "failed": 0}[state]  # it may have become busy
    assert a_ring.place("a") == place
    assert process.ask("look") == f"True {bare(a_ring.uuid(place))}"


def test_a_kernel_whose_second_process_begins_cuda_stays(a_ring: ARing) -> None:
    a_ring.processes["a"].ask("fill")
    process, hold = hold_cuda(a_ring)
    a_ring.move("a", 1)
    a_ring.is_in("a", "checkpointed")
    hold.unlink()
    state, reason = a_ring.outcome("a", 1)
    assert (state, reason) == ("failed", "2 of its processes use the GPU")
    assert process.answer() == "full"
    assert process.ask("look") == f"True {bare(a_ring.uuid(0))}"
    assert a_ring.looks("a") == ("True", bare(a_ring.uuid(0)))
    assert a_ring.reserved() == [50, 50]


def test_the_next_agent_lets_processes_begin_cuda_after_a_move_that_is_over(a_ring: ARing) -> None:
    hold = a_ring.restart_held("cuCheckpointProcessCheckpoint")
    a_ring.processes["a"].ask("fill")
    a_ring.move("a", 1)
    a_ring.is_in("a", "checkpointing")
    a_ring.node.end(signal.SIGKILL)
    hold.unlink()
    a_ring.start()
    second = a_ring.add("a")
    assert second.ask("fill") == "full"
    assert second.ask("look") == f"True {bare(a_ring.uuid(0))}"
    assert a_ring.looks("a") == ("True", bare(a_ring.uuid(0)))


@pytest.mark.parametrize("is_replaced", [False, True], ids=["the same agent", "the next agent"])
def test_an_eviction_waits_for_the_end_of_a_move(a_ring: ARing, is_replaced: bool) -> None:
    hold = a_ring.restart_held("cuCheckpointProcessRestore")
    a_ring.processes["a"].ask("fill")
    a_ring.move("a", 1)
    a_ring.is_in("a", "restoring")
    assert a_ring.holder.ask("evict", kernel_id="a") == {"id": 1, "ok": True, "is_out": False}
    assert a_ring.reserved() == [50, 100]
    if is_replaced:
        a_ring.node.end(signal.SIGKILL)
    hold.unlink()
    if is_replaced:
        a_ring.start()
    assert a_ring.outcome("a", 1) == ("done", "")
    a_ring.node.until(lambda: a_ring.node.status()["evicted"] == ["a"] or None, 60)
    assert a_ring.reserved() == [0, 50]
    assert a_ring.holder.ask("readmit", kernel_id="a")["ok"]
    assert a_ring.looks("a") == ("True", bare(a_ring.uuid(1)))


def limits_of(a_ring: ARing, name: str) -> list[list[int]]:
    """Return the driver's limits of a kernel on both devices."""
    process, environment = a_ring.processes[name], a_ring.grants[name]["env"]
    hierarchy = find_hierarchy(may_be_version_1=True)
    assert hierarchy is not None
    command = [sys.executable, "-c", LIMITS, environment["ALIQUOT_REAL_NVML"]]
    bare = {"ALIQUOT_SOFTGPU_STATE": environment["ALIQUOT_SOFTGPU_STATE"]}
    folder = str(hierarchy.folder_of(process.process.pid))
    text = subprocess.check_output([*command, folder], env=bare, text=True)
    return [[int(word) for word in line.split()] for line in text.splitlines()]


def test_the_drivers_limits_move_with_the_kernel(a_ring: ARing) -> None:
    hierarchy = find_hierarchy(may_be_version_1=True)
    reason = "no cgroup hierarchy is mounted" if hierarchy is None else hierarchy.unavailable()
    if os.geteuid() != 0 or reason:
        pytest.skip(f"the driver's limits cannot be set here: {reason or 'that needs root'}")
    a_ring.node.end(signal.SIGTERM)
    a_ring.start("--enforcer", "driver")
    a_ring.processes["a"].ask("fill")
    a_ring.node.until(lambda: a_ring.kernel("a")["enforcement"] == "holds" or None)
    quota, no_limit = 512 * MIB, 2**64 - 1
    assert limits_of(a_ring, "a") == [[quota, quota], [0, no_limit]]
    a_ring.move("a", 1)
    assert a_ring.outcome("a", 1) == ("done", "")
    a_ring.node.until(lambda: limits_of(a_ring, "a") == [[0, no_limit], [quota, quota]] or None)
    assert a_ring.looks("a") == ("True", bare(a_ring.uuid(1)))
    assert a_ring.processes["a"].ask(f"take {512 * MIB}") == "2"


@pytest.mark.parametrize("stale", ["0", "1", "2"], ids=["the new", "the old bus id", "the old UUID, too"])
def test_a_kernel_is_accounted_whatever_its_driver_tells_of_the_gpu_before(a_ring: ARing, stale: str) -> None:
    process = a_ring.add("a", ALIQUOT_SOFTGPU_STALE=stale)
    process.ask("fill")
    for index in (1, 0, 1):
        a_ring.move("a", index)
        assert a_ring.outcome("a", index) == ("done", "")
        assert process.ask(f"take {8 * MIB}") == "0"
        assert process.ask(f"take {512 * MIB}") == "2", "beyond its limit it is out of memory"
    assert process.ask("look").startswith("True")
    a_ring.node.until(lambda: a_ring.kernel("a")["devices"][0]["charged_bytes"] > 87 * MIB or None, 30)
    a_ring.node.end(signal.SIGTERM)
    a_ring.start()
    a_ring.node.until(lambda: a_ring.kernel("a")["devices"][0]["charged_bytes"] > 87 * MIB or None, 30)
    assert process.ask(f"take {8 * MIB}") == "0"
    assert (a_ring.place("a"), a_ring.reserved()) == (1, [0, 100])


def test_a_link_that_an_agent_left_before_its_journal_is_not_believed(a_ring: ARing) -> None:
    target = a_ring.uuid(1)
    a_ring.node.end(signal.SIGKILL)
    (a_ring.node.folder / "kernels" / "a" / "devices").symlink_to(target)
    a_ring.start()
    assert a_ring.processes["a"].ask("fill") == "full"
    assert a_ring.looks("a")[1] == bare(a_ring.uuid(a_ring.place("a")))


def test_a_kernel_that_ended_while_it_was_restored_holds_its_new_gpu_until_its_process_ends(a_ring: ARing) -> None:
    hold = a_ring.restart_held("cuCheckpointProcessRestore")
    a_ring.processes["a"].ask("fill")
    a_ring.move("a", 1)
    a_ring.is_in("a", "restoring")
    a_ring.holder.ask("release", kernel_id="a")
    a_ring.node.end(signal.SIGKILL)
    hold.unlink()
    words = ["-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu", "--softgpu-devices", "2"]
    words += ["--softgpu-memory", "1GiB", "--overcommit", "1", "--runtime-dir", str(a_ring.node.folder)]
    words += ["--log-file", str(a_ring.node.folder / "agent.log")]
    a_ring.node.process = warm_start.start(warm_start.AGENT, words, env={**os.environ})
    a_ring.node.until(a_ring.node.answers)
    a_ring.node.until(lambda: a_ring.used()[1] > 0)
    time.sleep(4)  # more than the two looks at the devices after which a process counts as gone
    assert a_ring.node.kernel("a") is not None
    a_ring.processes["a"].close()
    a_ring.node.until(lambda: a_ring.node.kernel("a") is None)

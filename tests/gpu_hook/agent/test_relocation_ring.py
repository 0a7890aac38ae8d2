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
from typing import TYPE_CHECKING, Any

import pytest
import warm_start

from jupyter_aliquot.gpu_hook.agent.enforcers.cgroups import find_hierarchy

if TYPE_CHECKING:
    from tests.gpu_hook.agent.moving_ring import MIB, AProcess, ARing, bare, serve
else:
    from moving_ring import MIB, AProcess, ARing, bare, serve

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


@pytest.fixture
def a_ring(an_idle_node: Any, open_holder: Callable[[], Any]) -> Iterator[ARing]:
    yield from serve(an_idle_node, open_holder)


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


def test_the_mark_of_a_move_by_the_agent_before_goes_with_that_move(a_ring: ARing) -> None:
    """The hook of the release before waits while a link stands, and the present one while the file has a byte."""
    hold, folder = a_ring.restart_held("cuCheckpointProcessRestore"), a_ring.node.folder / "kernels" / "a"
    a_ring.processes["a"].ask("fill")
    a_ring.move("a", 1)
    a_ring.is_in("a", "restoring")
    a_ring.node.end(signal.SIGKILL)
    os.truncate(folder / "entrance", 0)
    for kernel_folder in (folder, folder.parent / "b"):  # the other one's move was over, or called off
        (kernel_folder / "moving").symlink_to("GPU-1")
    a_ring.start(ALIQUOT_SOFTGPU_FAULTS="cuCheckpointProcessRestore=hold", ALIQUOT_SOFTGPU_HOLD=str(hold))
    a_ring.is_in("a", "restoring")
    a_ring.node.until(lambda: (folder / "entrance").stat().st_size == 1 or None, 30)
    a_ring.node.until(lambda: not (folder.parent / "b" / "moving").is_symlink() or None, 30)
    assert (folder / "moving").is_symlink()
    hold.unlink()
    assert a_ring.outcome("a", 1) == ("done", "")
    assert not (folder / "moving").is_symlink()
    assert (folder / "entrance").stat().st_size == 0

"""Processes in pid namespaces of their own, as in containers: each is pid 1 there, and all share one machine."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

MIB = 1 << 20
_OWN_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
HOLD = """
    start()
    error, pointer = alloc(int(sys.argv[1]) * MIB)
    check(error)
    upload(pointer, b"from the exporter")
"""
EXPORT = (
    HOLD
    + """
    handle = (ctypes.c_char * 64)()
    check(cuda.cuIpcGetMemHandle(handle, u64(pointer)))
    say(os.getpid(), handle.raw.hex())
    wait_for_go()
"""
)
IMPORT = """
    start()
    class Handle(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_byte * 64)]
    address, handle = u64(), Handle.from_buffer_copy(bytes.fromhex(sys.argv[1]))
    error = cuda.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, 1)
    say(error, b"" if error else download(address.value, 17))
"""
LIST = """
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    nvml.nvmlInit_v2()
    device = vp()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
    class Process(ctypes.Structure):
        _fields_ = [("pid", ctypes.c_uint), ("bytes", u64), ("ids", ctypes.c_uint * 2)]
    class Memory(ctypes.Structure):
        _fields_ = [("total", u64), ("free", u64), ("used", u64)]
    def processes():
        count, found = ctypes.c_uint(256), (Process * 256)()
        assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), found) == 0
        return sorted((found[i].pid, found[i].bytes // MIB) for i in range(count.value))
    def used():
        memory = Memory()
        assert nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0
        return memory.used // MIB
"""


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    if subprocess.run([*_OWN_NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid and mount namespaces here: run as root")


class Client:
    """A program in a namespace, which exchanges lines with the test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def host_pid(self) -> int:
        """Return the pid of the program: the only child of unshare."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])

    def rest(self) -> str:
        """Let it go on; return its output."""
        return self.process.communicate("go\n", timeout=90)[0]


Start = Callable[..., Client]


@pytest.fixture
def start(a_machine: Any) -> Iterator[Start]:
    clients: list[Client] = []

    def start_one(code: str, *words: str, own: bool = True, **extra: str) -> Client:
        clients.append(Client(a_machine.popen(code, before=_OWN_NAMESPACE if own else (), words=words, **extra)))
        return clients[-1]

    yield start_one
    for client in clients:
        client.process.kill()
        client.process.communicate(timeout=90)


def test_the_host_sees_its_own_ids_and_a_container_those_of_its_own_processes(a_machine: Any, start: Start) -> None:
    two = [start(LIST + EXPORT + "    say(processes(), used())", size) for size in ("2", "4")]
    assert [client.line().split()[0] for client in two] == ["1", "1"], "both are pid 1 for themselves"
    watcher = start(LIST + "    while wait_for_go() != 'end': say(processes(), used())", own=False)
    pids = [client.host_pid() for client in two]

    def seen() -> Any:
        watcher.say("look")
        return watcher.line()

    assert seen() == f"{sorted(zip(pids, (2, 4), strict=True))} 6"
    os.kill(pids[1], 9)
    two[1].process.wait(30)
    assert seen() == f"{[(pids[0], 2)]} 2"
    assert two[0].rest() == "[(1, 2)] 2\n", "with the other gone, its own"


def test_a_container_is_not_told_of_the_others_processes_but_of_their_bytes(start: Start) -> None:
    other = start(EXPORT, "4")
    other.line()
    host = start(EXPORT, "8", own=False)
    host.line()
    mine = start(LIST + EXPORT + "    say(processes(), used())", "2")
    mine.line()
    assert mine.rest() == "[(1, 2)] 14\n"


def test_shared_memory_is_opened_from_above_and_not_from_beside(start: Start, tmp_path: Path) -> None:
    exporter = start(EXPORT, "2")
    pid, handle = exporter.line().split()
    assert pid == "1"
    assert start(IMPORT, handle, own=False).line() == "0 b'from the exporter'"
    log = tmp_path / "log"
    assert start(IMPORT, handle, ALIQUOT_SOFTGPU_LOG=str(log)).line() == "1 b''", "invalid value, not its own context"
    assert 'event=exporter_not_seen reason="it is in another pid namespace"' in log.read_text()


def test_a_killed_waiter_is_not_taken_for_the_holder_of_the_lock(start: Start, tmp_path: Path) -> None:
    hold, let_go = (f"    nvml.aliquot_softgpu_hold_lock({wanted})\n" for wanted in (1, 0))
    holder = start(LIST + hold + "    say('holds'); wait_for_go()\n" + let_go + "    say('let go')")
    assert holder.line() == "holds"
    waiter = start("    say('asks'); start()")
    assert waiter.line() == "asks"
    wait_until_it_sleeps(waiter.host_pid())
    os.kill(waiter.host_pid(), 9)
    waiter.process.wait(30)
    log = tmp_path / "log"
    next_one = start("    say('asks'); start(); say('in')", ALIQUOT_SOFTGPU_LOG=str(log))
    assert next_one.line() == "asks"
    wait_until_it_sleeps(next_one.host_pid())
    assert holder.rest() == "let go\n"
    assert next_one.line() == "in"
    assert "machine_lock_recovered" not in log.read_text()


def wait_until_it_sleeps(pid: int) -> None:
    """Wait until it sleeps in a futex (system call 202 or 98).

    It can only wait for the machine's lock there.
    """
    deadline = time.monotonic() + 30
    futex = "202 " if platform.machine() == "x86_64" else "98 "
    while not Path(f"/proc/{pid}/syscall").read_text().startswith(futex):
        assert time.monotonic() < deadline

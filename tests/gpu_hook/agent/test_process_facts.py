"""The facts in /proc about difficult processes.

They have odd names, first threads that ended, or chosen environments.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.agent.base.process_facts import Families, read_cgroup, read_facts
from jupyter_aliquot.gpu_hook.agent.base.processes import start_time_ticks
from jupyter_aliquot.gpu_hook.protocol import codec as protocol

ME = os.getpid()
# Takes a name that is no UTF-8, as the 15 bytes that Linux keeps of a longer name may be.
ODD_NAME = """
import ctypes, sys
ctypes.CDLL(None).prctl(15, b"caf\\xc3", 0, 0, 0)
print("named", flush=True)
sys.stdin.read()
"""
# Ends its first thread alone (system call 60 or 93, exit); the other lives until stdin ends.
HEADLESS = """
import ctypes, os, platform, sys, threading
def live_on():
    while open(f"/proc/{os.getpid()}/stat").read().split()[2] != "Z":
        pass
    print("alone", flush=True)
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=live_on).start()
ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 0)
"""


@pytest.fixture
def start() -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Start a program that prints a word when it has reached the wanted state."""
    started: list[subprocess.Popen[bytes]] = []

    def start_one(program: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline()
        return process

    yield start_one
    for process in started:
        process.kill()
        process.wait(10)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def a_process(proc: Path, pid: int, stat: str = "R 1 2 3 0 -1 0", cgroup: bytes = b"", environ: bytes = b"") -> None:
    """Make one folder of a /proc of the test."""
    (proc / str(pid) / "task").mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(f"{pid} (name) {stat} {'0 ' * 12} 77\n")
    (proc / str(pid) / "cgroup").write_bytes(cgroup)
    (proc / str(pid) / "environ").write_bytes(environ)


def test_a_process_with_a_name_that_is_no_text_is_a_process(start: Any) -> None:
    process = start(ODD_NAME)
    facts = read_facts(process.pid)
    assert facts is not None
    assert facts.name == "caf\ufffd"
    assert start_time_ticks(process.pid) == facts.start_time_ticks > 0


def test_such_a_process_may_join_its_kernel(a_node: Any, a_holder: Any, start: Any) -> None:
    a_holder.reserve()
    process = start(ODD_NAME)
    ticks = int(Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    assert a_holder.ask("bind", kernel_id="k", pid=process.pid, start_time_ticks=ticks)["ok"]


def test_a_process_whose_first_thread_ended_lives_until_the_last_does(start: Any) -> None:
    process = start(HEADLESS)
    facts = read_facts(process.pid)
    assert facts is not None
    assert facts.parent == ME
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert read_facts(process.pid) is None


def test_a_process_that_is_ending_is_none(tmp_path: Path) -> None:
    exiting = 0x400004
    a_process(tmp_path, 101, f"D 1 2 3 0 -1 {exiting}")
    a_process(tmp_path, 102, "D 1 2 3 0 -1 4194304")
    assert read_facts(101, tmp_path) is None
    assert read_facts(102, tmp_path) is not None


def test_a_cgroup_with_a_name_that_is_no_text_is_one(tmp_path: Path) -> None:
    a_process(tmp_path, 101, cgroup=b"0::/k\xff\n")
    assert read_cgroup(101, tmp_path) == "0::/k\udcff\n"
    a_process(tmp_path, 102, cgroup=b"0::/k\xff\n")
    assert Families({101: "k"}, {}, tmp_path).kernel_of(102) == "k"


def test_the_cgroup_counts_for_more_than_the_environment(tmp_path: Path) -> None:
    """A process chooses its environment, which must not end another kernel."""
    a_process(tmp_path, 101, cgroup=b"0::/k\n")
    a_process(tmp_path, 102, cgroup=b"0::/other\n")
    a_process(tmp_path, 103, cgroup=b"0::/k\n", environ=b"A=b\0ALIQUOT_KERNEL_DIR=/run/other\0")
    families = Families({101: "k", 102: "other"}, {"/run/k": "k", "/run/other": "other"}, tmp_path)
    assert families.kernel_of(103) == "k"


@pytest.mark.parametrize(
    ("namespaces", "want"),
    [
        pytest.param({ME: "host", 101: "a", 102: "b", 103: "a"}, "k", id="a container's"),
        pytest.param({ME: "host", 101: "host", 102: "b", 103: "host"}, None, id="the agent's own says nothing"),
        pytest.param({ME: "host", 101: "a", 102: "a", 103: "a"}, None, id="that of two kernels says nothing"),
        pytest.param({}, None, id="not to be had"),
    ],
)
def test_a_pid_namespace_tells_only_where_it_is_one_kernels_own(
    tmp_path: Path, namespaces: dict[int, str], want: str | None
) -> None:
    for pid in (ME, 101, 102, 103):
        a_process(tmp_path, pid)
    for pid, name in namespaces.items():
        (tmp_path / str(pid) / "ns").mkdir()
        (tmp_path / str(pid) / "ns" / "pid").symlink_to(f"pid:[{name}]")
    assert Families({101: "k", 102: "other"}, {}, tmp_path).kernel_of(103) == want


def test_a_hook_with_an_odd_name_is_welcomed(a_node: Any, a_holder: Any) -> None:
    a_holder.reserve()
    folder = a_node.folder / "kernels" / "k"
    program = (
        "import ctypes, socket, sys\n"
        "ctypes.CDLL(None).prctl(15, b'caf\\xc3', 0, 0, 0)\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1])\n"
        "s.send(bytes.fromhex(sys.argv[2])); sys.stdout.buffer.write(s.recv(4096))\n"
    )
    hello = protocol.pack(protocol.Hello(protocol.Role.PROCESS, 1, 0, "odd")).hex()
    command = [sys.executable, "-c", program, str(folder / protocol.SOCKET_NAME), hello]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert protocol.unpack(done.stdout) == protocol.Welcome(1)

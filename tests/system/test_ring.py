"""From a kernel's name to bytes on the GPU and back: claims that need every part at once."""

from __future__ import annotations

import os
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest
import warm_start

MIB = 1 << 20
GPU = """
from cuda.bindings import driver as cu
def call(answer):
    error, *values = answer
    if error != cu.CUresult.CUDA_SUCCESS:
        raise MemoryError(error.name)
    return values[0] if values else None
call(cu.cuInit(0))
device = call(cu.cuDeviceGet(0))
context = call(cu.cuDevicePrimaryCtxRetain(device))
call(cu.cuCtxSetCurrent(context))
"""
GREEDY_CHILD = (
    GPU
    + """
import sys
held = 0
while True:
    try:
        call(cu.cuMemAlloc(int(sys.argv[1]))); held += int(sys.argv[1])
    except MemoryError as error:
        print(held, error, flush=True)
        break
sys.stdin.read()
"""
)
GREEDY_FAMILY = """
import subprocess, sys
PIPES = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
children = [subprocess.Popen([sys.executable, "-c", CHILD, str(size)], **PIPES)
            for size in (2 << 20, 4 << 20, 2 << 20, 6 << 20)]
print(sum(int(child.stdout.readline().split()[0]) for child in children))
"""


def is_told_why(report: Any) -> Any:
    """Return the report of a waiting kernel with its own reason, which it has after its first turn."""
    return report if report and "0.5 GPU" in (report["reason"] or "") else None


def test_a_kernel_sees_a_gpu_of_its_own_size(a_shared_server) -> None:
    kernel = a_shared_server.start("python3.gpu-0.25")
    outcome = kernel.run(GPU + "print(*call_two(cu.cuMemGetInfo()))".replace("call_two", "(lambda a: a[1:])"))
    assert outcome.text.split() == [str(1024 * MIB), str(1024 * MIB)], outcome
    kernel.end()


def test_processes_of_one_kernel_share_its_quota_to_the_byte(a_shared_server, eventually) -> None:
    kernel = a_shared_server.start("python3.gpu-0.25")
    outcome = kernel.run(f"CHILD = {GREEDY_CHILD!r}\n" + GREEDY_FAMILY)
    want_bytes = 1024 * MIB
    assert outcome.text.strip() == str(want_bytes), outcome
    eventually(lambda: kernel.used_bytes() == want_bytes)
    eventually(lambda: a_shared_server.status()["devices"][0]["used_bytes"] == want_bytes)
    kernel.end()


def test_a_sigkilled_kernel_returns_its_memory_and_starts_again_with_its_grant(a_shared_server, eventually) -> None:
    kernel = a_shared_server.start("python3.gpu-0.5")
    outcome = kernel.run(GPU + "call(cu.cuMemAlloc(512 << 20)); import os; print(os.getpid())")
    eventually(lambda: kernel.used_bytes() == 512 * MIB)
    os.kill(int(outcome.text), signal.SIGKILL)
    eventually(lambda: (kernel.on_node() or {}).get("last_crash"))  # its successor answers from here on
    eventually(lambda: kernel.used_bytes() == 0)
    eventually(lambda: kernel.model()["execution_state"] in ("idle", "starting") and kernel.on_node())
    kernel.reconnect()
    again = kernel.run(GPU + "print(call(cu.cuDeviceTotalMem(device)))")
    assert again.text.strip() == str(2048 * MIB), again
    kernel.end()


def test_a_kernel_that_must_wait_is_pending_and_starts_when_there_is_room(a_shared_server, eventually) -> None:
    first = a_shared_server.start("python3.gpu-1")
    eventually(lambda: (first.on_node() or {}).get("state") == "on_gpu")
    second = a_shared_server.start("python3.gpu-0.5")
    assert second.model()["execution_state"] == "starting"
    waiting = eventually(lambda: is_told_why(second.on_node()))
    assert waiting["state"] == "queued"
    assert waiting["queue_position"] == 1
    first.end()
    assert second.run("print(6 * 7)").text.strip() == "42"
    second.end()


def test_a_withdrawn_start_leaves_nothing(a_shared_server, eventually) -> None:
    first = a_shared_server.start("python3.gpu-1")
    eventually(lambda: (first.on_node() or {}).get("state") == "on_gpu")
    second = a_shared_server.start("python3.gpu-0.5")
    eventually(lambda: second.on_node())
    second.end()
    assert second.on_node() is None
    assert a_shared_server.status()["queue"]["length"] == 0
    first.end()
    eventually(lambda: a_shared_server.status()["devices"][0]["reserved_bytes"] == 0)


def test_a_wrong_size_is_refused_with_a_reason(a_shared_server) -> None:
    want_words = {
        "python3.gpu-0": "0.01",
        "python3.gpu--1": "python3.gpu-0.25",
        "python3.gpu-0.125": "0.01",
        "python3.gpu-9": "9 is more than the 1 GPU",
        "python3.gpu-3": "this node has 1 GPU",
        "python3.gpu-banana": "python3.gpu-0.25",
        "nosuchbase.gpu-0.25": "nosuchbase",
        "python3.gpu-0.5-0g": "GiB",
    }
    before, log = a_shared_server.status()["kernels"], len(a_shared_server.log.read_text())
    for name, words in want_words.items():
        with pytest.raises(a_shared_server.refusal) as refused:
            pytest.fail(f"{name} was accepted: {a_shared_server.start(name).model()}")
        assert 400 <= refused.value.status < 500, name
        assert words in refused.value.message, name
    assert a_shared_server.status()["kernels"] == before
    assert "Traceback" not in a_shared_server.log.read_text()[log:]


def test_plain_kernels_start_beside_sized_ones(a_shared_server) -> None:
    kernel = a_shared_server.start("python3")
    assert kernel.run("import os; print('ALIQUOT_KERNEL_DIR' in os.environ)").text.strip() == "False"
    assert kernel.on_node() is None
    kernel.end()


def test_interrupt_ends_a_cell_and_restart_keeps_the_size(a_shared_server, eventually) -> None:
    kernel = a_shared_server.start("python3.gpu-0.25")
    kernel.run(GPU + "call(cu.cuMemAlloc(64 << 20))")
    cell = kernel.send("import time\nprint('on', flush=True)\ntime.sleep(60)")
    kernel.wait_for_text("on")
    a_shared_server.call("POST", f"/api/kernels/{kernel.id}/interrupt")
    assert "KeyboardInterrupt" in kernel.outcome(cell).error
    a_shared_server.call("POST", f"/api/kernels/{kernel.id}/restart")
    kernel.reconnect()
    assert kernel.run(GPU + "print(call(cu.cuDeviceTotalMem(device)))").text.strip() == str(1024 * MIB)
    eventually(lambda: kernel.used_bytes() == 0)
    kernel.end()


def test_a_stopped_server_leaves_no_kernel_and_no_reservation(
    a_server, a_folder: Path, an_environment, eventually
) -> None:
    kernel = a_server.start("python3.gpu-0.5")
    pid = int(kernel.run("import os; print(os.getpid())").text)
    a_server.stop()
    eventually(lambda: not Path(f"/proc/{pid}").exists())
    words = [*warm_start.ALIQUOT, "status", "--json"]

    def is_empty() -> bool:
        return '"kernels": []' in warm_start.run(warm_start.SERVER, words, env=an_environment, timeout=90).stdout

    eventually(is_empty)


def test_two_gateways_on_one_node_share_what_there_is(a_server, another_server, eventually) -> None:
    first = a_server.start("python3.gpu-0.75")
    eventually(lambda: (first.on_node() or {}).get("state") == "on_gpu")
    second = another_server.start("python3.gpu-0.5")
    waiting = eventually(lambda: is_told_why(second.on_node()))
    assert waiting["state"] == "queued"
    first.end()
    assert second.run("print('here')").text.strip() == "here"
    assert another_server.status()["devices"][0]["reserved_gpus"] == 0.5
    second.end()


def test_a_kernel_killed_while_allocating_leaks_nothing(a_shared_server, eventually) -> None:
    kernel = a_shared_server.start("python3.gpu-0.5")
    churn = textwrap.dedent("""
    import os, threading
    print(os.getpid(), flush=True)
    def work():
        call(cu.cuCtxSetCurrent(context))
        while True:
            call(cu.cuMemFree(call(cu.cuMemAlloc(8 << 20))))
    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    """)
    pid = int(kernel.run(GPU + churn).text)
    eventually(lambda: (kernel.on_node() or {}).get("peak_bytes"))
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: kernel.used_bytes() == a_shared_server.status()["devices"][0]["used_bytes"] == 0)
    kernel.end()

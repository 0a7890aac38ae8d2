"""A notebook's cell that starts a program without the hook: shown to its owner, and the end of its kernel by policy."""

from __future__ import annotations

import sys

import pytest

MIB = 1 << 20
CLIENT = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(64 << 20)) == 0
print("there", flush=True)
sys.stdin.read()
"""
ESCAPE = f"""
import os, subprocess
state = "ALIQUOT_SOFTGPU_STATE=" + os.environ["ALIQUOT_SOFTGPU_STATE"]
child = subprocess.Popen(["env", "-i", state, {sys.executable!r}, "-c", {CLIENT!r}, os.environ["ALIQUOT_REAL_CUDA"]],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(child.stdout.readline())
"""


def test_an_escaped_process_is_shown_with_its_kernel_which_runs_on(a_server, eventually) -> None:
    kernel = a_server.start("python3.gpu-0.25")
    assert kernel.run(ESCAPE).text.strip() == "there"
    (found,) = eventually(lambda: kernel.on_node()["unhooked_processes"])
    assert (found["used_bytes"], found["charged_bytes"], found["why"]) == (64 * MIB, 0, "not registered")
    assert kernel.run("child.communicate(''); print('still here')").text.strip() == "still here"
    eventually(lambda: kernel.on_node()["unhooked_processes"] == [])
    kernel.end()


@pytest.mark.parametrize("server_options", [["--Aliquot.unhooked_process_policy=end"]])
def test_the_policy_ends_the_kernel_with_its_memory_and_says_why(a_server, eventually) -> None:
    kernel = a_server.start("python3.gpu-0.25")
    kernel.send(ESCAPE)
    eventually(lambda: (kernel.on_node() or {}).get("state") == "ended")
    reason = kernel.on_node()["reason"]
    assert "has 64.0 MiB on gpu0: not registered" in reason
    assert "unhooked_process_policy" in reason
    eventually(lambda: a_server.status()["devices"][0]["used_bytes"] == 0)

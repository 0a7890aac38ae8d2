"""A notebook's cell that starts a program without the hook.

The owner sees it, and by policy it ends the kernel.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_aliquot.gpu_hook.paths import native_dir

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
bare = ["env", "-i", state, "ALIQUOT_SOFTGPU_CONTEXT=0", {sys.executable!r}]
child = subprocess.Popen([*bare, "-c", {CLIENT!r}, os.environ["ALIQUOT_REAL_CUDA"]],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(child.stdout.readline())
"""


STATIC = """
#include <stdio.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, unsigned long);
int main(void) {
  void *context;
  unsigned long long pointer;
  if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
  if (cuMemAlloc_v2(&pointer, 64 << 20)) return 2;
  puts("there");
  fflush(stdout);
  getchar();
  return 0;
}
"""
# The loader's variables are there, and there is no loader.
RUN_STATIC = """
import os, subprocess
child = subprocess.Popen([{program!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(child.stdout.readline())
"""


@pytest.fixture(scope="module")
def a_static_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile a program with the software GPU's driver inside.

    In the same way one may link a library that talks to NVIDIA's device files itself.
    """
    built = native_dir().resolve().parent / "gpu_hook" / "softgpu" / "CMakeFiles"
    parts = [part for name in ("machine", "cuda") for part in (built / f"softgpu_{name}.dir").rglob("*.o")]
    if not parts:
        pytest.skip("the software GPU was not built here: its object files are not beside it")
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed: install gcc"
    program = tmp_path_factory.mktemp("static") / "past"
    program.with_suffix(".c").write_text(STATIC)
    command = [compiler, "-static", "-o", program, program.with_suffix(".c"), *parts, "-lpthread", "-lm", "-ldl"]
    subprocess.run([*map(str, command)], check=True, timeout=120)
    return program


def test_a_static_program_with_a_driver_of_its_own_is_shown(a_shared_server, eventually, a_static_program) -> None:
    kernel = a_shared_server.start("python3.gpu-0.25")
    assert kernel.run(RUN_STATIC.format(program=str(a_static_program))).text.strip() == "there"
    (found,) = eventually(lambda: kernel.on_node()["uncontrolled_processes"])
    assert (found["used_bytes"], found["charged_bytes"], found["why"]) == (64 * MIB, 0, "not registered")
    kernel.end()
    eventually(lambda: a_shared_server.status()["devices"][0]["used_bytes"] == 0)


def test_an_escaped_process_is_shown_with_its_kernel_which_runs_on(a_shared_server, eventually) -> None:
    kernel = a_shared_server.start("python3.gpu-0.25")
    assert kernel.run(ESCAPE).text.strip() == "there"
    (found,) = eventually(lambda: kernel.on_node()["uncontrolled_processes"])
    assert (found["used_bytes"], found["charged_bytes"], found["why"]) == (64 * MIB, 0, "not registered")
    assert kernel.run("child.communicate(''); print('still here')").text.strip() == "still here"
    eventually(lambda: kernel.on_node()["uncontrolled_processes"] == [])
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

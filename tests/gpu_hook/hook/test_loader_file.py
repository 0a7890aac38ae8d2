"""The libraries in /etc/ld.so.preload, as a container may have them: every program loads them, few use CUDA."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_aliquot.gpu_hook.agent.devices.libraries import installed
from jupyter_aliquot.gpu_hook.paths import native_dir

LIBRARIES = installed(native_dir())
# An /etc of its own in a mount namespace of its own, then the command.
_SCRIPT = (
    'mkdir "$0/up" "$0/work" && mount -t overlay -o "lowerdir=/etc,upperdir=$0/up,workdir=$0/work" overlay /etc '
    '&& cat "$0/text" > /etc/ld.so.preload && exec "$@"'
)
_STUB_LIBRARY = "34"
Run = Callable[..., "subprocess.CompletedProcess[str]"]

PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
int main(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = cuda ? dlsym(cuda, "cuInit") : NULL;
    printf("%d\\n", init ? init(0) : -1);
    return 0;
}
"""
# A driver that another user chose; it reports when it is loaded.
CHOSEN = """
#include <stdio.h>
__attribute__((constructor)) static void begin(void) { puts("loaded"); }
int cuInit(unsigned flags) { return 7; }
"""


@pytest.fixture
def run() -> Iterator[Run]:
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/dev/shm") as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "text").write_text(LIBRARIES.preload_text)
        probe = subprocess.run(["unshare", "-m", "sh", "-c", _SCRIPT, folder, "true"], capture_output=True, check=False)
        if probe.returncode:
            pytest.skip(f"no overlay in a mount namespace here: {probe.stderr.decode().strip()}")

        def run_one(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
            with tempfile.TemporaryDirectory(dir=folder) as own:
                shutil.copy(f"{folder}/text", own)
                words = ["unshare", "-m", "sh", "-c", _SCRIPT, own, "env", "-i", *(f"{k}={v}" for k, v in env.items())]
                return subprocess.run([*words, *command], capture_output=True, text=True, timeout=60, check=False)

        yield run_one


@pytest.fixture
def compile_c(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Path]]:
    """Compile into a folder where another user may run the result."""
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    folder.chmod(0o755)

    def compile_one(name: str, text: str, *options: str) -> Path:
        (folder / f"{name}.c").write_text(text)
        command = ["cc", str(folder / f"{name}.c"), "-o", str(folder / name), *options, "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
        return folder / name

    yield compile_one
    shutil.rmtree(folder)


def test_a_program_without_cuda_runs_as_it_did(run: Run) -> None:
    command = ("/bin/sh", "-c", "echo out; ls /proc/self/fd; /bin/true && exit 3")
    done = run(*command)
    without = subprocess.run(["env", "-i", *command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, without.stdout, "")


def test_a_static_program_runs_as_it_did(run: Run, compile_c: Callable[..., Path]) -> None:
    text = '#include <stdio.h>\nint main(void) { puts("static"); return 0; }\n'
    try:
        program = compile_c("static", text, "-static")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no static C library: {error.stderr.decode()[-200:]}")
    assert run(str(program)).stdout == "static\n"


def test_a_program_that_opens_the_driver_gets_the_hook_whatever_its_environment(run: Run) -> None:
    code = "import ctypes; cuda = ctypes.CDLL('libcuda.so.1')\n"
    code += "print(hasattr(cuda, 'aliquot_hook_substitute'), cuda.cuInit(0))"
    assert run(sys.executable, "-c", code).stdout == f"True {_STUB_LIBRARY}\n", "without a grant: no GPU, and no crash"
    real = str(LIBRARIES.folder / "softgpu" / "libcuda.so.1")
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/dev/shm") as folder:
        env = {"ALIQUOT_REAL_CUDA": real, "ALIQUOT_SOFTGPU_STATE": f"{folder}/state"}
        assert run(sys.executable, "-c", code, **env).stdout == "True 0\n"


def test_a_setuid_program_opens_no_library_that_its_caller_names(run: Run, compile_c: Callable[..., Path]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a program to root")
    program, chosen = compile_c("program", PROGRAM), compile_c("chosen.so", CHOSEN, "-shared", "-fPIC")
    as_user = ("setpriv", "--reuid", "4321", "--regid", "4321", "--clear-groups")
    log = program.parent / "log"
    env = {"ALIQUOT_REAL_CUDA": str(chosen), "ALIQUOT_KERNEL_DIR": "/tmp", "ALIQUOT_HOOK_LOG": str(log)}
    assert run(*as_user, str(program), **env).stdout == "loaded\n7\n", "the caller's own program"
    program.chmod(0o4755)
    assert run(*as_user, str(program), **env).stdout == f"{_STUB_LIBRARY}\n"
    assert not log.exists()

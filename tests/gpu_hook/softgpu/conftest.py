"""A software GPU of its own for each test, and its clients.

Clients are subprocesses, since the driver's state is per process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

MIB = 1 << 20
_PRELUDE = '''
import ctypes, os, signal, sys, time
MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1")
u64, vp = ctypes.c_uint64, ctypes.c_void_p

def check(code):
    assert code == 0, f"CUDA error {code}"

def start(device=0):
    check(cuda.cuInit(0))
    context = vp()
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda.cuCtxSetCurrent(context))
    return context

def alloc(size):
    """The error, and the address."""
    pointer = u64()
    return cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)), pointer.value

def free_bytes():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    return free.value

def upload(pointer, data):
    check(cuda.cuMemcpyHtoD_v2(u64(pointer), data, ctypes.c_size_t(len(data))))

def download(pointer, size):
    data = ctypes.create_string_buffer(size)
    check(cuda.cuMemcpyDtoH_v2(data, u64(pointer), ctypes.c_size_t(size)))
    return data.raw

def builtin(name):
    if not hasattr(builtin, "module"):
        builtin.module = vp()
        with open(os.environ["BUILTINS"], "rb") as file:
            check(cuda.cuModuleLoadData(ctypes.byref(builtin.module), file.read() + b"\\0"))
    function = vp()
    check(cuda.cuModuleGetFunction(ctypes.byref(function), builtin.module, name.encode()))
    return function

def launch(name, *arguments, stream=None, grid=4, block=64):
    """The error of a launch; arguments are ctypes values."""
    values = (vp * max(1, len(arguments)))(*[ctypes.addressof(a) for a in arguments])
    return cuda.cuLaunchKernel(builtin(name), grid, 1, 1, block, 1, 1, 0, stream, values, None)

def event():
    made = vp()
    check(cuda.cuEventCreate(ctypes.byref(made), 0))
    return made

def elapsed(first, last):
    milliseconds = ctypes.c_float()
    check(cuda.cuEventSynchronize(last))
    check(cuda.cuEventElapsedTime(ctypes.byref(milliseconds), first, last))
    return milliseconds.value

def say(*values):
    print(*values, flush=True)

def wait_for_go():
    """Until the test writes a line."""
    return sys.stdin.readline().strip()
'''


@dataclass
class Machine:
    """One simulated machine: its state file and its shape."""

    native: Path
    state: Path
    settings: dict[str, str] = field(default_factory=dict)

    def env(self, **extra: str) -> dict[str, str]:
        """Return the environment of a client."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ALIQUOT_SOFTGPU", "CUDA_VISIBLE"))}
        own = {f"ALIQUOT_SOFTGPU_{k}": v for k, v in self.settings.items()}
        builtins = Path(__file__).parents[3] / "gpu_hook" / "builtins.ptx"
        return {
            **kept,
            "ALIQUOT_SOFTGPU_CONTEXT": "0",
            **own,
            "ALIQUOT_SOFTGPU_STATE": str(self.state),
            "LD_LIBRARY_PATH": f"{self.native / 'softgpu'}:{kept.get('LD_LIBRARY_PATH', '')}",
            "BUILTINS": str(builtins),
            "PYTHONDONTWRITEBYTECODE": "1",
            **extra,
        }

    def popen(
        self, code: str, prelude: bool = True, before: Sequence[str] = (), words: Sequence[str] = (), **extra: str
    ) -> subprocess.Popen[str]:
        """Start a client that exchanges lines with the test.

        ``before`` stands before its command, ``words`` behind it.
        """
        source = (_PRELUDE if prelude else "") + textwrap.dedent(code)
        return subprocess.Popen(
            [*before, sys.executable, "-c", source, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env(**extra),
        )

    def run(self, code: str, prelude: bool = True, want_code: int = 0, **extra: str) -> str:
        """Run a client to its end; return its output."""
        client = self.popen(code, prelude, **extra)
        output, errors = client.communicate(timeout=60)
        assert client.returncode == want_code, f"exit {client.returncode}\n{output}\n{errors}"
        return output.strip()


@pytest.fixture(scope="session")
def native() -> Path:
    """Return the folder of the built libraries: $ALIQUOT_NATIVE, or the installed package's."""
    override = os.environ.get("ALIQUOT_NATIVE")
    if override:
        return Path(override)
    import jupyter_aliquot.gpu_hook

    return Path(jupyter_aliquot.gpu_hook.__file__).parent.parent / "native"


@pytest.fixture
def make_machine(native: Path) -> Iterator[Callable[..., Machine]]:
    """Make machines of a wanted shape: make_machine(MEMORY="64MiB", DEVICES="2")."""
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/dev/shm") as folder:
        count = 0

        def make(**settings: str) -> Machine:
            nonlocal count
            count += 1
            return Machine(native, Path(folder) / f"state{count}", {"MEMORY": "64MiB", **settings})

        yield make


@pytest.fixture
def a_machine(make_machine: Callable[..., Machine]) -> Machine:
    """Make a machine with one device of 64 MiB."""
    return make_machine()

"""The ways in which programs find the driver, by the ways in which the hook stands before it.

The matrix shows which allocation meets the quota.
Mechanisms: `shim` the shim folder first on LD_LIBRARY_PATH; `shim+audit` with the redirector of
absolute paths, as plain kernels run; `preload` the fallback; `mount` the shim mounted over the
driver's file, as in containers.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook import paths

MIB = 1 << 20
CLIENTS = Path(__file__).parent / "clients"
FIRST_DLSYM = {"x86_64": "GLIBC_2.2.5", "aarch64": "GLIBC_2.17"}.get(platform.machine(), "")
EVERYWHERE = ("shim", "shim+audit", "preload", "mount")
BUT_SHIM = ("shim+audit", "preload", "mount")
BUT_PRELOAD = ("shim", "shim+audit", "mount")

PYTHON_CTYPES = """
import ctypes
cuda, context, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
begun = cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cuda.cuCtxSetCurrent(context)
code = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(100 << 20))
print({0: "missed", 2: "intercepted"}.get(code, "wrong") if begun == 0 else "could not begin")
"""
PYTHON_BINDINGS = """
from cuda.bindings import driver
begun, = driver.cuInit(0)
_, context = driver.cuDevicePrimaryCtxRetain(0)
driver.cuCtxSetCurrent(context)
code, _ = driver.cuMemAlloc(100 << 20)
print({0: "missed", 2: "intercepted"}.get(int(code), "wrong") if int(begun) == 0 else "could not begin")
"""
PYTHON_NUMBA = """
from numba import cuda
try:
    cuda.device_array(100 << 20, "u1")
    print("missed")
except cuda.cudadrv.driver.CudaAPIError as error:
    print("intercepted" if "OUT_OF_MEMORY" in str(error) else "wrong")
"""
PYTHON_PYCUDA = """
import pycuda.autoprimaryctx, pycuda.driver
try:
    pycuda.driver.mem_alloc(100 << 20)
    print("missed")
except pycuda.driver.MemoryError:
    print("intercepted")
"""
# Its runtime library is a part of it, and stops where no export tables are; it gets to cuInit.
PYTHON_CUPY = """
import cupy
try:
    print(cupy.cuda.runtime.getDeviceCount())
except cupy.cuda.runtime.CUDARuntimeError as error:
    print(error)
"""
INSTALLED = Path(__file__).parents[3] / "build" / "clients"


@dataclass(frozen=True)
class Client:
    """One way to the driver.

    ``held`` are the mechanisms under which its allocation meets the quota.
    """

    held: tuple[str, ...] = EVERYWHERE
    route: str = ""
    source: str = "client.c"
    flags: tuple[str, ...] = ()
    python: str = ""
    part: str = ""  # of build/clients, where tools/cuda_clients.py installs what is not in the tests' environment
    library: str = ""  # a runtime library of NVIDIA's in it; registers with the agent, and stops


_OLD = (f'-DFIRST_DLSYM="{FIRST_DLSYM}"',)
# The numbers are those of the field's 19 cases.
MATRIX = {
    "01 linked, lazy binding": Client(source="linked.c", flags=("-Wl,-z,lazy",)),
    "02 linked, bound at start": Client(source="linked.c", flags=("-Wl,-z,now",)),
    "03 dlopen, dlsym": Client(route="dlopen"),
    "03 dlopen, dlsym of old binaries": Client(route="dlopen", flags=_OLD),
    "04 dlopen global, default dlsym": Client(route="global"),
    "04 dlopen global, default dlsym of old binaries": Client(route="global", flags=_OLD),
    "05 dlopen deepbind": Client(route="deepbind"),
    "06 dlopen of the link name": Client(route="link_name"),
    # What the shim folder alone misses, and why the redirector exists.
    "07 dlopen of the absolute path": Client(BUT_SHIM, "absolute"),
    "07 dlopen of the absolute path after the name": Client(BUT_SHIM, "absolute_after"),
    # A new namespace has no preloaded libraries.
    "08 dlmopen": Client(BUT_PRELOAD, "namespace"),
    "09 first query": Client(route="query_first"),
    "09 second query": Client(route="query"),
    "10 first query, asked for itself": Client(route="query_itself_first"),
    "10 second query, asked for itself": Client(route="query_itself"),
    "11 dlmopen, query": Client(BUT_PRELOAD, "namespace query"),
    "11 absolute path, query": Client(BUT_SHIM, "absolute query"),
    "12 ctypes": Client(python=PYTHON_CTYPES),
    "13 cuda-bindings 12.9": Client(python=PYTHON_BINDINGS, part="bindings-12.9"),
    "13 cuda-bindings 13.0": Client(python=PYTHON_BINDINGS, part="bindings-13.0"),
    "14 cuda-bindings": Client(python=PYTHON_BINDINGS),
    "15 numba-cuda": Client(python=PYTHON_NUMBA, part="newest"),
    "16 PyCUDA": Client(python=PYTHON_PYCUDA, part="pycuda"),
    "17 static runtime": Client(source="runtime.c", library="libcudart_static.a"),
    "18 shared runtime": Client(source="runtime.c", library="libcudart.so.13"),
    "19 CuPy": Client(python=PYTHON_CUPY, part="cupy", library="static, in its own"),
}


@dataclass
class Machine:
    """A machine with a driver in a folder of its own, laid out as drivers are, and a kernel with 64 MiB on it."""

    node: Any
    folder: Path
    driver: Path = field(init=False)
    private: Path = field(init=False)

    def __post_init__(self) -> None:
        built = paths.softgpu_driver()
        self.driver, self.private = self.folder / "driver", self.folder / "private"
        for place in (self.driver, self.private):
            place.mkdir()
            shutil.copy(built.cuda, place / "libcuda.so.999.1")
            shutil.copy(built.nvml, place / "libnvidia-ml.so.999.1")
            for link, target in (("libcuda.so.1", "999.1"), ("libcuda.so", "1")):
                (place / link).symlink_to(f"libcuda.so.{target}")
            (place / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.999.1")

    def run(self, mechanism: str, command: list[str]) -> str:
        shim = paths.shim_dir()
        env = {**self.node.hooked_env, "ALIQUOT_REAL_CUDA": f"{self.driver}/libcuda.so.1"}
        env["ALIQUOT_REAL_NVML"] = f"{self.driver}/libnvidia-ml.so.1"
        env["LD_LIBRARY_PATH"] = f"{shim}:{self.driver}"
        if mechanism == "shim+audit":
            env["LD_AUDIT"] = str(shim / "libaliquot-audit.so")
        elif mechanism == "preload":
            names = ("libcuda.so.1", "libnvidia-ml.so.1", "libaliquot-preload.so")
            env.update(LD_LIBRARY_PATH=str(self.driver), LD_PRELOAD=":".join(str(shim / name) for name in names))
        elif mechanism == "mount":
            env.update(LD_LIBRARY_PATH=str(self.driver), ALIQUOT_REAL_CUDA=f"{self.private}/libcuda.so.1")
            env["ALIQUOT_REAL_NVML"] = f"{self.private}/libnvidia-ml.so.1"
            command = [*_mounting(shim, self.driver), *command]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout.strip()


def _mounting(shim: Path, driver: Path) -> list[str]:
    """Return a command that runs its arguments where the shim is mounted over the driver."""
    files = (("libcuda.so.1", "libcuda.so.999.1"), ("libnvidia-ml.so.1", "libnvidia-ml.so.999.1"))
    mounts = " && ".join(f"mount --bind {shim / ours} {driver / theirs}" for ours, theirs in files)
    return [
        "env",
        "-u",
        "LD_LIBRARY_PATH",
        "unshare",
        "-rm",
        "sh",
        "-c",
        f'{mounts} && LD_LIBRARY_PATH={driver} "$@"',
        "sh",
    ]


@pytest.fixture
def a_machine(a_node: Any, a_folder: Path) -> Machine:
    outsider = a_node.outsider()
    outsider("begin()")
    a_node.grant((outsider("uuid()"), 64 * MIB))
    outsider.close()
    return Machine(a_node, a_folder)


@pytest.fixture(scope="session")
def may_mount() -> bool:
    command = ["unshare", "-rm", "true"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture
def build(a_folder: Path) -> Callable[[Client, Path], list[str]]:
    """Compile a client; return the command to run it."""

    def compile_client(client: Client, driver: Path) -> list[str]:
        if client.python:
            return _python(client)
        compiler = shutil.which("cc") or shutil.which("gcc")
        assert compiler, "a C compiler is needed: install gcc"
        program = a_folder / "client"
        command = [compiler, "-w", str(CLIENTS / client.source), "-o", str(program), *client.flags]
        if client.source == "linked.c":
            command += [f"-L{driver}", "-lcuda"]
        elif client.library:
            library = _runtime(client.library)
            command += [str(library), f"-Wl,-rpath,{library.parent}", "-lrt", "-lpthread"]
        subprocess.run([*command, "-ldl"], check=True)
        return [str(program), client.route, str(driver / "libcuda.so.1")]

    return compile_client


def _python(client: Client) -> list[str]:
    if not client.part:
        return [sys.executable, "-c", client.python]
    if not (INSTALLED / f"{client.part}.stamp").exists():
        pytest.skip(f"{client.part} is not in build/clients: tools/setup.py test installs it, and says why it did not")
    return ["env", f"PYTHONPATH={INSTALLED / client.part}", str(INSTALLED / "bin/python"), "-c", client.python]


def _runtime(name: str) -> Path:
    for folder in sys.path:
        library = Path(folder) / "nvidia/cu13/lib" / name
        if library.exists():
            return library
    pytest.skip(f"{name} was not found: pip install 'nvidia-cuda-runtime==13.0.*'")


@pytest.mark.parametrize("mechanism", EVERYWHERE)
@pytest.mark.parametrize("name", MATRIX)
def test_a_client_meets_the_quota(
    name: str, mechanism: str, a_machine: Machine, build: Callable[..., list[str]], may_mount: bool
) -> None:
    client = MATRIX[name]
    if mechanism == "mount" and not may_mount:
        pytest.skip("this user may not mount in a namespace of its own (unshare -rm)")
    said = a_machine.run(mechanism, build(client, a_machine.driver))
    if client.library:
        # It ends before it may have registered; the log is written at once.
        assert "event=started" in a_machine.node.log.read_text(), f"cuInit missed the hook: {said}"
    else:
        assert said == ("intercepted" if mechanism in client.held else "missed")


@pytest.mark.parametrize("mechanism", EVERYWHERE)
def test_nvml_is_the_hook(mechanism: str, a_machine: Machine, may_mount: bool) -> None:
    if mechanism == "mount" and not may_mount:
        pytest.skip("this user may not mount in a namespace of its own (unshare -rm)")
    code = "import pynvml; pynvml.nvmlInit(); handle = pynvml.nvmlDeviceGetHandleByIndex(0)"
    code += "; print(pynvml.nvmlDeviceGetMemoryInfo(handle).total >> 20)"
    assert a_machine.run(mechanism, [sys.executable, "-c", code]) == "64"


def test_without_a_mechanism_every_client_would_be_missed(a_machine: Machine, build: Callable[..., list[str]]) -> None:
    """The control: interception in the other tests is the hook's doing."""
    command = build(MATRIX["03 dlopen, dlsym"], a_machine.driver)
    env = {**a_machine.node.hooked_env, "LD_LIBRARY_PATH": str(a_machine.driver)}
    assert subprocess.run(command, env=env, capture_output=True, text=True).stdout == "missed\n"

"""Compile the conformance programs and run one test of one program, bare or through the hook.

The GPU is the software GPU, or with ALIQUOT_TEST_GPU=1 the machine's own.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from jupyter_aliquot.gpu_hook import paths
from jupyter_aliquot.gpu_hook.protocol.codec import ResidencyMode

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "tools"))
from gpu_headers import header_folder  # noqa: E402

EXIT_SKIPPED = 77
DEVICES, MEMORY_BYTES = 2, 256 << 20
QUOTA_BYTES = 1 << 50  # no quota in the way: the hook's answers must be the driver's own


@functools.cache
def _hook_tests(name: str) -> ModuleType:
    """Return the stand-in for the agent, and its swaps; test folders are no packages."""
    path = HERE.parent / "hook" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"conformance_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def the_driver() -> paths.Driver:
    """Return the driver for the programs."""
    return paths.choose_driver("nvidia" if os.environ.get("ALIQUOT_TEST_GPU") else "softgpu")


@pytest.fixture(scope="session")
def compile_program(tmp_path_factory: pytest.TempPathFactory, the_driver: paths.Driver) -> Callable[[str], Path]:
    """Return the path of a family's program, compiled once."""
    folder = tmp_path_factory.mktemp("conformance")
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed: install gcc"

    def compile_one(family: str) -> Path:
        program = folder / family
        if not program.exists():
            flags = ["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations"]
            includes = ["-isystem", str(header_folder("cuda.h")), f"-I{HERE}"]
            link = [str(the_driver.cuda), "-lpthread"]
            source = str(HERE / f"{family}.c")
            subprocess.run([compiler, *flags, *includes, source, *link, "-o", str(program)], check=True)
        return program

    return compile_one


@pytest.fixture
def bare_env(the_driver: paths.Driver, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return the environment of a program without the hook, on a machine of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ALIQUOT_", "LD_", "CUDA_"))}
    state = Path("/dev/shm") / f"aq-conformance-{os.getpid()}"
    yield {
        **kept,
        "LD_LIBRARY_PATH": str(the_driver.cuda.parent),
        "ALIQUOT_BUILTINS": str(HERE.parents[2] / "gpu_hook" / "builtins.ptx"),
        "ALIQUOT_SOFTGPU_STATE": str(state),
        "ALIQUOT_SOFTGPU_CONTEXT": "0",
        "ALIQUOT_SOFTGPU_DEVICES": str(DEVICES),
        "ALIQUOT_SOFTGPU_MEMORY": str(MEMORY_BYTES),
    }
    for left in Path("/dev/shm").glob(f"{state.name}*"):
        left.unlink(missing_ok=True)


@pytest.fixture
def hooked_env(bare_env: dict[str, str], the_driver: paths.Driver, a_kernel_dir: Path) -> Iterator[dict[str, str]]:
    """Return the same environment through the hook, with a quota that no program reaches."""
    with _hooked(bare_env, the_driver, a_kernel_dir) as env:
        yield env


@pytest.fixture
def swappable_env(bare_env: dict[str, str], the_driver: paths.Driver, a_kernel_dir: Path) -> Iterator[dict[str, str]]:
    """Return the same where each linear allocation is swappable, most of several chunks."""
    words = {"residency_mode": ResidencyMode.VMM, "least_swappable": 1, "chunk": 2 << 20}
    with _hooked(bare_env, the_driver, a_kernel_dir, **words) as env:
        yield env


@pytest.fixture
def swapped_env(bare_env: dict[str, str], the_driver: paths.Driver, a_kernel_dir: Path) -> Iterator[dict[str, str]]:
    """Return the same where an agent takes all memory out before every checked call."""
    words = {"residency_mode": ResidencyMode.VMM, "least_swappable": 1, "chunk": 2 << 20}
    with _hooked(bare_env, the_driver, a_kernel_dir, swaps=True, **words) as env:
        yield env


@pytest.fixture
def paged_env(bare_env: dict[str, str], the_driver: paths.Driver, a_kernel_dir: Path) -> Iterator[dict[str, str]]:
    """Return the same with unified memory, which leaves before every checked call."""
    words = {"residency_mode": ResidencyMode.MANAGED, "least_swappable": 1}
    with _hooked(bare_env, the_driver, a_kernel_dir, swaps=True, **words) as env:
        yield env


@pytest.fixture
def paced_env(bare_env: dict[str, str], the_driver: paths.Driver, a_kernel_dir: Path) -> Iterator[dict[str, str]]:
    """Return the same where launches sometimes wait for their share of the device's time."""
    with _hooked(bare_env, the_driver, a_kernel_dir, is_paced=True) as env:
        yield env


@contextlib.contextmanager
def _hooked(
    bare_env: dict[str, str],
    the_driver: paths.Driver,
    a_kernel_dir: Path,
    swaps: bool = False,
    is_paced: bool = False,
    **words: int,
) -> Iterator[dict[str, str]]:
    stand_in = _hook_tests("agent_stand_in")
    machine = {name: value for name, value in bare_env.items() if name.startswith(("ALIQUOT_", "LD_"))}
    uuids = _uuids(the_driver, *machine.items())
    agent = stand_in.StandIn(a_kernel_dir, [stand_in.Device(uuid, QUOTA_BYTES) for uuid in uuids])
    for name, value in words.items():
        setattr(agent, name, value)
    pace = _hook_tests("tight_pace").TightPace(agent) if is_paced else contextlib.nullcontext()
    agent.start()
    steps = _hook_tests("swaps").Steps(agent, a_kernel_dir / "steps", MEMORY_BYTES * DEVICES) if swaps else None
    with pace:
        yield {
            **bare_env,
            # The driver's own folder too: NVIDIA's opens its compiler of PTX by name.
            "LD_LIBRARY_PATH": f"{paths.shim_dir()}{os.pathsep}{the_driver.cuda.parent}",
            "ALIQUOT_KERNEL_DIR": str(a_kernel_dir),
            "ALIQUOT_REAL_CUDA": str(the_driver.cuda),
            "ALIQUOT_REAL_NVML": str(the_driver.nvml),
            **({"ALIQUOT_TEST_STEPS": str(steps.path)} if steps else {}),
        }
    if steps:
        steps.stop()
    agent.stop()
    assert steps is None or steps.failure is None, steps.failure


@pytest.fixture
def a_kernel_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make a kernel folder whose path is short enough for a socket."""
    folder = Path(f"/tmp/aq-conf-{os.getpid()}")
    folder.mkdir(mode=0o700)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _uuids(driver: paths.Driver, *variables: tuple[str, str]) -> list[bytes]:
    """Return every device of the machine, listed once in a process of its own.

    A software GPU of the same variables has the same ones.
    """
    source = (
        "import ctypes, sys\n"
        "cuda = ctypes.CDLL(sys.argv[1]); assert cuda.cuInit(0) == 0\n"
        "count = ctypes.c_int(); cuda.cuDeviceGetCount(ctypes.byref(count))\n"
        "for device in range(count.value):\n"
        "    uuid = ctypes.create_string_buffer(16); cuda.cuDeviceGetUuid(uuid, device); print(uuid.raw.hex())\n"
    )
    command = [sys.executable, "-c", source, str(driver.cuda)]
    listed = subprocess.run(command, env=dict(variables), capture_output=True, text=True, check=True)
    return [bytes.fromhex(line) for line in listed.stdout.split()]

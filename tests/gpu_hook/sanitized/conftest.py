"""The hook and the software GPU built with a sanitizer, and a machine to run them on."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook import paths

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1",
    "UBSAN_OPTIONS": "halt_on_error=1",
    "TSAN_OPTIONS": f"halt_on_error=1 exitcode=66 suppressions={HERE}/thread_suppressions.txt",
}


def _load(path: Path) -> ModuleType:
    """Load a module by its path: test folders are no packages."""
    spec = importlib.util.spec_from_file_location(f"sanitized_tests_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fuzz_tests = _load(HERE.parent / "fuzz" / "conftest.py")
sanitized = _load(ROOT / "tools" / "sanitized.py")


@dataclass(frozen=True)
class Build:
    """The libraries of one sanitizer."""

    sanitizer: str
    shim: Path
    softgpu: Path


@pytest.fixture(scope="session")
def build_with() -> Callable[[str], Build]:
    """Return the libraries with a sanitizer; those of the setup are used as they are."""
    built: dict[str, Build] = {}
    cmake = sanitized.find_cmake()

    def build(sanitizer: str) -> Build:
        if sanitizer not in built:
            if cmake is None:
                pytest.skip("cmake was not found: pip install cmake")
            native = sanitized.build(sanitizer, cmake)
            built[sanitizer] = Build(sanitizer, native / "shim", native / "softgpu")
        return built[sanitizer]

    return build


@pytest.fixture
def compile_with(tmp_path: Path) -> Callable[..., Path]:
    def compile_one(sanitizer: str, sources: list[Path], *flags: str) -> Path:
        target = tmp_path / sources[0].stem
        return Path(fuzz_tests.compile_c(target, sources, f"-fsanitize={sanitizer}", *flags))

    return compile_one


@pytest.fixture
def compile_with_hook(tmp_path: Path) -> Callable[[str, str], Path]:
    """Compile a C program of the hook's tests, together with the hook's sources."""

    def compile_one(sanitizer: str, main: str) -> Path:
        hook_tests = fuzz_tests.hook_tests
        return Path(hook_tests.hook_program.build(main, tmp_path, hook_tests.cuda_include(), sanitizer))

    return compile_one


@pytest.fixture
def make_machine() -> Iterator[Callable[..., Any]]:
    """Make a machine with these libraries and one device of 64 MiB: bare, or with this quota."""
    folders: list[Path] = []
    nodes: list[Any] = []

    def make(build: Build, quota: int | None, devices: int = 1, memory: str = "64MiB") -> Any:
        folder = Path(tempfile.mkdtemp(prefix="aq-s-", dir="/tmp"))
        folders.append(folder)
        shape = {"STATE": f"/dev/shm/{folder.name}", "DEVICES": str(devices), "MEMORY": memory, "LAUNCH_NS": "1000"}
        env = {f"ALIQUOT_SOFTGPU_{name}": value for name, value in shape.items()}
        env["ALIQUOT_BUILTINS"] = str(ROOT / "gpu_hook" / "builtins.ptx")
        cuda, nvml = build.softgpu / "libcuda.so.1", build.softgpu / "libnvidia-ml.so.1"
        node = fuzz_tests.hook_tests.Node(folder, cuda, nvml, {**env, **OPTIONS})
        node.hooked_env["LD_LIBRARY_PATH"] = str(build.shim)
        nodes.append(node)
        if quota is not None:
            usual = str(paths.softgpu_driver().cuda.parent)  # an ordinary Python cannot load a sanitizer's library
            outsider = node.outsider(LD_LIBRARY_PATH=usual)
            assert outsider("begin()") == 0
            node.grant(*((outsider(f"uuid({device})"), quota) for device in range(devices)))
            node.agent.host_quota = 1 << 40
        return node

    yield make
    for node in nodes:
        node.close()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        for left in Path("/dev/shm").glob(f"{folder.name}*"):
            left.unlink(missing_ok=True)


@pytest.fixture
def differential() -> ModuleType:
    return fuzz_tests.differential


@pytest.fixture
def swap_orders() -> ModuleType:
    """Return the module with an agent's orders to swap one process."""
    found: ModuleType = fuzz_tests.hook_tests.swap_orders
    return found


@pytest.fixture
def tight_pace() -> ModuleType:
    """Return the agent that makes launches wait now and then."""
    found: ModuleType = fuzz_tests.tight_pace
    return found

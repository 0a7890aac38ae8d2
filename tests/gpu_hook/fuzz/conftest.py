"""Two machines of equal shape, one of them behind the hook, and the fuzzer compiled for both."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook import paths
from jupyter_aliquot.gpu_hook.protocol.codec import HookPage

HERE = Path(__file__).parent
MIB = 1 << 20
DEVICES, MEMORY_BYTES = 2, 256 * MIB
NO_QUOTA = 1 << 62
OPERATIONS = 500  # of a sequence


def _load(path: Path) -> ModuleType:
    """Load a module by its path: test folders are no packages."""
    spec = importlib.util.spec_from_file_location(f"fuzz_tests_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


differential = _load(HERE / "differential.py")
hook_tests = _load(HERE.parent / "hook" / "conftest.py")
tight_pace = _load(HERE.parent / "hook" / "tight_pace.py")


def compile_c(target: Path, sources: list[Path], *flags: str) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "a C compiler is needed: install gcc"
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations"]
    include = ["-isystem", str(hook_tests.cuda_include())]
    command = [compiler, "-std=gnu11", "-O1", "-g", "-D_GNU_SOURCE", *warnings, *include]
    subprocess.run([*command, *map(str, sources), *flags, "-o", str(target)], check=True)
    return target


@pytest.fixture(scope="session")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = [one for one in sorted(HERE.glob("*.c")) if one.stem != "planted"]
    return compile_c(tmp_path_factory.mktemp("fuzz") / "fuzz", sources, str(paths.softgpu_driver().cuda), "-lpthread")


@pytest.fixture
def plants(tmp_path: Path) -> Callable[[str], Path]:
    """Build a library with one planted difference, for preloading."""

    def make(name: str) -> Path:
        return compile_c(tmp_path / "plant.so", [HERE / "planted.c"], "-shared", "-fPIC", f"-DPLANT_{name}", "-ldl")

    return make


@pytest.fixture
def make_pair(fuzzer: Path) -> Iterator[Callable[..., Any]]:
    """Make two machines, the second with ``quota`` on its hook."""
    folders: list[Path] = []
    nodes, stack = list[Any](), ExitStack()

    def make(quota: int = NO_QUOTA, hooked: dict[str, str] | None = None, is_paced: bool = False, **both: str) -> Any:
        driver = paths.softgpu_driver()
        made = []
        for _ in range(2):
            folder = Path(tempfile.mkdtemp(prefix="aq-f-", dir="/tmp"))
            folders.append(folder)
            shape = {"STATE": f"/dev/shm/{folder.name}", "DEVICES": str(DEVICES), "MEMORY": str(MEMORY_BYTES)}
            env = {f"ALIQUOT_SOFTGPU_{name}": value for name, value in {**shape, "LAUNCH_NS": "1000"}.items()}
            env["ALIQUOT_BUILTINS"] = str(HERE.parents[2] / "gpu_hook" / "builtins.ptx")
            made.append(hook_tests.Node(folder, driver.cuda, driver.nvml, {**env, **both}))
        nodes.extend(made)
        outsider = made[1].outsider()
        assert outsider("begin()") == 0
        uuids = [outsider(f"uuid({device})") for device in range(DEVICES)]
        agent = made[1].grant(*((uuid, quota) for uuid in uuids))
        agent.host_quota = NO_QUOTA
        pace = stack.enter_context(tight_pace.TightPace(agent)) if is_paced else None
        look = differential.books(agent, HookPage, DEVICES)

        def rest() -> None:
            agent.wait_for(lambda: not agent.connections)

        envs = made[0].plain_env, {**made[1].hooked_env, **(hooked or {})}
        return differential.Pair(
            fuzzer, *envs, OPERATIONS, quota < NO_QUOTA, "ALIQUOT_SOFTGPU_FAULTS" in both, look, rest, pace
        )

    yield make
    stack.close()
    for node in nodes:
        node.close()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        for left in Path("/dev/shm").glob(f"{folder.name}*"):
            left.unlink(missing_ok=True)

"""The surroundings of a kernel, without a Jupyter kernel, for tests of the hook.

It has the hook's libraries, a stand-in for the agent, and programs that tests drive.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook import paths

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "tools"))
from gpu_headers import header_folder  # noqa: E402

MIB = 1 << 20


def _load(name: str) -> ModuleType:
    """Load a file beside this one by its path: test folders are no packages."""
    spec = importlib.util.spec_from_file_location(f"hook_tests_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


stand_in, hook_program = _load("agent_stand_in"), _load("hook_program")
swap_orders = _load("swap_orders")
parts, files_of_activity = _load("hook_parts"), _load("activity_files")
paced, swapped = _load("paced_kernel"), _load("swapped_kernel")
family_machine, family_walk = _load("family_machine"), _load("family_walk")


# nanosleep, clock_nanosleep, futex
_SLEEPS = {"x86_64": ("35", "230", "202"), "aarch64": ("101", "115", "98")}


class Program:
    """A process that runs gpu_program.py.

    ``program("alloc(1024)")`` is the value of that expression there.
    """

    def __init__(self, env: dict[str, str]) -> None:
        command = [sys.executable, str(HERE / "gpu_program.py")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True, bufsize=1
        )
        self.pid = self._process.pid

    def __call__(self, expression: str) -> Any:
        self.ask(expression)
        return self.answer()

    def ask(self, expression: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the program ended with {self._process.wait()}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def has_answer(self, seconds: float) -> bool:
        """Return whether it answers within this time."""
        return bool(select.select([self._process.stdout], [], [], seconds)[0])

    def is_asleep(self) -> bool:
        """Return whether its first thread sleeps in the hook.

        Otherwise it would have answered, or read.
        """
        number = Path(f"/proc/{self.pid}/syscall").read_text().split()[0]
        return number in _SLEEPS[os.uname().machine]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()


class Node:
    """One machine: a driver, a kernel folder, the agent's stand-in, and the environments of programs."""

    def __init__(self, folder: Path, cuda: Path, nvml: Path, env: dict[str, str]) -> None:
        self.kernel_dir = folder
        self.log = folder / "hook.log"
        self._programs: list[Program] = []
        self.plain_env = {**_clean_environment(), **env, "LD_LIBRARY_PATH": str(cuda.parent)}
        self.hooked_env = {
            **self.plain_env,
            "LD_LIBRARY_PATH": str(paths.shim_dir()),
            "ALIQUOT_KERNEL_DIR": str(folder),
            "ALIQUOT_REAL_CUDA": str(cuda),
            "ALIQUOT_REAL_NVML": str(nvml),
            "ALIQUOT_HOOK_LOG": str(self.log),
        }
        self.agent: Any = stand_in.StandIn(folder, [])

    def program(self, **env: str) -> Program:
        """Start a process of the kernel."""
        return self._start({**self.hooked_env, **env})

    def outsider(self, **env: str) -> Program:
        """Start a process without the hook: it sees the device as it is."""
        return self._start({**self.plain_env, **env})

    def grant(self, *devices: tuple[str, int]) -> Any:
        """Start the agent with these devices: UUID in hex, and quota."""
        self.agent.devices = [stand_in.Device(bytes.fromhex(uuid), quota) for uuid, quota in devices]
        self.agent.start()
        return self.agent

    def close(self) -> None:
        for program in self._programs:
            program.close()
        self.agent.stop()
        log = self.log.read_text() if self.log.exists() else ""
        assert "event=not_marked" not in log, "a thread of the program waits for a move unmarked"

    def _start(self, env: dict[str, str]) -> Program:
        program = Program(env)
        self._programs.append(program)
        return program


def _clean_environment() -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ALIQUOT_", "LD_", "CUDA_"))}
    return {**env, "PYTHONFAULTHANDLER": "1", "ALIQUOT_SOFTGPU_CONTEXT": "0"}


@pytest.fixture
def a_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def null_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled null driver."""
    library = tmp_path_factory.mktemp("null") / "libcuda.so.1"
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed: install gcc"
    include = cuda_include()
    command = [compiler, "-shared", "-fPIC", "-O2", "-w", f"-I{include}", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic"]
    sources = [str(HERE / name) for name in ("null_driver.c", "null_families.c", "null_forwarded.c", "null_graphs.c")]
    subprocess.run([*command, *sources, "-o", str(library)], check=True)
    return library


def cuda_include() -> Path:
    return header_folder("cuda.h")


@pytest.fixture(scope="session")
def include_dir() -> Path:
    return cuda_include()


@pytest.fixture(scope="session")
def build_program(tmp_path_factory: pytest.TempPathFactory, include_dir: Path) -> Callable[..., Path]:
    """Build a C program of this folder with the hook's sources, each once.

    Called as ``(main, sanitizer="", kind="cuda")``.
    """

    @functools.cache
    def build(main: str, sanitizer: str = "", kind: str = "cuda") -> Path:
        folder = tmp_path_factory.mktemp("program")
        return Path(hook_program.build(main, folder, include_dir, sanitizer, kind))

    return build


@pytest.fixture
def a_null_node(a_folder: Path, null_driver: Path) -> Iterator[Node]:
    node = Node(a_folder, null_driver, null_driver, {})
    yield node
    node.close()


@pytest.fixture
def make_node(a_folder: Path) -> Iterator[Callable[..., Node]]:
    """Make a machine with a software GPU.

    Settings are its variables without the prefix, in lower case. It is strict: it ends a program
    that uses ended objects.
    """
    nodes: list[Node] = []
    state = Path("/dev/shm") / f"aq-hook-{os.getpid()}-{a_folder.name}"

    def make(**softgpu: object) -> Node:
        driver = paths.softgpu_driver()
        wanted = {"strict": 1, **softgpu}
        env = {f"ALIQUOT_SOFTGPU_{name.upper()}": str(value) for name, value in wanted.items()}
        env.update(ALIQUOT_SOFTGPU_STATE=str(state))
        nodes.append(Node(a_folder, driver.cuda, driver.nvml, env))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()
    for left in Path("/dev/shm").glob(f"{state.name}*"):
        left.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def parts_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parts")


@pytest.fixture
def make_parts(parts_folder: Path, tmp_path: Path) -> Callable[..., Any]:
    """Load some of the hook's files in this process: ``make_parts("activity_page.c", …)``."""
    made = itertools.count()

    def make(*names: str | Path) -> Any:
        folder = tmp_path / f"parts{next(made)}"
        folder.mkdir()
        return parts.Parts(parts_folder, folder, *names)

    return make


@pytest.fixture
def hook_parts() -> ModuleType:
    """Return the C structures that go with ``make_parts``."""
    return parts


@pytest.fixture
def activity_files() -> ModuleType:
    """Return the module with activity pages, and the notices that hand them out."""
    return files_of_activity


@pytest.fixture
def paced_kernel() -> Any:
    """Return the module that makes a kernel whose launches the test paces."""
    return paced.PacedKernel


@pytest.fixture
def a_paced_kernel(a_node: Node) -> Iterator[Any]:
    """Make a kernel on two devices, whose launches the test paces."""
    kernel = paced.PacedKernel(a_node)
    yield kernel
    kernel.program.kill()  # it may wait for its turn


@pytest.fixture
def families() -> Any:
    """Return the state machine over every family of memory, and a seeded walk over its rules."""
    return SimpleNamespace(configure=family_machine.configure, walk=family_walk.walk)


@pytest.fixture
def make_orders() -> Callable[..., Any]:
    """Swap a process: ``with make_orders(agent, connection, sizes of segments) as orders``."""
    return lambda *arguments, **options: contextlib.closing(swap_orders.Orders(*arguments, **options))


@pytest.fixture
def make_kernel(make_node: Callable[..., Node], make_orders: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Make a kernel of one process, which the test swaps."""
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **options: swapped.make(make_node, make_orders, stack, *arguments, **options)


@pytest.fixture
def a_node(make_node: Callable[..., Node]) -> Node:
    """Make a node with two devices of 256 MiB."""
    return make_node(devices=2, memory="256MiB")

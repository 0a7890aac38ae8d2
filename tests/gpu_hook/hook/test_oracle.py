"""The hook against NVIDIA's own driver library, which loads without a GPU.

Every answer is the same, but for our names. The library comes from Debian's non-free section
(tools/fetch-oracle); the same questions go to the software GPU.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook import paths

ROOT = Path(paths.__file__).resolve().parents[1]
CLIENTS = Path(__file__).parent / "clients"
QUERIES = 100_000 * int(os.environ.get("ALIQUOT_SOAK", "1"))
ORACLES = ("bookworm", "trixie")
NEVER_TOUCHED = (
    "cuGetExportTable",
    "cuDriverGetVersion",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetUuid",
    "cuDeviceGetUuid_v2",
    "cuDeviceGetLuid",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetByPCIBusId",
    "cuDeviceGetAttribute",
)
# The tables that NVIDIA's runtime asks for, by their UUIDs.
EXPORT_TABLES = (
    "6bd5fb6c5bf4e74a8987d93912fd9df9",
    "a094798c2e742e7493f20800200c0a66",
    "42d85a8123f6cb478298f6e78a3aecdc",
    "c693336e1121df11a8c368f355d89593",
    "263e88607cd2614392f6bbd5006dfa7e",
    "d4082055bde6704b8d34ba123c66e1f2",
    "f8cff95121468b4eb9e2fb469e7c0dd9",
    "00000000000000000000000000000000",
)
CODES = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
version, count, free, total, pointer = (ctypes.c_size_t(9) for _ in range(5))
by = ctypes.byref
calls = {"cuDeviceGetCount": [by(count)], "cuMemAlloc_v2": [by(pointer), ctypes.c_size_t(1 << 20)],
         "cuMemGetInfo_v2": [by(free), by(total)], "cuCtxGetCurrent": [by(pointer)], "cuMemFree_v2": [None],
         "cuCtxSynchronize": [], "cuMemcpyDtoD_v2": [None, None, ctypes.c_size_t(0)],
         "cuLaunchKernel": [None, 1, 1, 1, 1, 1, 1, 0, None, None, None]}
def call(): return {name: getattr(library, name)(*arguments) for name, arguments in calls.items()}
said = [library.cuDriverGetVersion(by(version)), version.value, call(), library.cuInit(0), library.cuInit(1), call()]
print(json.dumps(said))
"""
TABLES = """
import ctypes, json, sys
def ask(library):
    tables = [ctypes.c_void_p() for _ in sys.argv[2:]]
    return [[library.cuGetExportTable(ctypes.byref(table), bytes.fromhex(uuid)), table.value]
            for table, uuid in zip(tables, sys.argv[2:])]
hook = ctypes.CDLL("libcuda.so.1")
print(json.dumps([ask(hook), ask(ctypes.CDLL(sys.argv[1]))]))
"""


def read_table() -> dict[str, Any]:
    path = ROOT / "gpu_hook/hook/interpose/entry_points_table.py"
    spec = importlib.util.spec_from_file_location("entry_points_table", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.read_table(path.with_name("entry_points.txt"))


TABLE = read_table()


def find_driver(name: str) -> Path:
    if name == "software GPU":
        return paths.softgpu_driver().cuda
    library = ROOT / "build/oracle" / name / "libcuda.so.1"
    if not library.exists():
        pytest.skip("NVIDIA's driver library was not fetched: tools/fetch-oracle (needs apt-get and Debian's mirror)")
    return library


@pytest.fixture(scope="module")
def a_fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed: install gcc"
    program = tmp_path_factory.mktemp("fuzz") / "query_fuzz"
    command = [compiler, "-O1", "-w", str(CLIENTS / "query_fuzz.c"), "-o", str(program), "-ldl"]
    subprocess.run(command, check=True)
    return program


def fuzz(a_node: Any, fuzzer: Path, driver: Path, seed: int, **changed: bool) -> subprocess.CompletedProcess[str]:
    classes = {name: entry.kind != "pass" for name, entry in TABLE.items()} | changed
    table = "".join(f"{name} {int(is_ours)}\n" for name, is_ours in classes.items())
    env = {**a_node.hooked_env, "ALIQUOT_REAL_CUDA": str(driver)}
    command = [str(fuzzer), str(driver), str(QUERIES), str(seed)]
    return subprocess.run(command, env=env, input=table, capture_output=True, text=True, timeout=100)


@pytest.mark.soak
@pytest.mark.parametrize("driver", [*ORACLES, "software GPU"])
def test_every_query_is_answered_as_the_driver_answers_it(driver: str, a_node: Any, a_fuzzer: Path) -> None:
    seed = random.randrange(1, 1 << 32)
    done = fuzz(a_node, a_fuzzer, find_driver(driver), seed)
    assert done.returncode == 0, f"seed {seed}: {done.stdout}"
    assert int(done.stdout.split()[2]) > QUERIES // 4  # pointers were compared
    assert "unknown_symbol" not in a_node.log.read_text(), f"seed {seed}: a symbol of the known set was not known"


def test_the_comparison_finds_a_wrong_class(a_node: Any, a_fuzzer: Path) -> None:
    """The control."""
    done = fuzz(a_node, a_fuzzer, find_driver("software GPU"), 1, cuStreamQuery=True, cuMemAlloc_v2=False)
    assert done.returncode == 1
    assert "cuMemAlloc version" in done.stdout
    assert "cuStreamQuery version" in done.stdout


def run_python(code: str, env: dict[str, str], *arguments: str) -> Any:
    command = [sys.executable, "-c", code, *arguments]
    return json.loads(subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60).stdout)


@pytest.mark.parametrize("release", ORACLES)
def test_codes_are_the_drivers(release: str, a_node: Any) -> None:
    library = str(find_driver(release))
    hooked = run_python(CODES, {**a_node.hooked_env, "ALIQUOT_REAL_CUDA": library}, "libcuda.so.1")
    assert hooked == run_python(CODES, a_node.plain_env, library)
    assert hooked[3] == 100  # no device


@pytest.mark.parametrize("driver", [*ORACLES, "software GPU"])
def test_export_tables_are_the_drivers(driver: str, a_node: Any) -> None:
    library = str(find_driver(driver))
    hook, real = run_python(TABLES, {**a_node.hooked_env, "ALIQUOT_REAL_CUDA": library}, library, *EXPORT_TABLES)
    assert hook == real
    if driver != "software GPU":  # it has none
        assert any(pointer for _, pointer in hook)


@pytest.mark.parametrize("name", NEVER_TOUCHED)
def test_what_the_runtime_checks_is_only_forwarded(name: str) -> None:
    assert TABLE[name].kind == "pass"


@pytest.mark.parametrize("release", ORACLES)
def test_nvml_fails_as_it_does_without_the_hook(release: str, a_node: Any) -> None:
    library = find_driver(release).with_name("libnvidia-ml.so.1")
    code = "import ctypes, sys; nvml = ctypes.CDLL(sys.argv[1]); nvml.nvmlErrorString.restype = ctypes.c_char_p"
    code += "; print(nvml.nvmlInit_v2(), nvml.nvmlErrorString(9), nvml.nvmlShutdown())"
    said = [
        subprocess.run([sys.executable, "-c", code, name], env=env, capture_output=True, text=True, check=True).stdout
        for name, env in (
            ("libnvidia-ml.so.1", {**a_node.hooked_env, "ALIQUOT_REAL_NVML": str(library)}),
            (str(library), a_node.plain_env),
        )
    ]
    assert said[0] == said[1]
    assert said[0].startswith("9 ")

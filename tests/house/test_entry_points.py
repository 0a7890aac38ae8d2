"""The check of the table of entry points finds the faults that it exists for."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(path: str) -> ModuleType:
    """Load a script of the project: it is in no package."""
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(file.stem.replace("-", "_"), file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


table = load("gpu_hook/hook/interpose/entry_points_table.py")
checks = load("tools/entry_point_checks.py")
headers = load("tools/cuda_headers.py")

TABLE = """
hook:
  cuMemAlloc{,_v2}
gate:
  cuMemcpy{,_ptds}  # waits
  cuSubgridCreate?
pass:
  cuCtxGetDevice* cuDeviceGet
"""
HEADER = """
#define CUDAAPI
typedef enum { CUDA_SUCCESS } CUresult; typedef unsigned long long CUdeviceptr; typedef int CUdevice;
CUresult CUDAAPI cuMemAlloc(unsigned *dptr, unsigned int bytesize);
CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *dptr, SIZE bytesize);
CUresult CUDAAPI cuMemcpy(CUdeviceptr dst, CUdeviceptr src, SIZE ByteCount);
CUresult CUDAAPI cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, SIZE ByteCount);
CUresult CUDAAPI cuCtxGetDevice(CUdevice *device);
CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal);
"""


def a_release(folder: Path, more: str = "", size: str = "unsigned long", asked: tuple[str, ...] = ()) -> Any:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler to read headers with: install gcc")
    folder.mkdir()
    (folder / "cuda.h").write_text(f"#define SIZE {size}\n{HEADER}{more}")
    return headers.Release("1.0", headers.read_functions(folder), frozenset(asked), folder)


def find(text: str, *releases: Any) -> list[str]:
    return list(checks.find_all(table.parse_table(text), {str(index): one for index, one in enumerate(releases)}))


def test_a_complete_table_has_no_findings(tmp_path: Path) -> None:
    release = a_release(tmp_path / "a", asked=("cuMemAlloc", "cuSubgridCreate"))
    assert find(TABLE, release, release) == []


def test_an_unclassified_function_is_found(tmp_path: Path) -> None:
    release = a_release(tmp_path / "a", "CUresult CUDAAPI cuMemMagic(int how);")
    assert find(TABLE, release) == ["cuMemMagic: declared by CUDA 0, not in the table"]


def test_an_unclassified_variant_is_found(tmp_path: Path) -> None:
    release = a_release(tmp_path / "a", "CUresult CUDAAPI cuMemcpy_v2_ptds(int how);")
    assert find(TABLE, release) == ["cuMemcpy_v2_ptds: declared by CUDA 0, not in the table"]


def test_a_name_that_only_the_runtime_library_knows_is_found(tmp_path: Path) -> None:
    release = a_release(tmp_path / "a", asked=("cuSecret", "cuMemAlloc"))
    assert find(TABLE, release) == ["cuSecret: asked for by the runtime library of CUDA 0, not in the table"]


def test_a_changed_signature_is_found_and_a_changed_parameter_name_is_not(tmp_path: Path) -> None:
    old, new = a_release(tmp_path / "a"), a_release(tmp_path / "b", size="unsigned int")
    want = "CUDA 0: (CUdeviceptr*, unsigned long); CUDA 1: (CUdeviceptr*, unsigned int)"
    assert find(TABLE, old, new) == [f"cuMemAlloc_v2: {want}"]
    renamed = a_release(tmp_path / "c", "CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr * p, unsigned long n);")
    assert find(TABLE, old, renamed) == []


def test_a_changed_signature_of_a_function_that_we_call_is_found(tmp_path: Path) -> None:
    old = a_release(tmp_path / "a")
    changed = a_release(tmp_path / "b", "CUresult CUDAAPI cuCtxGetDevice(CUdevice *device, int more);")
    (finding,) = find(TABLE, old, changed)
    assert finding.startswith("cuCtxGetDevice: ")


def test_a_name_that_no_header_declares_is_found(tmp_path: Path) -> None:
    release = a_release(tmp_path / "a")
    assert find(TABLE + "  cuDeviceGetCuont\n", release) == ["cuDeviceGetCuont: no header declares it"]
    declared = a_release(tmp_path / "b", "CUresult CUDAAPI cuSubgridCreate(void);")
    assert find(TABLE, declared) == ["cuSubgridCreate: marked ?, but a header declares it"]


def test_a_copy_that_passes_is_found(tmp_path: Path) -> None:
    release = a_release(tmp_path / "a")
    (finding,) = find(TABLE.replace("gate:", "pass:").replace("cuSubgridCreate?", ""), release)[:1]
    assert finding.startswith("cuMemcpy: its name says")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hook:\n  cuInit\npass:\n  cuInit\n", "t:4: cuInit stands in the table already"),
        ("hook:\n  cuInit{,_v2} cuInit_v2\n", "t:2: cuInit_v2 stands in the table already"),
        ("cuInit\n", "t:1: 'cuInit' is neither a class"),
        ("hang:\n  cuInit\n", "t:1: class 'hang'; there are hook, gate, pass, deny"),
        ("hook:\n  cu-Init\n", "t:2: 'cu-Init' is no name"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(text: str, reason: str) -> None:
    with pytest.raises(table.TableError) as caught:
        table.parse_table(text, "t")
    assert reason in str(caught.value)


def test_headers_that_cannot_be_had_are_a_failure_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(headers.FetchError, match="no-such-package"):
        headers.fetch(tmp_path, "none", "./no-such-package.whl")


def test_types_are_compared_without_names_and_spaces() -> None:
    assert headers._types("const char *symbol, void **pfn, unsigned int flags") == (
        "const char*",
        "void**",
        "unsigned int",
    )
    assert headers._types("CUgraphNode *const *nodes, char name[64], unsigned n, CUdevice") == (
        "CUgraphNode* const*",
        "char[64]",
        "unsigned int",
        "CUdevice",
    )
    assert headers._types("void") == ()


def test_arguments_on_the_stack_are_counted(tmp_path: Path) -> None:
    sizes = {"Handle": 64, "Pair": 16}
    assert checks.count_stack_words(["int"] * 6, sizes) == 0
    assert checks.count_stack_words(["int"] * 8, sizes) == 2
    assert checks.count_stack_words(["void*", "Handle", "int"], sizes) == 8
    assert checks.count_stack_words(["int"] * 5 + ["Pair", "int"], sizes) == 2


def test_a_forwarder_that_copies_too_few_arguments_is_found(tmp_path: Path) -> None:
    release = a_release(
        tmp_path / "one", "CUresult CUDAAPI cuMemcpyX(int a, int b, int c, int d, int e, int f, int g);\n"
    )
    entries = table.parse_table("gate:\n  cuMemcpy{,_ptds,X}\n")
    assert checks.find_wide(entries, {"1.0": release}, {}, lambda name: 1) == []
    found = checks.find_wide(entries, {"1.0": release}, {}, lambda name: 0)
    assert found == ["cuMemcpyX: 1 words on the stack in CUDA 1.0, its forwarder copies 0"]

"""Every way to the driver leads through the hook, and nothing but memory looks different."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hook_sources import source

from jupyter_aliquot.gpu_hook import paths

MIB = 1 << 20
HERE = Path(__file__).parent


def read_table() -> dict[str, Any]:
    """The table of entry points, read as the build reads it."""
    spec = importlib.util.spec_from_file_location("entry_points_table", source("entry_points_table.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.read_table(source("entry_points.txt"))


TABLE = read_table()
OURS = [name for name, entry in TABLE.items() if entry.kind != "pass"]

ROUTES = {
    "dlopen": 'handle = dlopen("libcuda.so.1", RTLD_NOW);',
    "global": 'dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL); handle = RTLD_DEFAULT;',
    "deepbind": 'handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND);',
    "link_name": 'handle = dlopen("libcuda.so", RTLD_NOW);',
    "link_name_first": 'dlopen("libcuda.so", RTLD_NOW); handle = dlopen("libcuda.so.1", RTLD_NOW);',
    "link_name_second": 'dlopen("libcuda.so.1", RTLD_NOW); handle = dlopen("libcuda.so", RTLD_NOW);',
    "namespace": 'handle = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);',
    "namespace_link_name": 'handle = dlmopen(LM_ID_NEWLM, "libcuda.so", RTLD_NOW);',
}
CLIENT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **names) {
    void *handle; Dl_info found;
    ROUTE
    if (!handle && handle != RTLD_DEFAULT) { puts(dlerror()); return 1; }
    for (int i = 1; i < count; i++) {
        void *function = dlsym(handle, names[i]);
        if (!function || !dladdr(function, &found)) return 2;
        puts(found.dli_fname);
    }
    return 0;
}
"""
LINKED = """
int cuInit(unsigned); int cuMemAlloc_v2(unsigned long long *, unsigned long);
int cuDevicePrimaryCtxRetain(void **, int); int cuCtxSetCurrent(void *);
int main(void) {
    void *context; unsigned long long pointer;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    return cuMemAlloc_v2(&pointer, 100ul << 20) == 2 && cuMemAlloc_v2(&pointer, 1ul << 20) == 0 ? 0 : 2;
}
"""


def compile_program(folder: Path, source: str, *flags: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler
    (folder / "client.c").write_text(source)
    command = [compiler, "-w", str(folder / "client.c"), "-o", str(folder / "client"), *flags]
    subprocess.run(command, check=True)
    return folder / "client"


def preprocessed_names(include: Path) -> set[str]:
    """Return the functions that the compiler finds in cuda.h, as an oracle for the generator."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler
    command = [compiler, "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", f"-I{include}", "-x", "c", "-"]
    text = subprocess.run(command, input="#include <cuda.h>", capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", text))


def exports(library: Path) -> set[str]:
    listed = subprocess.run(["readelf", "-W", "--dyn-syms", str(library)], capture_output=True, text=True, check=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    return {row[7].split("@")[0] for row in rows if len(row) > 7 and row[6] != "UND" and row[4] == "GLOBAL"}


def test_every_function_of_the_header_is_exported(include_dir: Path) -> None:
    exported = exports(paths.shim_dir() / "libcuda.so.1")
    assert preprocessed_names(include_dir) - exported == set()
    assert set(TABLE) - exported == set()
    assert {"cuProfilerStart", "cuGLGetDevices_v2", "aliquot_hook_version"} <= exported
    assert {name for name in exported if not name.startswith("cu")} == {
        "aliquot_hook_substitute",
        "aliquot_hook_version",
    }


def test_every_function_of_nvml_is_exported(include_dir: Path) -> None:
    text = (include_dir / "nvml.h").read_text(errors="replace")
    want = set(re.findall(r"^(?:nvmlReturn_t|const) DECLDIR (?:char\* )?(nvml\w+)\(", text, re.M))
    want.add("nvmlInternalGetExportTable")  # in no header; nvidia-smi asks for it
    assert want - exports(paths.shim_dir() / "libnvidia-ml.so.1") == set()


@pytest.mark.parametrize("route", ROUTES)
def test_every_hooked_variant_is_reached(route: str, a_folder: Path, a_null_node: Any) -> None:
    program = compile_program(a_folder, CLIENT.replace("ROUTE", ROUTES[route]), "-ldl")
    done = subprocess.run([program, *OURS], env=a_null_node.hooked_env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert set(done.stdout.splitlines()) == {str(paths.shim_dir() / "libcuda.so.1")}
    assert len(done.stdout.splitlines()) == len(OURS)


@pytest.mark.parametrize("binding", ["lazy", "now"])
def test_a_linked_program_is_held_to_the_quota(binding: str, a_folder: Path, a_null_node: Any) -> None:
    a_null_node.grant(("10" * 16, 64 * MIB))
    driver = Path(a_null_node.hooked_env["ALIQUOT_REAL_CUDA"])
    program = compile_program(a_folder, LINKED, f"-L{driver.parent}", "-l:libcuda.so.1", f"-Wl,-z,{binding}")
    assert subprocess.run([program], env=a_null_node.hooked_env).returncode == 0


@pytest.mark.parametrize("asked", ["cuGetProcAddress", "cuGetProcAddress_v2"])
def test_a_query_answers_with_the_hook_for_what_it_replaces(asked: str, a_node: Any) -> None:
    program = a_node.program()
    shim, driver = str(paths.shim_dir() / "libcuda.so.1"), str(paths.softgpu_driver().cuda)
    ours = ("cuMemAlloc", "cuMemFree", "cuInit", "cuLaunchKernel", "cuMemGetInfo", "cuGetProcAddress", "cuMemcpyHtoD")
    for symbol in ours:
        assert program(f"query({symbol!r}, asked={asked!r})") == [0, shim]
    for flags in (0, 1, 2):
        assert program(f"query('cuMemAllocAsync', flags={flags}, asked={asked!r})") == [0, shim]
        assert program(f"query('cuStreamQuery', flags={flags}, asked={asked!r})") == [0, driver]


def test_queries_fail_exactly_as_the_driver_fails_them(a_node: Any) -> None:
    hooked, plain = a_node.program(), a_node.outsider()
    questions = [
        (symbol, version, flags)
        for symbol in ("cuMemAlloc", "cuMemAlloc_v2", "cuNoSuchFunction", "", "cuMemAllocAsync", "cuCtxCreate")
        for version in (-1, 0, 2000, 3020, 11020, 12000, 13000, 99999)
        for flags in (0, 1, 2, 3, 9)
    ]
    for asked in ("cuGetProcAddress", "cuGetProcAddress_v2"):
        ask = f"[query(*one, asked={asked!r}) for one in {questions!r}]"
        got, want = hooked(ask), plain(ask)
        assert [code for code, _ in got] == [code for code, _ in want]
        assert [file is None for _, file in got] == [file is None for _, file in want]


def test_cuda_bindings_are_held_to_the_quota(a_node: Any) -> None:
    outsider = a_node.outsider()
    outsider("begin()")
    a_node.grant((outsider("uuid()"), 64 * MIB))
    script = """
import json
from cuda.bindings import driver
driver.cuInit(0)
_, context = driver.cuDevicePrimaryCtxRetain(0)
driver.cuCtxSetCurrent(context)
over, _ = driver.cuMemAlloc(100 << 20)
within, pointer = driver.cuMemAlloc(20 << 20)
_, free, total = driver.cuMemGetInfo()
print(json.dumps([int(over), int(within), free, total]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=a_node.hooked_env, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [2, 0, 44 * MIB, 64 * MIB]


def test_identity_is_never_falsified(a_node: Any) -> None:
    outsider = a_node.outsider()
    outsider("begin()")
    a_node.grant((outsider("uuid()"), 64 * MIB))
    hooked = a_node.program()
    hooked("begin()")
    for question in (
        "uuid(0)",
        "uuid(1)",
        "(lambda c: [call('cuDeviceGetCount', ctypes.byref(c)), c.value])(ctypes.c_int())",
        "(lambda c: [call('cuDriverGetVersion', ctypes.byref(c)), c.value])(ctypes.c_int())",
        "(lambda b: [call('cuDeviceGetPCIBusId', b, 64, 0), b.value.decode()])(ctypes.create_string_buffer(64))",
    ):
        assert hooked(question) == outsider(question)


def test_arguments_reach_the_driver_in_every_register(a_null_node: Any) -> None:
    program = a_null_node.program()
    assert program("call('cuParamSetf', None, 7, ctypes.c_float(2.5))") == 0


def test_what_the_driver_lacks_is_not_supported(a_null_node: Any) -> None:
    assert a_null_node.program()("call('cuStreamCreate', None, 0)") == 801


@pytest.mark.parametrize(
    ("real", "reason"),
    [
        ("", "not_set"),
        ("libcuda.so.1", "not_absolute"),
        ("/no/such/file", "cannot open shared object file"),
        (str(paths.shim_dir() / "libcuda.so.1"), "is_the_shim"),
    ],
)
def test_without_a_real_driver_every_call_says_stub_library(a_null_node: Any, real: str, reason: str) -> None:
    program = a_null_node.program(ALIQUOT_REAL_CUDA=real)
    assert program("init()") == 34
    assert program("call('cuStreamCreate', None, 0)") == 34
    assert reason in a_null_node.log.read_text()

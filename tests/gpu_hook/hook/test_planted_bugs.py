"""The truth test finds each bug that is planted in a copy of the hook's sources."""

from __future__ import annotations

import contextlib
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hook_sources import HEADERS, SOURCES, c_sources, source

MIB = 1 << 20
NOT_CUDA = ("kernel_start.c", "self_check.c", "nvml_", "observer.c")


class Plant(NamedTuple):
    file: str
    text: str
    instead: str


OPENING_IS_CHARGED = """
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)
{
    struct charge charge;
    size_t bytes = 0;
    CUresult result = driver()->cuIpcOpenMemHandle_v2(pointer, handle, flags);
    if (result != CUDA_SUCCESS || driver()->cuMemGetAddressRange_v2(NULL, &bytes, *pointer) != CUDA_SUCCESS)
        return result;
    charge_begin(&charge, CHARGE_CURRENT, quota_rounded(bytes), false);
    charge_end(&charge, result, *pointer, ALLOCATION_LINEAR);
    return result;
}
"""
BUGS: dict[str, list[Plant]] = {
    "a release refunds what is still mapped": [
        Plant("handles.c", "    if (handle->references == 0 && handle->mappings == 0)\n", """
    struct allocation early;
    if (references < 0 && handle->references == 0 && handle->mappings &&
        allocations_take(handle->name.start, SPACE_HANDLE, &early))
        charge_refund(&early);
    if (handle->references == 0 && handle->mappings == 0)
""")
    ],
    "an unmap over several mappings refunds the first": [
        Plant("handles.c", "    handles_change(mapping->handle, 0, -1);\n", """
    static CUdeviceptr next;
    struct allocation lost;
    if (mapping->span.start == next)
        allocations_take(mapping->handle->name.start, SPACE_HANDLE, &lost);
    next = mapping->span.start + mapping->span.bytes;
    handles_change(mapping->handle, 0, -1);
""")
    ],
    "retaining a handle is not counted": [
        Plant("vmm.c", "        handles_change(mapping->handle, 1, 0);\n", "")
    ],
    "a failed call is not refunded": [
        Plant("charge.c", "if (is_charged && (result != CUDA_SUCCESS || !is_recorded))",
              "if (is_charged && result == CUDA_SUCCESS && !is_recorded)")
    ],
    "a pool's free is refunded twice": [
        Plant("charge.c", "pools_release(allocation->pool, allocation->bytes, 0);",
              "pools_release(allocation->pool, allocation->bytes, 0), "
              "quota_refund(allocation->device, allocation->bytes);")
    ],
    "a pool is charged by its allocations": [
        Plant("pools.c", "cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,",
              "cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT,")
    ],
    "a synchronization refunds nothing": [
        Plant("pool_calls.c", "return is_release_due() ? refresh(result) : result;",
              "return is_release_due() && refresh == NULL ? result : result;")
    ],
    "an array is charged without the size of its elements": [
        Plant("arrays.c", "uint64_t bytes = shape->NumChannels * format_bytes(shape->Format);",
              "uint64_t bytes = format_bytes(0) / 4;"),
        Plant("arrays.c", "if (result == CUDA_SUCCESS && answer.size) {", "if (answer.size == UINT64_MAX) {"),
    ],
    "an ended context keeps its arrays": [
        Plant("context_calls.c", "return is_own;\n    void *answer",
              "return allocation->kind != ALLOCATION_ARRAY && is_own;\n    void *answer")
    ],
    "a trimmed graph pool stays charged": [
        Plant("graph_calls.c", "        graph_memory_trimmed(device);", "        (void)device;")
    ],
    "opening memory of another process is charged": [
        Plant("external_memory.c", '#include "charging/charge.h"\n',
              '#include "charging/charge.h"\n' + OPENING_IS_CHARGED),
        Plant("entry_points.txt", "  cuIpcOpenMemHandle{,_v2}\n",
              "  cuIpcOpenMemHandle\nhook:\n  cuIpcOpenMemHandle_v2\ngate:\n"),
    ],
    "unregistered host memory stays charged": [
        Plant("host_memory.c", "cuMemHostUnregister(pointer);\n    release_end(&release, result);",
              "cuMemHostUnregister(pointer);\n    release_end(&release, 1);")
    ],
}  # fmt: skip


class Builder:
    """Compiles the hook's sources; files that no plant changes, once."""

    def __init__(self, folder: Path, include: Path) -> None:
        self.folder = folder
        self.compiler = shutil.which("cc") or shutil.which("gcc")
        assert self.compiler, "a C compiler is needed: install gcc"
        self.flags = ["-std=gnu11", "-O1", "-fPIC", "-w", "-D_GNU_SOURCE", "-pthread", "-isystem", str(include)]
        self.generate(folder, source("entry_points.txt"))
        self.names = [one.name for one in c_sources() if not one.name.startswith(NOT_CUDA)]
        self.objects = {name: self.compile(source(name), folder, folder) for name in self.names}

    def generate(self, folder: Path, table: Path) -> None:
        generator = str(source("generate_entry_points.py"))
        command = [sys.executable, generator, "cuda", platform.machine(), str(folder / "entries"), str(table)]
        subprocess.run(command, check=True)

    def compile(self, source: Path, generated: Path, folder: Path) -> str:
        made = str(folder / f"{source.name}.o")
        includes = [f"-I{generated}", f"-I{SOURCES}", f"-I{HEADERS}"]
        subprocess.run([str(self.compiler), *self.flags, *includes, "-c", str(source), "-o", made], check=True)
        return made

    def build(self, plants: list[Plant]) -> Path:
        """Return the folder of a library with these bugs."""
        folder = self.folder / f"shim-{len(list(self.folder.iterdir()))}"
        folder.mkdir()
        planted: dict[str, Path] = {}
        for plant in plants:
            path = planted.get(plant.file, source(plant.file))
            text = path.read_text()
            assert text.count(plant.text) == 1, f"{plant.file} no longer holds the place of this bug once: {plant.text}"
            planted[plant.file] = folder / plant.file
            planted[plant.file].write_text(text.replace(plant.text, plant.instead))
        table = planted.pop("entry_points.txt", None)
        generated = folder if table else self.folder
        if table:
            self.generate(folder, table)
            planted = {name: planted.get(name, source(name)) for name in self.names}
        objects = {**self.objects, **{name: self.compile(path, generated, folder) for name, path in planted.items()}}
        link = ["-shared", "-Wl,-soname,libcuda.so.1", f"-Wl,--version-script,{generated / 'entries.map'}"]
        link += ["-Wl,-Bsymbolic", "-Wl,-z,nodelete", "-Wl,-z,now", *objects.values()]
        link += [str(generated / "entries.S"), f"-I{SOURCES}", f"-I{HEADERS}"]
        link += [str(generated / "entries.c"), "-o", str(folder / "libcuda.so.1"), "-ldl"]
        subprocess.run([str(self.compiler), *self.flags, *link], check=True)
        return folder


@pytest.fixture(scope="module")
def a_builder(tmp_path_factory: pytest.TempPathFactory, include_dir: Path) -> Builder:
    return Builder(tmp_path_factory.mktemp("planted"), include_dir)


def configure(make_node: Callable[..., Any], families: Any, shim: Path) -> Any:
    return families.configure(make_node(devices=1, memory="128MiB"), 256 * MIB, LD_LIBRARY_PATH=str(shim))()


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(make_node: Callable[..., Any], families: Any, a_builder: Builder, bug: str) -> None:
    machine = configure(make_node, families, a_builder.build(BUGS[bug]))
    with contextlib.suppress(AssertionError):  # the first complaint ends the walk
        families.walk(machine, seed=7, steps=1500)
    assert machine.complaints


def test_nothing_is_found_where_nothing_is_planted(
    make_node: Callable[..., Any], families: Any, a_builder: Builder
) -> None:
    machine = configure(make_node, families, a_builder.build([]))
    families.walk(machine, seed=7, steps=1500)
    assert machine.complaints == []

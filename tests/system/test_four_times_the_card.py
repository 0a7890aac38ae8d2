"""Real notebooks that together own four times the card: each computes the same as alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_start

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, softgpu_state_path

MIB = 1 << 20
COUNT = 5  # of notebooks, each of 0.8 of the card
CELLS = 2
WORDS = 12 * MIB  # of each of two arrays: 96 MiB of the 102 MiB that a notebook owns
NOTICE = "[Aliquot: "  # that a cell waits; alone it does not
START = """
import ctypes
from cuda.bindings import driver as cu
def call(answer):
    error, *values = answer
    assert error == cu.CUresult.CUDA_SUCCESS, error
    return values[0] if values else None
call(cu.cuInit(0))
call(cu.cuCtxSetCurrent(call(cu.cuDevicePrimaryCtxRetain(call(cu.cuDeviceGet(0))))))
PTX = b'''.version 7.0
.target sm_70
.address_size 64
.visible .entry aliquot_axpy(.param .u64 y, .param .u64 x, .param .f32 a, .param .u64 count)
{
 ret;
}
.visible .entry aliquot_hash(.param .u64 from, .param .u64 words, .param .u64 result)
{
 ret;
}
'''
module = call(cu.cuModuleLoadData(PTX))
axpy, hash_ = (call(cu.cuModuleGetFunction(module, name)) for name in (b"aliquot_axpy", b"aliquot_hash"))
def launch(function, kinds, values):
    call(cu.cuLaunchKernel(function, 64, 1, 1, 64, 1, 1, 0, 0, (values, kinds), 0))
def hash_of(pointer):
    call(cu.cuMemsetD32(result, 0, 2))
    launch(hash_, (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64), (int(pointer), words, int(result)))
    found = bytearray(8)
    call(cu.cuMemcpyDtoH(found, result, 8))
    return found.hex()
"""
FILL = """
import array, random
words = {words}
x, y, result = (call(cu.cuMemAlloc(size)) for size in (4 * words, 4 * words, 8))
source = random.Random({seed})
piece = array.array("f", (source.random() for _ in range(1 << 16)))
for start in range(0, 4 * words, 4 << 16):
    call(cu.cuMemcpyHtoD(int(x) + start, piece.tobytes(), 4 << 16))
    piece.append(piece.pop(0))
call(cu.cuMemsetD32(y, 0, words))
print(hash_of(x))
"""
STEP = """
launch(axpy, (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_float, ctypes.c_uint64), (int(y), int(x), {factor}, words))
launch(axpy, (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_float, ctypes.c_uint64), (int(x), int(y), {factor}, words))
print(hash_of(x), hash_of(y))
"""
FREE = "for pointer in (x, y, result): call(cu.cuMemFree(pointer))"


def cells(seed: int) -> list[str]:
    steps = [STEP.format(factor=0.5 + seed / 8 + step / 64) for step in range(CELLS)]
    return [START, FILL.format(words=WORDS, seed=seed), *steps]


@pytest.fixture
def an_agent(a_folder: Path, an_environment: dict[str, str]) -> Iterator[object]:
    """An agent with a software GPU of 128 MiB, of which it reserves four times as much."""
    words = ["-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu", "--softgpu-memory", "128MiB"]
    words += ["--overcommit", "4", "--swap-memory", "2GiB", "--lease-hold", "0.2", "--lease-quantum", "0.5"]
    with (a_folder / "agent.log").open("w") as log:
        process = warm_start.start(warm_start.AGENT, words, env=an_environment, stdout=log, stderr=log)
    yield process
    process.terminate()
    process.wait(timeout=90)
    remove_state(softgpu_state_path(RuntimeDir(a_folder / "run")))


def run_all(kernels: list[Any], seeds: list[int]) -> list[list[str]]:
    """Run cell by cell, all kernels at once; return the output of each."""
    printed: list[list[str]] = [[] for _ in kernels]
    for step in zip(*(cells(seed) for seed in seeds), strict=True):
        asked = [kernel.send(code) for kernel, code in zip(kernels, step, strict=True)]
        for kernel, message, lines in zip(kernels, asked, printed, strict=True):
            outcome = kernel.outcome(message)
            assert outcome.status == "ok", outcome
            lines.append("".join(line for line in outcome.text.splitlines() if not line.startswith(NOTICE)))
    return printed


def swaps(kernels: list[Any]) -> int:
    return sum(kernel.on_node()["residency"]["swaps_out"] for kernel in kernels)


@pytest.mark.soak(alone="computes for a minute")
@pytest.mark.timeout(300)
def test_notebooks_that_own_four_cards_compute_what_they_compute_alone(a_server: Any) -> None:
    seeds = list(range(COUNT))
    want, alone = [], a_server.start("python3.gpu-0.8")
    for seed in seeds:
        want += run_all([alone], [seed])
        assert alone.run(FREE).status == "ok"
    alone.end()
    assert len({tuple(lines) for lines in want}) == COUNT
    kernels = [a_server.start("python3.gpu-0.8") for _ in seeds]
    assert run_all(kernels, seeds) == want
    assert swaps(kernels) >= COUNT * CELLS
    for kernel in kernels:
        kernel.end()

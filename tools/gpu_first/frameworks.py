"""Run the frameworks through the hook, as scripts with one result each.

A framework that is not installed is a result. Each script prints JSON as its last line: ``total``
is the memory that it sees, ``ok`` whether its result is right.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .context import Context
from .steps import run_program

_UNKNOWN = re.compile(r"event=unknown_symbol name=(\w+)")
SECONDS = 60.0
_REFUSED = "cudaErrorStubLibrary"

_TORCH = """
import json, torch
torch.manual_seed(3)
matrix = torch.randn(1024, 1024, device="cuda")
error = float((matrix @ matrix - (matrix.double() @ matrix.double()).float()).norm() / matrix.norm() ** 2)
parts = [torch.full((1 << 20,), float(i), device="cuda") for i in range(32)]
total = sum(float(part.sum()) for part in parts)
del parts
torch.cuda.empty_cache()
print(json.dumps({"total": torch.cuda.mem_get_info()[1], "ok": error < 1e-2 and total == (1 << 20) * 496.0}))
"""
_TORCH_GRAPH = """
import json, torch
x = torch.ones(1 << 20, device="cuda")
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    warm = (x * 2 + 1).sum()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    total = (x * 2 + 1).sum()
sums = []
for value in (1, 2, 3):
    x.fill_(value)
    graph.replay()
    sums.append(float(total) / (1 << 20))
print(json.dumps({"total": torch.cuda.mem_get_info()[1], "ok": sums == [3.0, 5.0, 7.0]}))
"""
_TRITON = """
import json, torch, triton, triton.language as tl
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)
x, y = torch.rand(5000, device="cuda"), torch.rand(5000, device="cuda")
out = torch.empty_like(x)
add[(5,)](x, y, out, 5000, BLOCK=1024)
print(json.dumps({"total": torch.cuda.mem_get_info()[1], "ok": bool(torch.equal(out, x + y))}))
"""
_JAX = """
import json, jax, jax.numpy as jnp
x = jnp.arange(1 << 16, dtype=jnp.float32)
value = float(jax.jit(lambda a: (a * 2 + 1).max())(x))
stats = jax.devices()[0].memory_stats() or {}
ok = value == 2 * 65535 + 1 and jax.default_backend() == "gpu"
print(json.dumps({"total": stats.get("bytes_limit", 0), "ok": ok}))
"""
_CUPY = """
import json, cupy
x = cupy.arange(1 << 20, dtype=cupy.float64)
ok = float((x * 2).sum()) == (1 << 20) * ((1 << 20) - 1.0)
print(json.dumps({"total": cupy.cuda.runtime.memGetInfo()[1], "ok": ok}))
"""
_NUMBA = """
import json, numpy
from numba import cuda
@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]
x, y = numpy.arange(4096, dtype=numpy.float32), numpy.ones(4096, dtype=numpy.float32)
out = numpy.zeros_like(x)
add[16, 256](x, y, out)
total = cuda.current_context().get_memory_info()[1]
print(json.dumps({"total": total, "ok": bool((out == x + y).all())}))
"""
_NUMBA_MEMORY = """
import json, numpy
from numba import cuda
x = numpy.arange(1 << 20, dtype=numpy.float32)
back = cuda.to_device(x).copy_to_host()
total = cuda.current_context().get_memory_info()[1]
print(json.dumps({"total": total, "ok": bool((back == x).all())}))
"""
_RUNTIME = """
import json
from cuda.bindings import runtime
def must(answer):
    assert int(answer[0]) == 0, answer
    return answer[1:] if len(answer) > 2 else answer[1] if len(answer) == 2 else None
free, total = must(runtime.cudaMemGetInfo())
pointer = must(runtime.cudaMalloc(64 << 20))
must(runtime.cudaMemset(pointer, 1, 64 << 20))
must(runtime.cudaDeviceSynchronize())
must(runtime.cudaFree(pointer))
print(json.dumps({"total": total, "ok": True}))
"""
_RAPIDS = """
import json, cudf
frame = cudf.DataFrame({"key": [1, 2, 1, 2], "value": [1.0, 2.0, 3.0, 4.0]})
sums = frame.groupby("key").sum().sort_index()["value"].to_arrow().to_pylist()
import cupy
print(json.dumps({"total": cupy.cuda.runtime.memGetInfo()[1], "ok": sums == [4.0, 6.0]}))
"""
_NCCL = """
import json, os, tempfile, torch, torch.distributed as dist, torch.multiprocessing as mp
def work(rank, size, place):
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("nccl", init_method=f"file://{place}", rank=rank, world_size=size)
    tensor = torch.full((1 << 20,), float(rank + 1), device="cuda")
    dist.all_reduce(tensor)
    assert float(tensor[0]) == size * (size + 1) / 2, float(tensor[0])
    dist.destroy_process_group()
if __name__ == "__main__":
    size = 2
    place = os.path.join(tempfile.mkdtemp(), "meeting")
    try:
        mp.spawn(work, args=(size, place), nprocs=size)
        ok = True
    except Exception as error:
        if "Duplicate GPU" not in str(error) and "invalid usage" not in str(error):
            raise
        ok = "NCCL refuses two processes on one GPU: a second GPU is needed"
    print(json.dumps({"total": torch.cuda.mem_get_info()[1], "ok": ok}))
"""


@dataclass(frozen=True)
class Program:
    """One script of a framework.

    ``modules``: its imports; ``is_short``: it belongs to the first look at the shim; ``computes``:
    in compiled code.
    """

    name: str
    modules: tuple[str, ...]
    source: str
    is_short: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    computes: bool = True


PROGRAMS = (
    Program("PyTorch", ("torch",), _TORCH, True),
    Program("PyTorch, expandable segments", ("torch",), _TORCH,
            env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    Program("PyTorch, cudaMallocAsync", ("torch",), _TORCH, env={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    Program("PyTorch, a graph", ("torch",), _TORCH_GRAPH),
    Program("Triton", ("torch", "triton"), _TRITON, True),
    Program("JAX", ("jax",), _JAX, True, {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5"}),
    Program("JAX, no preallocation", ("jax",), _JAX, env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
    Program("CuPy", ("cupy",), _CUPY, True),
    Program("Numba", ("numba", "numba.cuda", "numpy"), _NUMBA),
    Program("Numba, copies alone", ("numba", "numba.cuda", "numpy"), _NUMBA_MEMORY, computes=False),
    Program("cuda-python, static runtime", ("cuda", "cuda.bindings"), _RUNTIME, True),
    Program("RAPIDS cuDF", ("cudf",), _RAPIDS),
    Program("NCCL, two processes", ("torch",), _NCCL),
)  # fmt: skip


def lacking(program: Program) -> str:
    """Return the first module that is not installed, or an empty string."""
    for module in program.modules:
        try:
            found = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            found = None
        if found is None:
            return module
    return ""


@contextmanager
def hooked(context: Context) -> Iterator[tuple[dict[str, str], Path]]:
    """Return the environment of a kernel on the whole device, under an agent; and the hook's log."""
    context.paths()
    from subjects import a_kernel

    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    log = context.file("hook.log")
    try:
        with a_kernel(folder, context.gpu, memory="1GiB") as kernel:
            bare = context.environment()
            env = {name: value for name, value in bare.items() if name not in ("ALIQUOT_GPU", "ALIQUOT_TEST_GPU")}
            env |= {name: value for name, value in kernel.env.items() if name != "PYTHONPATH"}
            yield {**env, "ALIQUOT_HOOK_LOG": str(log)}, log
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def shim_alone(context: Context) -> dict[str, str]:
    """Run the shim in front of the driver, without an agent: it must change nothing."""
    paths, driver = context.paths(), context.driver()
    env = {name: value for name, value in context.environment().items() if not name.startswith("ALIQUOT_")}
    return {
        **env,
        "LD_LIBRARY_PATH": f"{paths.shim_dir()}:{driver.cuda.parent}",
        "ALIQUOT_REAL_CUDA": str(driver.cuda),
        "ALIQUOT_REAL_NVML": str(driver.nvml),
        "ALIQUOT_HOOK_LOG": str(context.file("shim.log")),
    }


def try_program(context: Context, program: Program, env: Mapping[str, str], way: str) -> str:
    """Run one program; return its result in a word or a line: ok, not installed, or the failure."""
    missing = lacking(program)
    if missing:
        context.tell(framework=program.name, way=way, result=f"not installed: {missing}")
        return "not installed"
    done, value = run_program(context, program.source, {**env, **program.env}, SECONDS)
    answer: Any = value.get("ok") if isinstance(value, dict) else None
    result = "ok" if answer is True else str(answer) if isinstance(answer, str) else ""
    result = result or ("a wrong result" if answer is False else done.why)
    if context.is_soft and _REFUSED in done.err:
        answer = result = "the CUDA runtime refuses a software GPU"
    elif context.is_soft and program.computes and answer is False:
        answer = result = "the software GPU executes no compiled code"
    seen = value.get("total") if isinstance(value, dict) else None
    context.tell(framework=program.name, way=way, result=result, total=seen, seconds=round(done.seconds, 2))
    if answer is not True and not isinstance(answer, str):
        context.fail(f"{program.name}, {way}: {result}")
    return result


def tell_unknown(context: Context, log: Path) -> None:
    """Report functions that programs got from the driver and that the hook's table lacks.

    There must be none.
    """
    unknown = sorted(set(_UNKNOWN.findall(log.read_text(errors="replace")))) if log.exists() else []
    context.tell(unknown_symbols=unknown)
    if unknown:
        context.fail(f"the hook's table lacks {len(unknown)} functions that programs use: {', '.join(unknown[:8])}")


def run(context: Context) -> None:
    """Run every program under a node agent, one after the other."""
    with hooked(context) as (env, log):
        for program in PROGRAMS:
            try_program(context, program, env, "under a node agent")
        tell_unknown(context, log)

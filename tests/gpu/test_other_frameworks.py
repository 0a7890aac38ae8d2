"""CuPy, JAX, Numba and cuda-python through the hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CUPY = """
import json, cupy
free, total = cupy.cuda.runtime.memGetInfo()
held = cupy.empty(total * 6 // 10, dtype=cupy.uint8)
said = []
try:
    cupy.empty(total * 6 // 10, dtype=cupy.uint8)
    said.append("fits")
except cupy.cuda.memory.OutOfMemoryError:
    said.append("out of memory")
del held
big = cupy.empty(total * 7 // 10, dtype=cupy.uint8)  # the pool gives up what it only keeps
big[-1] = 9
said.append(int(big[-1]))
del big
cupy.get_default_memory_pool().free_all_blocks()
x = cupy.arange(1 << 20, dtype=cupy.float64)
print(json.dumps([total, said, float((x * x).sum())]))
"""
JAX = """
import json, jax, jax.numpy as jnp
x = jnp.arange(1 << 16, dtype=jnp.float32)
value = float(jax.jit(lambda a: (a * 2 + 1).sum())(x))
stats = jax.devices()[0].memory_stats() or {}
print(json.dumps([jax.default_backend(), value, stats.get("bytes_limit", 0)]))
"""
NUMBA = """
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
free, total = cuda.current_context().get_memory_info()
print(json.dumps([total, bool((out == x + y).all())]))
"""
RUNTIME = """
import json
from cuda.bindings import runtime
def must(answer):
    assert int(answer[0]) == 0, answer
    return answer[1:] if len(answer) > 2 else answer[1] if len(answer) == 2 else None
free, total = must(runtime.cudaMemGetInfo())
pointer = must(runtime.cudaMalloc(total * 6 // 10))
refused = int(runtime.cudaMalloc(total * 6 // 10)[0])
must(runtime.cudaFree(pointer))
pointer = must(runtime.cudaMalloc(total * 7 // 10))
must(runtime.cudaFree(pointer))
print(json.dumps([total, refused]))
"""


def test_cupy_stays_within_its_quota(a_kernel: Any, needs: Callable[..., None]) -> None:
    needs("cupy")
    want_sum = float(sum(i * i for i in range(1 << 20)))
    total, said, found = a_kernel.run(CUPY)
    assert (total, said) == (a_kernel.quota, ["out of memory", 9])
    assert abs(found - want_sum) <= 1e-9 * want_sum


def test_jax_takes_its_fraction_of_the_quota_beforehand(a_kernel: Any, needs: Callable[..., None]) -> None:
    needs("jax")
    backend, value, limit = a_kernel.run(JAX, XLA_PYTHON_CLIENT_MEM_FRACTION="0.5")
    assert backend == "gpu"
    assert value == a_kernel.run(JAX, XLA_PYTHON_CLIENT_PREALLOCATE="false", is_hooked=False)[1]
    assert 0 < limit <= a_kernel.quota // 2


def test_numba_computes_and_sees_the_quota(a_kernel: Any, needs: Callable[..., None]) -> None:
    needs("numba", "numpy")
    assert a_kernel.run(NUMBA) == [a_kernel.quota, True]


def test_the_static_cuda_runtime_of_cuda_python_initialises(a_kernel: Any, needs: Callable[..., None]) -> None:
    needs("cuda")
    assert a_kernel.run(RUNTIME) == [a_kernel.quota, 2]

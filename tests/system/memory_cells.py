"""Cells that take GPU memory, fill it, and check that it is where and what it was."""

from __future__ import annotations

MIB = 1 << 20
GPU = """
from cuda.bindings import driver as cu
def call(answer):
    error, *values = answer
    if error != cu.CUresult.CUDA_SUCCESS:
        raise MemoryError(error.name)
    return values[0] if len(values) == 1 else values
call(cu.cuInit(0))
context = call(cu.cuDevicePrimaryCtxRetain(call(cu.cuDeviceGet(0))))
call(cu.cuCtxSetCurrent(context))
def mebibytes():
    return " ".join(str(value >> 20) for value in call(cu.cuMemGetInfo()))
"""
FILL = """
import hashlib, numpy
mine = numpy.random.default_rng({seed}).integers(0, 256, {mebibytes} << 20, dtype=numpy.uint8)
pointer = call(cu.cuMemAlloc(mine.nbytes))
call(cu.cuMemcpyHtoD(pointer, mine, mine.nbytes))
print(int(pointer))
"""
CHECK = """
back = numpy.empty_like(mine)
call(cu.cuMemcpyDtoH(back, pointer, back.nbytes))
print(int(pointer), hashlib.sha256(back).digest() == hashlib.sha256(mine).digest())
"""

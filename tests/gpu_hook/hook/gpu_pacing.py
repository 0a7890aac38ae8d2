"""The launches of a driven program, by every way there is.

The launches are built-in kernels that keep the device busy for a given time.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from gpu_calls import SIZE, U64, call

BUILTINS = Path(__file__).parents[3] / "gpu_hook" / "builtins.ptx"
KINDS = ("kernel", "kernel_ptsz", "ex", "ex_ptsz", "cooperative", "graph", "graph_ptsz", "old", "old_stream")
functions: dict[int, ctypes.c_void_p] = {}
execs: dict[tuple[int, int], U64] = {}


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", U64),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


def current() -> int:
    context = ctypes.c_void_p()
    call("cuCtxGetCurrent", ctypes.byref(context))
    return context.value or 0


def spinner() -> ctypes.c_void_p:
    """Return the function in the current context's module."""
    if current() not in functions:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        assert call("cuModuleLoadData", ctypes.byref(module), BUILTINS.read_bytes() + b"\0") == 0
        assert call("cuModuleGetFunction", ctypes.byref(function), module, b"aliquot_spin") == 0
        functions[current()] = function
    return functions[current()]


def make_stream(flags: int = 1) -> int:
    """Make a stream. Flag 1: apart from the legacy stream."""
    stream = U64()
    assert call("cuStreamCreate", ctypes.byref(stream), flags) == 0
    return stream.value


def graph_of_spins(count: int, microseconds: float) -> U64:
    """Return an executable graph, by capture."""
    key = count, int(microseconds * 1000)
    if key not in execs:
        stream, graph, made = U64(make_stream()), U64(), U64()
        assert call("cuStreamBeginCapture_v2", stream, 2) == 0
        assert spins("kernel", count, microseconds, stream.value) == 0
        assert call("cuStreamEndCapture", stream, ctypes.byref(graph)) == 0
        assert call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, U64(0)) == 0
        execs[key] = made
    return execs[key]


def spins(kind: str, count: int, microseconds: float, stream: int = 0, blocks: int = 1) -> int:
    """Launch so many spins of this length; a graph is one launch of two spins."""
    function, nanoseconds = spinner(), U64(int(microseconds * 1000))
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(nanoseconds))
    shape = (blocks, 1, 1, 1, 1, 1, 0)
    config = Config((ctypes.c_uint * 3)(blocks, 1, 1), (ctypes.c_uint * 3)(1, 1, 1), 0, stream, None, 0)
    suffix = "_ptsz" if kind.endswith("_ptsz") else ""
    code = 0
    if kind.startswith("old"):
        call("cuFuncSetBlockShape", function, 1, 1, 1)
        call("cuParamSetSize", function, 8)
        call("cuParamSetv", function, 0, ctypes.byref(nanoseconds), 8)
    for _ in range(count):
        if kind.startswith("kernel"):
            code = call("cuLaunchKernel" + suffix, function, *shape, U64(stream), arguments, None)
        elif kind.startswith("ex"):
            code = call("cuLaunchKernelEx" + suffix, ctypes.byref(config), function, arguments, None)
        elif kind == "cooperative":
            code = call("cuLaunchCooperativeKernel", function, *shape, U64(stream), arguments)
        elif kind.startswith("graph"):
            code = call("cuGraphLaunch" + suffix, graph_of_spins(2, microseconds / 2), U64(stream))
        elif kind == "old":
            code = call("cuLaunchGrid", function, blocks, 1)
        else:
            code = call("cuLaunchGridAsync", function, blocks, 1, U64(stream))
        if code:
            return code
    return 0


def wait() -> int:
    return call("cuCtxSynchronize")


def captured_nodes(mode: int, count: int = 5) -> list[int]:
    """Return the code of the capture's end, and its nodes."""
    stream, graph, nodes = U64(make_stream()), U64(), SIZE()
    spinner()
    assert call("cuStreamBeginCapture_v2", stream, mode) == 0
    for _ in range(count):
        assert spins("kernel", 1, 10, stream.value) == 0
    code = call("cuStreamEndCapture", stream, ctypes.byref(graph))
    if code == 0:
        call("cuGraphGetNodes", graph, None, ctypes.byref(nodes))
    return [code, nodes.value]


def destroy_stream(stream: int) -> int:
    return call("cuStreamDestroy_v2", U64(stream))


def fail_to_launch(times: int) -> list[int]:
    """Launch an empty grid, which no device takes."""
    function = spinner()
    return [call("cuLaunchKernel", function, 0, 1, 1, 1, 1, 1, 0, None, None, None) for _ in range(times)]

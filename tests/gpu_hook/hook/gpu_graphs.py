"""The graphs with memory of a driven program."""

from __future__ import annotations

import ctypes

from gpu_calls import SIZE, U64, call

GRAPH_RESERVED = 2


class Allocation(ctypes.Structure):
    """CUDA_MEM_ALLOC_NODE_PARAMS."""

    _fields_ = [
        ("words", ctypes.c_int32 * 4),
        ("rest", U64 * 9),
        ("access", ctypes.c_void_p),
        ("access_count", SIZE),
        ("bytes", SIZE),
        ("pointer", U64),
    ]


def new_graph() -> int:
    graph = U64()
    call("cuGraphCreate", ctypes.byref(graph), 0)
    return graph.value


def end_graph(graph: int) -> int:
    return call("cuGraphDestroy", U64(graph))


def add_allocation(graph: int, amount: int, device: int = 0, after: int = 0) -> list[int]:
    """Return code, node and address."""
    node, before = U64(), U64(after)
    wanted = Allocation((ctypes.c_int32 * 4)(1, 0, 1, device), bytes=amount)
    arguments = ctypes.byref(before) if after else None, SIZE(1 if after else 0), ctypes.byref(wanted)
    return [call("cuGraphAddMemAllocNode", ctypes.byref(node), U64(graph), *arguments), node.value, wanted.pointer]


def add_free(graph: int, pointer: int, after: int) -> list[int]:
    node, before = U64(), U64(after)
    code = call("cuGraphAddMemFreeNode", ctypes.byref(node), U64(graph), ctypes.byref(before), SIZE(1), U64(pointer))
    return [code, node.value]


def add_child(graph: int, child: int) -> int:
    node = U64()
    return call("cuGraphAddChildGraphNode", ctypes.byref(node), U64(graph), None, SIZE(0), U64(child))


def instantiate(graph: int, flags: int = 0) -> list[int]:
    exec_ = U64()
    return [call("cuGraphInstantiateWithFlags", ctypes.byref(exec_), U64(graph), U64(flags)), exec_.value]


def end_exec(exec_: int) -> int:
    return call("cuGraphExecDestroy", U64(exec_))


def launch_graph(exec_: int, name: str = "cuGraphLaunch") -> int:
    return call(name, U64(exec_), None)


def graph_bytes(device: int = 0, attribute: int = GRAPH_RESERVED) -> int:
    value = U64()
    call("cuDeviceGetGraphMemAttribute", device, attribute, ctypes.byref(value))
    return value.value


def trim_graphs(device: int = 0) -> int:
    return call("cuDeviceGraphMemTrim", device)


def graph_of(*amounts: int) -> int:
    """Make a graph that allocates these in turn, frees each at its end, and keeps none."""
    graph, last, held = new_graph(), 0, []
    for amount in amounts:
        code, last, pointer = add_allocation(graph, amount, after=last)
        assert code == 0, code
        held.append(pointer)
    for pointer in held:
        code, last = add_free(graph, pointer, last)
        assert code == 0, code
    return graph


def begin_capture() -> int:
    """Return a stream that captures."""
    stream = U64()
    code = call("cuStreamCreate", ctypes.byref(stream), 1) or call("cuStreamBeginCapture_v2", stream, 0)
    assert code == 0, code
    return stream.value


def end_capture(stream: int) -> int:
    graph = U64()
    code = call("cuStreamEndCapture", U64(stream), ctypes.byref(graph))
    assert code == 0, code
    return graph.value


def alloc_captured(amount: int, stream: int) -> list[int]:
    pointer = U64()
    return [call("cuMemAllocAsync", ctypes.byref(pointer), SIZE(amount), U64(stream)), pointer.value]


def launched_graph(amount: int, device: int = 0) -> list[int]:
    """Return code, and a graph that was launched with so much memory, and freed it."""
    graph = new_graph()
    code, node, pointer = add_allocation(graph, amount, device)
    code = code or add_free(graph, pointer, node)[0]
    failed, exec_ = instantiate(graph)
    return [code or failed or launch_graph(exec_), exec_]

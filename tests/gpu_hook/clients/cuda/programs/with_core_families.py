"""cuda.core's other kinds of memory: pools of its own, virtual, of graphs, and of another process."""

from __future__ import annotations

import multiprocessing
import os

import numpy as np
from cuda.core import (
    Buffer,
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    EventOptions,
    GraphMemoryResource,
    ObjectCode,
    VirtualMemoryResource,
    launch,
)
from cuda.core.graph import GraphDefinition
from kernels import BUILTINS
from with_core import MIB, ONE, device, hold, launches, let_go, memory, on_host, stream, words_of  # noqa: F401

kept: list[Buffer] = []


def used() -> int:
    free, total = memory()
    return total - free


def pool_of_its_own(amount: int) -> list[int]:
    """Return bytes used with a buffer of a pool, after the buffer, after the pool."""
    pool = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=2 * amount))
    buffer = pool.allocate(amount, stream=stream)
    buffer.fill(b"\5\0\0\0", stream=stream)
    with_it, words = used(), words_of(buffer)
    buffer.close(stream)
    stream.sync()
    after = used()
    pool.close()
    assert words == [5] * (amount // 4)
    return [with_it, after, used()]


def virtual(amount: int) -> list[object]:
    """Return bytes used with virtual memory and at double size, and whether its contents stayed.

    The bytes after it are not returned: cuda.core 1.2 keeps the handle of its first part, and frees
    two reservations of addresses as one.
    """
    resource = VirtualMemoryResource(device)
    buffer = resource.allocate(amount, stream=stream)
    buffer.fill(b"\6\0\0\0", stream=stream)
    stream.sync()
    small = used()
    buffer = resource.modify_allocation(buffer, 2 * amount)
    large, words = used(), words_of(buffer)
    kept.append(buffer)
    return [small, large, words[: amount // 4] == [6] * (amount // 4)]


def captured_graph() -> list[list[int]]:
    """Return words before the graph ran, and after each of two runs.

    The value changes in between.
    """
    buffer, (here, source) = device.allocate(16, stream=stream), on_host(16)
    buffer.fill(0, stream=stream)
    builder = stream.create_graph_builder().begin_building()
    here.copy_to(buffer, stream=builder)
    fill = ObjectCode.from_ptx(BUILTINS + b"\0").get_kernel("aliquot_fill")
    launch(builder, ONE, fill, buffer, np.uint32(7), np.uint64(2))
    graph = builder.end_building().complete()
    seen = [words_of(buffer)]
    for value in (1, 2):
        source.view(np.uint32)[:] = value
        graph.launch(stream)
        seen.append(words_of(buffer))
    graph.close()
    builder.close()
    del source
    for one in (here, buffer):
        one.close(stream)
    stream.sync()
    return seen


def split_graph(branches: int) -> list[int]:
    """Fork and join in a capture: every branch fills its own word."""
    buffer = device.allocate(4 * branches, stream=stream)
    fill = ObjectCode.from_ptx(BUILTINS + b"\0").get_kernel("aliquot_fill")
    first = device.create_graph_builder().begin_building()
    parts = first.split(branches)
    for number, part in enumerate(parts):
        launch(part, ONE, fill, np.uint64(int(buffer.handle) + 4 * number), np.uint32(number), np.uint64(1))
    graph = type(first).join(*parts).end_building().complete()
    graph.launch(stream)
    words = words_of(buffer)
    graph.close()
    buffer.close(stream)
    stream.sync()
    return words


def defined_graph() -> list[int]:
    """Run a graph of nodes, with memory of its own that another node copies out."""
    buffer = device.allocate(16, stream=stream)
    definition = GraphDefinition()
    own = definition.allocate(MIB)
    filled = own.memset(own.dptr, np.uint32(11), 4)
    filled.memcpy(int(buffer.handle), own.dptr, 16).deallocate(own.dptr)
    graph = definition.instantiate()
    graph.launch(stream)
    words = words_of(buffer)
    graph.close()
    buffer.close(stream)
    stream.sync()
    GraphMemoryResource(device).trim()
    return words


def graph_memory(amount: int) -> list[int]:
    """Return bytes that graphs reserve while the graph lives, and after the trim."""
    resource = GraphMemoryResource(device)
    builder = device.create_graph_builder().begin_building()
    buffer = resource.allocate(amount, stream=builder)
    buffer.fill(1, stream=builder)
    buffer.close(builder)
    graph = builder.end_building().complete()
    graph.launch(stream)
    stream.sync()
    reserved, with_it = resource.attributes.reserved_mem_current, used()
    graph.close()
    builder.close()
    resource.trim()
    return [reserved, with_it, used()]


def _read_and_write(buffer: Buffer, size: list[int], answers: object) -> None:
    """Use the pool in a spawned process.

    It came by the queue's pickling; its memory is the parent's.
    """
    from serve import becomes, escapes

    here, seen = on_host(buffer.size)
    buffer.copy_to(here, stream=stream)
    stream.sync()
    found = seen.view(np.uint32).tolist()
    buffer.fill(b"\x0d\0\0\0", stream=stream)
    stream.sync()
    answers.put([found, becomes(memory, size), escapes()])
    buffer.close(stream)


def shared_pool(amount: int) -> list[object]:
    """Let a spawned process read and write the buffer.

    Return its reading, its memory, its escapes, and its last contents.
    """
    spawn = multiprocessing.get_context("spawn")
    pool = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=amount, ipc_enabled=True))
    buffer = pool.allocate(amount, stream=stream)
    buffer.fill(b"\x0c\0\0\0", stream=stream)
    stream.sync()
    answers = spawn.Queue()
    child = spawn.Process(target=_read_and_write, args=(buffer, memory(), answers))
    child.start()
    found, is_same, escaped = answers.get(timeout=40)
    child.join(40)
    left = words_of(buffer)
    buffer.close(stream)
    stream.sync()
    pool.close()
    count = amount // 4
    return [found == [12] * count, left == [13] * count, is_same, escaped, child.exitcode]


def _wait_for(event: object, answers: object) -> None:
    Device(0).set_current()
    event.sync()
    answers.put([event.is_done, os.getpid()])


def shared_event() -> list[object]:
    """Wait in another process for an event of this one."""
    spawn = multiprocessing.get_context("spawn")
    event = stream.record(options=EventOptions(ipc_enabled=True))
    answers = spawn.Queue()
    child = spawn.Process(target=_wait_for, args=(event, answers))
    child.start()
    is_done, pid = answers.get(timeout=40)
    child.join(40)
    return [is_done, pid != os.getpid(), child.exitcode]

"""cuda.core: streams, buffers and kernels as objects."""

from __future__ import annotations

import numpy as np
from cuda.bindings import driver
from cuda.core import (
    Buffer,
    Device,
    EventOptions,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    ObjectCode,
    Program,
    ProgramOptions,
    launch,
)
from kernels import BUILTINS, INCREMENT, SOURCE

MIB = 1 << 20
device = Device(0)
device.set_current()
stream = device.create_stream()
pinned = LegacyPinnedMemoryResource()
ONE = LaunchConfig(grid=1, block=1)
held: list[Buffer] = []


def memory() -> list[int]:
    _, free, total = driver.cuMemGetInfo()
    return [free, total]


def hold(amount: int) -> int:
    """Allocate from the device's default pool, as cuda.core does."""
    held.append(device.allocate(amount, stream=stream))
    stream.sync()
    return amount


def let_go() -> None:
    """Trim the pool, since cuda.core lets it keep freed memory."""
    while held:
        held.pop().close(stream)
    stream.sync()
    driver.cuMemPoolTrimTo(driver.cuDeviceGetDefaultMemPool(0)[1], 0)


def on_host(amount: int) -> tuple[Buffer, np.ndarray]:
    buffer = pinned.allocate(amount, stream=stream)
    return buffer, np.from_dlpack(buffer).view(np.uint8)


def words_of(buffer: Buffer) -> list[int]:
    here, seen = on_host(buffer.size)
    buffer.copy_to(here, stream=stream)
    stream.sync()
    words = seen.view(np.uint32).tolist()
    del seen
    here.close()
    return words


def round_trip(amount: int) -> bool:
    (here, source), (back, target) = on_host(amount), on_host(amount)
    source[:] = np.frombuffer(np.random.default_rng(1).bytes(amount), np.uint8)
    there = device.allocate(amount, stream=stream)
    here.copy_to(there, stream=stream)
    copy = there.copy_to(stream=stream)
    copy.copy_to(back, stream=stream)
    stream.sync()
    is_equal = bool((source == target).all())
    for buffer in (there, copy):
        buffer.close(stream)
    stream.sync()
    return is_equal


def increment_of(compiler: str) -> object:
    """Return the user's kernel as text for the driver, or compiled by NVRTC for this device."""
    if compiler == "driver":
        return ObjectCode.from_ptx(INCREMENT + b"\0").get_kernel("increment")
    program = Program(SOURCE, "c++", ProgramOptions(arch=f"sm_{device.arch}"))
    return program.compile(compiler).get_kernel("increment")


def timed(kernel: object, *arguments: object) -> float:
    """Return the milliseconds between two events around a launch."""
    timing = EventOptions(timing_enabled=True)
    begin = stream.record(options=timing)
    launch(stream, ONE, kernel, *arguments)
    end = stream.record(options=timing)
    end.sync()
    return end - begin


def launches(compiler: str = "driver") -> list[object]:
    """Return words after our fill, words after a user's kernel, and whether that took time."""
    buffer = device.allocate(16, stream=stream)
    fill = ObjectCode.from_ptx(BUILTINS + b"\0").get_kernel("aliquot_fill")
    timed(fill, buffer, np.uint32(7), np.uint64(4))
    filled = words_of(buffer)
    took = timed(increment_of(compiler), buffer)
    after = words_of(buffer)
    buffer.close(stream)
    stream.sync()
    return [filled, after, took > 0]

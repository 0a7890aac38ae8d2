"""The host's use of managed memory whose bytes a device has."""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Any

import pytest

_CALLS = {"x86_64": 323, "aarch64": 282}


def tells_host_faults() -> bool:
    """Return whether the kernel lets this process see faults."""
    number = _CALLS.get(platform.machine())
    descriptor = -1 if number is None else ctypes.CDLL(None).syscall(number, os.O_CLOEXEC)
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0


pytestmark = pytest.mark.skipif(not tells_host_faults(), reason="the kernel tells faults to root alone")

_HOST = """
    def managed(size):
        pointer = u64(); check(cuda.cuMemAllocManaged(ctypes.byref(pointer), ctypes.c_size_t(size), 1))
        return pointer.value
    def prefetch(pointer, size, device=0):
        check(cuda.cuMemPrefetchAsync(u64(pointer), ctypes.c_size_t(size), device, None))
        check(cuda.cuCtxSynchronize())
    def fill(pointer, size, value=7):
        check(cuda.cuMemsetD32_v2(u64(pointer), value, ctypes.c_size_t(size // 4))); check(cuda.cuCtxSynchronize())
    def took(act, *arguments):
        \"\"\"The milliseconds that an act of the host takes.\"\"\"
        before = time.monotonic(); act(*arguments); return 1000 * (time.monotonic() - before)
    free = lambda: free_bytes() // MIB
"""


def test_a_block_that_the_host_uses_goes_home_after_a_fault(make_machine: Any) -> None:
    machine = make_machine(MEMORY="64MiB", FAULT_US="200000")
    said = machine.run(
        _HOST
        + """
    start(); SIZE = 10 * MIB; p = managed(SIZE); write = lambda: ctypes.memset(p, 1, SIZE)
    first = took(write); prefetch(p, SIZE); say(free()); after = took(write); again = took(write); say(free())
    say(after >= 1000, first < after / 2, again < after / 2)
    say(took(prefetch, p, 2 * MIB) >= 0, free()); say(took(ctypes.string_at, p + MIB, 1) >= 200, free())
    """
    )
    assert said.split("\n") == ["54", "64", "True True True", "True 62", "True 64"]


def test_bytes_that_a_device_wrote_come_home_over_the_link(make_machine: Any) -> None:
    machine = make_machine(MEMORY="1GiB", LINK_GBPS="1", FAULT_US="1")
    said = machine.run(
        _HOST
        + """
    start(); SIZE = 256 * MIB; p = managed(SIZE); fill(p, SIZE); read = lambda: ctypes.string_at(p, SIZE)
    written = took(read); known = took(read); say(written >= 268, known < written, free())
    say(read() == (7).to_bytes(4, "little") * (SIZE // 4))
    """
    )
    assert said.split("\n") == ["True True 1024", "True"]


def test_host_and_device_see_what_the_other_wrote(make_machine: Any) -> None:
    machine = make_machine(MEMORY="64MiB")
    said = machine.run(
        _HOST
        + """
    start(); SIZE = 9 * MIB + 4096; p = managed(SIZE)
    for turn in range(1, 6):
        fill(p, SIZE, turn); say(ctypes.string_at(p + SIZE - 4, 4).hex(), ctypes.string_at(p + 3 * MIB, 4).hex())
        ctypes.memset(p + 3 * MIB, 0x50 + turn, 2 * MIB)
        data = download(p, SIZE); say(data[3 * MIB:3 * MIB + 1].hex(), data[5 * MIB:5 * MIB + 1].hex())
    """
    )
    want = [line for turn in range(1, 6) for line in (f"0{turn}000000 0{turn}000000", f"5{turn} 0{turn}")]
    assert said.split("\n") == want


def test_memory_that_is_mostly_read_stays_until_the_host_writes_it(make_machine: Any) -> None:
    machine = make_machine(MEMORY="64MiB", FAULT_US="200000")
    said = machine.run(
        _HOST
        + """
    start(); SIZE = 2 * MIB; p = managed(SIZE); check(cuda.cuMemAdvise(u64(p), ctypes.c_size_t(SIZE), 1, 0))
    fill(p, SIZE); say(free())
    say(took(ctypes.string_at, p, 4) >= 200, free(), ctypes.string_at(p, 4).hex())
    fill(p, SIZE, 9); say(took(ctypes.memset, p, 1, 4) >= 200, free())
    """
    )
    assert said.split("\n") == ["62", "True 62 07000000", "True 64"]


def test_system_calls_and_threads_of_the_host_wait_for_the_same_fault(make_machine: Any) -> None:
    machine = make_machine(MEMORY="64MiB", FAULT_US="300000")
    said = machine.run(
        _HOST
        + """
    import threading
    start(); SIZE = 2 * MIB; p = managed(SIZE); prefetch(p, SIZE); fill(p, SIZE)
    reading, writing = os.pipe(); os.write(writing, b"abcd")
    into = (ctypes.c_char * 4).from_address(p)
    say(took(os.readv, reading, [into]) >= 300, ctypes.string_at(p, 8).hex())
    fill(p, SIZE); libc, found = ctypes.CDLL(None), []
    def touch(at): found.append(took(libc.memcmp, vp(p + at), b"\\7", ctypes.c_size_t(1)))
    threads = [threading.Thread(target=touch, args=(at * 4096,)) for at in range(8)]
    for one in threads: one.start()
    for one in threads: one.join()
    say(max(found) >= 300, free())
    """
    )
    assert said.split("\n") == ["True 6162636407000000", "True 64"]


def test_what_ends_while_the_host_waits_leaves_nothing(make_machine: Any) -> None:
    machine = make_machine(MEMORY="64MiB", FAULT_US="1000000")
    client = machine.popen(
        _HOST
        + """
    start(); p = managed(8 * MIB); fill(p, 8 * MIB); say("waits"); ctypes.string_at(p, 8 * MIB); say("done")
    """
    )
    assert client.stdout.readline().strip() == "waits"
    client.kill()
    assert client.communicate(timeout=30)[0] == ""
    assert machine.run("start(); say(free_bytes() // MIB)") == "64"

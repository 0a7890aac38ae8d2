"""Device memory: its size, its edges, its addresses, and the effects of copies and fills."""

from __future__ import annotations

import signal

import pytest


def test_two_processes_share_one_capacity(a_machine):
    holder = a_machine.popen("start(); check(alloc(48 * MIB)[0]); say('held'); wait_for_go()")
    assert holder.stdout.readline() == "held\n"
    asked = a_machine.run("start(); say(free_bytes() // MIB, alloc(17 * MIB)[0], alloc(16 * MIB)[0])")
    holder.communicate("go\n", timeout=10)
    want_free, want_out_of_memory = 16, 2
    assert asked == f"{want_free} {want_out_of_memory} 0"


def test_last_byte_can_be_allocated_and_not_one_more(a_machine):
    said = a_machine.run("""
        start()
        error, pointer = alloc(64 * MIB)
        say(error, free_bytes(), alloc(1)[0])
        check(cuda.cuMemFree_v2(u64(pointer)))
        small = [alloc(512)[1] for _ in range(2048)]
        say(64 * MIB - free_bytes() == 2048 * 512, len(set(small)))
        for p in small: check(cuda.cuMemFree_v2(u64(p)))
        say(free_bytes() == 64 * MIB)
    """)
    assert said.split("\n") == ["0 0 2", "True 2048", "True"]


def test_device_pointer_faults_on_the_host(a_machine):
    code = "start(); p = alloc(MIB)[1]; upload(p, b'abcd'); ctypes.string_at(p, 4)"
    a_machine.run(code, want_code=-signal.SIGSEGV)


def test_freed_or_foreign_addresses_are_refused(a_machine):
    said = a_machine.run("""
        start()
        p = alloc(MIB)[1]
        free = lambda a: cuda.cuMemFree_v2(u64(a))
        say(free(p + 512), free(p), free(p), free(0), free(12345))
        say(cuda.cuMemsetD8_v2(u64(p), 1, ctypes.c_size_t(16)))
        q = alloc(1024)[1]
        say(cuda.cuMemsetD8_v2(u64(q), 1, ctypes.c_size_t(1025)), cuda.cuMemsetD8_v2(u64(q), 1, ctypes.c_size_t(1024)))
    """)
    assert said.split("\n") == ["1 0 1 0 1", "1", "1 0"]


def test_pitched_copies_move_the_rectangle_and_nothing_else(a_machine):
    said = a_machine.run(
        """
        from cuda.bindings import driver as d
        start()
        error, pointer, pitch = d.cuMemAllocPitch(10, 4, 4)
        assert error == 0 and pitch % 512 == 0, (error, pitch)
        check(cuda.cuMemsetD8_v2(u64(int(pointer)), 0xee, ctypes.c_size_t(pitch * 4)))
        source = bytes(range(40)); target = bytearray(b"." * 60)
        c = d.CUDA_MEMCPY2D()
        c.srcMemoryType = d.CUmemorytype.CU_MEMORYTYPE_HOST; c.srcHost = source; c.srcPitch = 10
        c.dstMemoryType = d.CUmemorytype.CU_MEMORYTYPE_DEVICE; c.dstDevice = pointer; c.dstPitch = pitch
        c.WidthInBytes = 10; c.Height = 4
        assert d.cuMemcpy2D(c)[0] == 0
        back = d.CUDA_MEMCPY2D()
        back.srcMemoryType = d.CUmemorytype.CU_MEMORYTYPE_DEVICE; back.srcDevice = pointer; back.srcPitch = pitch
        back.srcXInBytes = 2; back.srcY = 1
        back.dstMemoryType = d.CUmemorytype.CU_MEMORYTYPE_HOST; back.dstHost = target; back.dstPitch = 12
        back.WidthInBytes = 3; back.Height = 2
        assert d.cuMemcpy2D(back)[0] == 0
        say(bytes(target[:16]).hex(), download(int(pointer) + 10, 2).hex())
        """
    )
    want_rows = bytes([12, 13, 14]) + b"." * 9 + bytes([22, 23, 24]) + b"."
    assert said == f"{want_rows.hex()} eeee"


@pytest.mark.parametrize(
    ("call", "want"), [("cuMemsetD8_v2", "4141"), ("cuMemsetD16_v2", "4142"), ("cuMemsetD32_v2", "4142")]
)
def test_fills_write_their_element(a_machine, call, want):
    value = {"cuMemsetD8_v2": 0x41, "cuMemsetD16_v2": 0x4241, "cuMemsetD32_v2": 0x43424241}[call]
    said = a_machine.run(f"""
        start(); p = alloc(MIB)[1]; check(cuda.{call}(u64(p), {value}, ctypes.c_size_t(8))); say(download(p, 2).hex())
    """)
    assert said == want


def test_pool_memory_returns_when_the_stream_reaches_the_free(a_machine):
    said = a_machine.run("""
        start()
        stream = vp(); check(cuda.cuStreamCreate(ctypes.byref(stream), 1))
        for _ in range(8):  # 8 x 40 MiB on 64: each waits for the free before it
            p = u64(); check(cuda.cuMemAllocAsync(ctypes.byref(p), ctypes.c_size_t(40 * MIB), stream))
            check(launch("aliquot_spin", u64(1_000_000), stream=stream))
            check(cuda.cuMemFreeAsync(p, stream))
        say(cuda.cuMemFreeAsync(p, stream))
        check(cuda.cuStreamSynchronize(stream)); say(free_bytes() // MIB)
    """)
    assert said.split("\n") == ["1", "64"]


def test_pools_reserve_whole_chunks_while_there_is_room(make_machine):
    said = make_machine(MEMORY="100MiB", POOL_CHUNK="32MiB").run("""
        start()
        for size in (1, 33 * MIB, 4 * MIB):  # the second finds no room for two more chunks, but for what it needs
            p = u64(); check(cuda.cuMemAllocAsync(ctypes.byref(p), ctypes.c_size_t(size), None))
            say(free_bytes() // MIB)
    """)
    assert said.split("\n") == ["68", "4", "4"]


def test_pointer_attributes_tell_device_host_and_unknown(a_machine):
    said = a_machine.run("""
        start()
        kind = ctypes.c_uint(); host = vp(); p = alloc(MIB)[1]
        check(cuda.cuMemHostAlloc(ctypes.byref(host), ctypes.c_size_t(4096), 0))
        ask = lambda a: (cuda.cuPointerGetAttribute(ctypes.byref(kind), 2, u64(a)), kind.value)
        base, size = u64(), ctypes.c_size_t()
        check(cuda.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), u64(p + 77)))
        say(ask(p), ask(host.value), ask(4096)[0], base.value == p, size.value == MIB)
        check(cuda.cuMemFreeHost(host))
    """)
    assert said == "(0, 2) (0, 1) 1 True True"


def test_freed_host_pages_go_back_to_the_system(make_machine):
    machine = make_machine(MEMORY="1GiB")
    said = machine.run("""
        start()
        resident = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
        before = resident(); p = alloc(200 * MIB)[1]
        check(cuda.cuMemsetD8_v2(u64(p), 1, ctypes.c_size_t(200 * MIB))); full = resident()
        check(cuda.cuMemFree_v2(u64(p))); say(full - before > 190 * MIB, resident() - before < 10 * MIB)
    """)
    assert said == "True True"


def test_contexts_take_their_footprint_and_give_it_back(make_machine):
    machine = make_machine(MEMORY="64MiB", CONTEXT="10MiB")
    said = machine.run(
        """
        start(); say(free_bytes() // MIB)
        second = vp(); check(cuda.cuCtxCreate_v2(ctypes.byref(second), 0, 0)); say(free_bytes() // MIB)
        check(cuda.cuCtxDestroy_v2(second)); check(cuda.cuDevicePrimaryCtxReset_v2(0))
        start(); say(free_bytes() // MIB, alloc(56 * MIB)[0], alloc(54 * MIB)[0])
        """
    )
    want_out_of_memory = 2
    assert said.split("\n") == ["54", "44", f"54 {want_out_of_memory} 0"]


def test_a_device_without_room_for_a_context_gives_none(make_machine):
    machine = make_machine(MEMORY="16MiB", CONTEXT="10MiB")
    holder = machine.popen("start(); say('there'); wait_for_go()")
    assert holder.stdout.readline() == "there\n"
    said = machine.run("check(cuda.cuInit(0)); say(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(vp()), 0))")
    want_out_of_memory = "2"
    assert said == want_out_of_memory
    holder.communicate("go\n", timeout=20)

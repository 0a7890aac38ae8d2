"""Virtual memory management of the software GPU, where it says more than CUDA does: limits, rights, deaths."""

from __future__ import annotations

import resource
import signal

_PROPERTIES = """
    class Properties(ctypes.Structure):
        _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("place", ctypes.c_int), ("id", ctypes.c_int),
                    ("win", vp), ("flags", ctypes.c_ubyte * 8)]
    class Access(ctypes.Structure):
        _fields_ = [("place", ctypes.c_int), ("id", ctypes.c_int), ("flags", ctypes.c_int)]
    DEVICE, HOST = 1, 2
    def create(size, handles=0, place=DEVICE, device=0):
        handle = u64(); properties = Properties(1, handles, place, device)
        error = cuda.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties), u64(0))
        return error, handle.value
    def reserve(size):
        address, zero = u64(), ctypes.c_size_t(0)
        check(cuda.cuMemAddressReserve(ctypes.byref(address), ctypes.c_size_t(size), zero, u64(0), u64(0)))
        return address.value
    def map(address, size, handle):
        return cuda.cuMemMap(u64(address), ctypes.c_size_t(size), ctypes.c_size_t(0), u64(handle), u64(0))
    def allow(address, size, flags=3, place=DEVICE, device=0):
        return cuda.cuMemSetAccess(u64(address), ctypes.c_size_t(size), ctypes.byref(Access(place, device, flags)),
                                   ctypes.c_size_t(1))
    def unmap(address, size): return cuda.cuMemUnmap(u64(address), ctypes.c_size_t(size))
    def release(handle): return cuda.cuMemRelease(u64(handle))
    def fill(address, count): return cuda.cuMemsetD32_v2(u64(address), 7, ctypes.c_size_t(count))
    UNIT = 2 * MIB
"""


def test_twenty_thousand_handles_and_allocations_live_at_once(make_machine):
    machine = make_machine(MEMORY="64GiB")
    said = machine.run(
        _PROPERTIES
        + """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)); start(); count = 20_000; whole = free_bytes()
    base = reserve(count * UNIT); handles = [create(UNIT) for _ in range(count)]
    assert all(error == 0 for error, _ in handles)
    assert all(map(base + i * UNIT, UNIT, handles[count - 1 - i][1]) == 0 for i in range(count))  # in no order
    check(allow(base, count * UNIT)); check(fill(base + (count - 1) * UNIT, 4)); check(fill(base, 4))
    small = [alloc(512)[1] for _ in range(count)]
    say(len(set(small)), all(small), download(base + (count - 1) * UNIT, 1), download(base, 1))
    for _, handle in handles: check(release(handle))
    check(unmap(base, count * UNIT))
    for p in small: check(cuda.cuMemFree_v2(u64(p)))
    say(whole == free_bytes())
    """
    )
    assert said.split("\n") == [r"20000 True b'\x07' b'\x07'", "True"]


def test_shareable_handles_raise_the_soft_limit_of_descriptors_only_when_it_is_met(make_machine):
    machine = make_machine(MEMORY="4GiB")
    soft, hard = 64, min(2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    said = machine.run(
        _PROPERTIES
        + f"""
    import resource
    soft = lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard})); start(); check(create(UNIT, 1)[0]); before = soft()
    errors = [create(UNIT, 1)[0] for _ in range(100)]
    say(before, max(errors), soft())
    """
    )
    assert said == f"{soft} 0 {hard}"


def test_mapped_memory_faults_on_the_host(a_machine):
    code = """
    start(); base = reserve(UNIT); check(map(base, UNIT, create(UNIT)[1])); check(allow(base, UNIT))
    check(fill(base, 4)); say(download(base, 1)); ctypes.string_at(base, 1)
    """
    a_machine.run(_PROPERTIES + code, want_code=-signal.SIGSEGV)


def test_host_memory_costs_no_device_memory_and_is_read_in_place(a_machine):
    said = a_machine.run(
        _PROPERTIES
        + """
    start(); base = reserve(UNIT); error, handle = create(UNIT, place=HOST); say(error, free_bytes() // MIB)
    check(map(base, UNIT, handle)); check(allow(base, UNIT)); check(allow(base, UNIT, place=HOST)); check(fill(base, 4))
    say(ctypes.string_at(base, 4).hex())
    ctypes.memset(base, 9, 4); say(download(base, 4).hex())
    device = reserve(UNIT); check(map(device, UNIT, create(UNIT)[1])); say(allow(device, UNIT, place=HOST))
    """
    )
    want_invalid_value = "1"
    assert said.split("\n") == ["0 64", "07000000", "09090909", want_invalid_value]


def test_rights_are_each_devices_own_and_reading_is_not_writing(make_machine):
    machine = make_machine(DEVICES="2")
    said = machine.run(
        _PROPERTIES
        + """
    start(); base = reserve(UNIT); check(map(base, UNIT, create(UNIT)[1])); check(allow(base, UNIT, flags=1))
    say(fill(base, 4), download(base, 1), launch("aliquot_fill", u64(base), ctypes.c_uint32(1), u64(4)))
    start(1); data = ctypes.create_string_buffer(4)
    say(cuda.cuMemcpyDtoH_v2(data, u64(base), ctypes.c_size_t(4)))
    check(allow(base, UNIT, device=1)); say(fill(base, 4))
    """
    )
    assert said.split("\n") == [r"1 b'\x00' 1", "1", "0"]


def test_launch_whose_memory_was_unmapped_before_its_turn_is_illegal(a_machine):
    said = a_machine.run(
        _PROPERTIES
        + """
    start(); base = reserve(UNIT); check(map(base, UNIT, create(UNIT)[1])); check(allow(base, UNIT))
    check(launch("aliquot_spin", u64(500_000_000)))
    check(launch("aliquot_fill", u64(base), ctypes.c_uint32(1), u64(4)))
    check(unmap(base, UNIT)); say(cuda.cuCtxSynchronize(), alloc(512)[0])
    """
    )
    want_illegal_address = "700 700"
    assert said == want_illegal_address


def test_fresh_memory_reads_zero_whatever_lay_there_before(a_machine):
    said = a_machine.run(
        _PROPERTIES
        + """
    start(); base = reserve(UNIT)
    for _ in range(3):
        error, handle = create(UNIT); check(map(base, UNIT, handle)); check(allow(base, UNIT))
        say(download(base, 4).hex())
        check(fill(base, UNIT // 4)); check(unmap(base, UNIT)); check(release(handle))
    """
    )
    assert said.split("\n") == ["00000000"] * 3


def test_released_memory_goes_back_to_the_system(make_machine):
    machine = make_machine(MEMORY="1GiB")
    said = machine.run(
        _PROPERTIES
        + """
    start(); size = 200 * MIB; base = reserve(size); error, handle = create(size); check(map(base, size, handle))
    def held():
        paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return sum(os.stat(p).st_blocks * 512 for p in paths if os.path.lexists(p) and "softgpu" in os.readlink(p))
    check(allow(base, size)); before = held(); check(fill(base, size // 4)); full = held() - before
    check(unmap(base, size)); check(release(handle)); say(full >= size, held() - before < MIB)
    """
    )
    assert said == "True True"


def test_killed_exporter_is_charged_no_more_while_its_memory_lives_on(a_machine):
    exporter = a_machine.popen(
        _PROPERTIES
        + """
    start(); error, handle = create(40 * MIB, 1); fd = ctypes.c_int()
    check(cuda.cuMemExportToShareableHandle(ctypes.byref(fd), u64(handle), 1, u64(0)))
    base = reserve(40 * MIB); check(map(base, 40 * MIB, handle)); check(allow(base, 40 * MIB)); check(fill(base, 4))
    say(os.getpid(), fd.value); signal.pause()
    """
    )
    process, descriptor = exporter.stdout.readline().split()
    importer = a_machine.popen(
        _PROPERTIES
        + f"""
    start(); fd = os.open("/proc/{process}/fd/{descriptor}", os.O_RDWR); handle = u64()
    check(cuda.cuMemImportFromShareableHandle(ctypes.byref(handle), vp(fd), 1)); os.close(fd)
    base = reserve(40 * MIB); check(map(base, 40 * MIB, handle.value)); check(allow(base, 40 * MIB))
    say(free_bytes() // MIB); wait_for_go(); say(free_bytes() // MIB, download(base, 1).hex())
    """
    )
    assert importer.stdout.readline() == "24\n"
    exporter.kill()
    exporter.communicate()
    assert importer.communicate("go\n", timeout=20)[0] == "64 07\n"


def test_memory_of_another_machine_is_not_imported(make_machine):
    exporter = make_machine().popen(
        _PROPERTIES
        + """
    start(); error, handle = create(UNIT, 1); fd = ctypes.c_int()
    check(cuda.cuMemExportToShareableHandle(ctypes.byref(fd), u64(handle), 1, u64(0)))
    say(os.getpid(), fd.value); wait_for_go()
    """
    )
    process, descriptor = exporter.stdout.readline().split()
    said = make_machine().run(
        _PROPERTIES
        + f"""
    start(); fd = os.open("/proc/{process}/fd/{descriptor}", os.O_RDWR); handle = u64()
    say(cuda.cuMemImportFromShareableHandle(ctypes.byref(handle), vp(fd), 1))
    """
    )
    exporter.communicate("go\n", timeout=20)
    want_not_supported = "801"
    assert said == want_not_supported


_CHURN = """
    import random
    start(); r = random.Random(os.getpid()); base = reserve(8 * UNIT); handle64 = ctypes.create_string_buffer(64)
    say("up")
    while True:
        errors, handles = zip(*[create(UNIT, r.choice([0, 1])) for _ in range(8)])
        for i, handle in enumerate(handles):
            if not errors[i]: map(base + i * UNIT, UNIT, handle); allow(base + i * UNIT, UNIT); release(handle)
        p = u64(); cuda.cuMemAllocManaged(ctypes.byref(p), ctypes.c_size_t(8 * MIB), 1)
        cuda.cuMemPrefetchAsync(p, ctypes.c_size_t(8 * MIB), 0, None); q = alloc(r.choice([4096, 4 * MIB]))[1]
        cuda.cuIpcGetMemHandle(handle64, u64(q)); fill(base, 4); cuda.cuCtxSynchronize()
        cuda.cuMemFree_v2(p); cuda.cuMemFree_v2(u64(q))
        for i in range(8): unmap(base + i * UNIT, UNIT)
"""


def test_killed_amid_every_sort_of_memory_leaves_nothing(a_machine):
    clients = [a_machine.popen(_PROPERTIES + _CHURN) for _ in range(6)]
    for client in clients:
        assert client.stdout.readline() == "up\n"
    a_machine.run("start()\nfor _ in range(2000): check(cuda.cuMemFree_v2(u64(alloc(512)[1] or 0)))")  # let them churn
    for client in clients:
        client.kill()
        client.communicate()
    assert a_machine.run("start(); say(free_bytes() // MIB, alloc(64 * MIB)[0])") == "64 0"

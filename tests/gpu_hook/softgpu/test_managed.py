"""The software GPU's count of managed memory."""

from __future__ import annotations

_MANAGED = """
    def managed(size):
        pointer = u64(); check(cuda.cuMemAllocManaged(ctypes.byref(pointer), ctypes.c_size_t(size), 1))
        return pointer.value
    def prefetch(pointer, size, device=0):
        check(cuda.cuMemPrefetchAsync(u64(pointer), ctypes.c_size_t(size), device, None))
        check(cuda.cuCtxSynchronize())
    def advise(pointer, size, what, device=0):
        check(cuda.cuMemAdvise(u64(pointer), ctypes.c_size_t(size), what, device))
    def fill(pointer, count): return cuda.cuMemsetD32_v2(u64(pointer), 7, ctypes.c_size_t(count))
    free = lambda: free_bytes() // MIB
    READ_MOSTLY, PREFERRED, CPU = 1, 3, -1
"""


def test_managed_memory_counts_while_it_is_on_the_device(a_machine):
    said = a_machine.run(
        _MANAGED
        + """
    start(); p = managed(40 * MIB); ctypes.memset(p, 1, 40 * MIB); say(free())
    prefetch(p, 20 * MIB); say(free()); prefetch(p + 10 * MIB, 30 * MIB); say(free())
    prefetch(p, 40 * MIB, CPU); say(free()); check(fill(p, 4)); say(free())
    check(cuda.cuMemFree_v2(u64(p))); say(free())
    """
    )
    assert said.split("\n") == ["64", "44", "24", "64", "62", "64"]


def test_launch_brings_in_what_its_arguments_point_to(a_machine):
    said = a_machine.run(
        _MANAGED
        + """
    start(); p = managed(40 * MIB); q = managed(8 * MIB)
    check(launch("aliquot_fill", u64(p + 20 * MIB), ctypes.c_uint32(1), u64(4))); check(cuda.cuCtxSynchronize())
    say(free(), ctypes.string_at(p + 20 * MIB, 4).hex())
    """
    )
    assert said == "44 01000000"


def test_memory_that_came_first_goes_home_when_the_device_is_full(a_machine):
    said = a_machine.run(
        _MANAGED
        + """
    start(); first, second = managed(30 * MIB), managed(30 * MIB); prefetch(first, 30 * MIB); prefetch(second, 30 * MIB)
    check(fill(first, 30 * MIB // 4)); say(free()); third = managed(30 * MIB); prefetch(third, 30 * MIB); say(free())
    prefetch(first, 30 * MIB, CPU); say(free()); prefetch(second, 30 * MIB, CPU); say(free())
    prefetch(first, 30 * MIB); error, plain = alloc(60 * MIB); say(error, free()); say(alloc(8 * MIB)[0], free())
    say(ctypes.string_at(first, 4).hex())
    """
    )
    # The driver does not see that the first is used: 4 of its 30 MiB stayed when the third came.
    assert said.split("\n") == ["4", "0", "4", "34", "0 0", "2 4", "07000000"]


def test_a_prefetch_makes_memory_the_last_to_leave(a_machine):
    said = a_machine.run(
        _MANAGED
        + """
    start(); first, second = managed(30 * MIB), managed(30 * MIB); prefetch(first, 30 * MIB); prefetch(second, 30 * MIB)
    prefetch(first, 30 * MIB); third = managed(30 * MIB); prefetch(third, 30 * MIB)
    prefetch(first, 30 * MIB, CPU); say(free())
    """
    )
    assert said == "30"


def test_allocation_larger_than_the_device_is_used_part_by_part(a_machine):
    said = a_machine.run(
        _MANAGED
        + """
    start(); p = managed(200 * MIB); check(fill(p, 50 * MIB)); say(free(), ctypes.string_at(p + 199 * MIB, 4).hex())
    prefetch(p + 150 * MIB, 50 * MIB); say(free()); check(cuda.cuMemFree_v2(u64(p))); say(free())
    huge = u64(); say(cuda.cuMemAllocManaged(ctypes.byref(huge), ctypes.c_size_t(1 << 50), 1))
    """
    )
    want_out_of_memory = "2"
    assert said.split("\n") == ["0 07000000", "0", "64", want_out_of_memory]


def test_what_prefers_the_host_is_used_from_there(a_machine):
    said = a_machine.run(
        _MANAGED
        + """
    start(); p = managed(8 * MIB); advise(p, 8 * MIB, PREFERRED, CPU); check(fill(p, 4)); say(free())
    prefetch(p, 8 * MIB); say(free())
    """
    )
    assert said.split("\n") == ["64", "56"]


def test_small_managed_memory_costs_little(a_machine):
    said = a_machine.run(
        _MANAGED
        + """
    start(); p = managed(1000); check(fill(p, 4)); say(64 * MIB - free_bytes()); ctypes.memset(p, 1, 1000)
    """
    )
    want_least_charge = 64 << 10
    assert int(said) == want_least_charge


def test_migration_takes_the_links_time(make_machine):
    machine = make_machine(MEMORY="1GiB", LINK_GBPS="1")
    said = machine.run(
        _MANAGED
        + """
    start(); p = managed(100 * MIB); ctypes.memset(p, 1, 100 * MIB); first, last = event(), event()
    check(cuda.cuEventRecord(first, None)); prefetch(p, 100 * MIB); check(cuda.cuEventRecord(last, None))
    say(elapsed(first, last) >= 100)
    """
    )
    assert said == "True"


def test_destroyed_context_takes_its_managed_memory_along(a_machine):
    said = a_machine.run(
        _MANAGED
        + """
    start(); made = vp(); check(cuda.cuCtxCreate_v2(ctypes.byref(made), 0, 0)); p = managed(8 * MIB); check(fill(p, 4))
    say(free()); check(cuda.cuCtxDestroy_v2(made)); say(free(), cuda.cuMemFree_v2(u64(p)))
    """
    )
    assert said.split("\n") == ["62", "64 1"]


def test_a_launch_waits_for_the_faults_of_its_memory(make_machine):
    machine = make_machine(MEMORY="64MiB", FAULT_US="100000")
    said = machine.run(
        _MANAGED
        + """
    start(); p = managed(10 * MIB); first, last = event(), event()
    check(cuda.cuEventRecord(first, None))
    check(launch("aliquot_fill", u64(p), ctypes.c_uint32(1), u64(4))); check(cuda.cuEventRecord(last, None))
    check(cuda.cuCtxSynchronize()); say(elapsed(first, last) >= 500, ctypes.string_at(p, 4).hex())
    """
    )
    assert said == "True 01000000"


def test_what_is_used_from_home_takes_the_links_time_at_each_launch(make_machine):
    machine = make_machine(MEMORY="1GiB", LINK_GBPS="1")
    said = machine.run(
        _MANAGED
        + """
    start(); p = managed(100 * MIB); advise(p, 100 * MIB, PREFERRED, CPU); before = free()
    for _ in range(2):
        first, last = event(), event(); check(cuda.cuEventRecord(first, None))
        check(launch("aliquot_fill", u64(p), ctypes.c_uint32(1), u64(4))); check(cuda.cuEventRecord(last, None))
        check(cuda.cuCtxSynchronize()); say(elapsed(first, last) >= 100, free() == before)
    """
    )
    assert said.split("\n") == ["True True"] * 2


def test_memory_that_is_accessed_by_advice_drives_no_other_out(a_machine):
    said = a_machine.run(
        _MANAGED
        + """
    start(); ACCESSED = 5; first, second = managed(60 * MIB), managed(30 * MIB); prefetch(first, 60 * MIB)
    advise(second, 30 * MIB, ACCESSED)
    check(launch("aliquot_fill", u64(second), ctypes.c_uint32(7), u64(30 * MIB // 4))); check(cuda.cuCtxSynchronize())
    say(free(), ctypes.string_at(second + 29 * MIB, 4).hex())
    prefetch(second, 30 * MIB, CPU); say(free())
    check(launch("aliquot_fill", u64(second), ctypes.c_uint32(7), u64(4))); check(cuda.cuCtxSynchronize())
    prefetch(first, 60 * MIB, CPU); say(free())
    """
    )
    # Two of its blocks found room beside the first allocation, which stayed whole both times.
    assert said.split("\n") == ["0 07000000", "4", "60"]


_LINK = (
    _MANAGED
    + """
    first, last = None, None
    def moved(pointer, size, device=0):
        \"\"\"How long a prefetch takes.\"\"\"
        check(cuda.cuEventRecord(first, None))
        check(cuda.cuMemPrefetchAsync(u64(pointer), ctypes.c_size_t(size), device, None))
        check(cuda.cuEventRecord(last, None)); return elapsed(first, last)
    start(); first, last = event(), event()
    """
)


def test_memory_that_nothing_has_used_comes_without_a_copy(make_machine):
    machine = make_machine(MEMORY="1GiB", LINK_GBPS="1")
    said = machine.run(
        _LINK
        + """
    SIZE = 256 * MIB; used, unused = managed(SIZE), managed(SIZE); ctypes.memset(used, 1, SIZE)
    without, copied = moved(unused, SIZE), moved(used, SIZE); say(copied >= 256, without < copied / 2, free())
    """
    )
    assert said == "True True 512"


_OTHER = (
    _MANAGED
    + """
    start(); p = managed(40 * MIB); ctypes.memset(p, 3, 40 * MIB); prefetch(p, 40 * MIB); say(free())
    while (word := wait_for_go()):
        if word == "use": prefetch(p, 40 * MIB)
        if word == "free": check(cuda.cuMemFree_v2(u64(p)))
        say(free())
    say(set(ctypes.string_at(p, 40 * MIB)) if word == "" else "")
    """
)


def ask(client, word):
    client.stdin.write(f"{word}\n")
    client.stdin.flush()
    return client.stdout.readline().strip()


def test_the_memory_of_all_processes_that_came_first_goes_home(a_machine):
    first = a_machine.popen(_OTHER)
    second = None
    try:
        assert first.stdout.readline().strip() == "24"
        second = a_machine.popen(_OTHER)
        assert second.stdout.readline().strip() == "0"
        assert [ask(first, "use"), ask(second, "use"), ask(first, "use")] == ["0", "0", "0"]
        # 16 MiB of the second left for the first: 24 stay.
        assert ask(first, "free") == str(64 - 24)
        assert ask(second, "use") == "24"
        assert ask(second, "free") == "64"
    finally:
        for client in filter(None, (first, second)):
            client.kill()
            client.communicate()


def test_plain_memory_drives_other_processes_managed_memory_home_and_keeps_its_bytes(a_machine):
    other = a_machine.popen(_OTHER)
    try:
        assert other.stdout.readline().strip() == "24"
        code = "start(); error, _ = alloc(60 * MIB); say(error, free_bytes() // MIB); wait_for_go()"
        plain = a_machine.popen(code)
        try:
            assert plain.stdout.readline().strip() == "0 0", "4 MiB of the other stay"
            assert ask(other, "use") == "0", "plain memory leaves for none"
        finally:
            plain.communicate("\n", timeout=60)
        assert ask(other, "use") == "24"
        assert other.communicate("\n", timeout=60)[0].strip() == "{3}"
    finally:
        other.kill()
        other.communicate()


def test_a_process_that_ends_leaves_no_memory_that_others_had_taken(a_machine):
    other = a_machine.popen(_OTHER)
    assert other.stdout.readline().strip() == "24"
    client = a_machine.popen("start(); check(alloc(60 * MIB)[0]); say(1); wait_for_go(); say(free_bytes() // MIB)")
    assert client.stdout.readline().strip() == "1"
    other.kill()
    other.communicate()
    assert client.communicate("\n", timeout=60)[0].strip() == "4"


_TWO = (
    _MANAGED
    + """
    contexts = [start(device) for device in range(2)]
    def on(device): check(cuda.cuCtxSetCurrent(contexts[device]))
    def left(): return [(on(device), free())[1] for device in range(2)]
    def launched(device, name, *arguments):
        on(device); builtin.__dict__.pop("module", None)
        first, last = event(), event(); check(cuda.cuEventRecord(first, None)); check(launch(name, *arguments))
        check(cuda.cuEventRecord(last, None)); check(cuda.cuCtxSynchronize()); return elapsed(first, last)
    """
)


def test_read_mostly_memory_is_on_each_device_that_reads_until_one_writes(make_machine):
    machine = make_machine(MEMORY="64MiB", DEVICES="2", FAULT_US="500000")
    said = machine.run(
        _TWO
        + """
    p, sums = managed(8 * MIB), [managed(8), managed(8)]; ctypes.memset(p, 1, 8 * MIB); advise(p, 8 * MIB, READ_MOSTLY)
    hash_of = lambda device: launched(device, "aliquot_hash", u64(p), u64(4), u64(sums[device]))
    before = left()
    for device in (0, 1): hash_of(device)
    say([a - b >= 8 for a, b in zip(before, left())])
    say(hash_of(0) < 500, hash_of(1) < 500)
    launched(0, "aliquot_fill", u64(p), ctypes.c_uint32(1), u64(4)); say([a - b >= 8 for a, b in zip(before, left())])
    say(hash_of(1) >= 2000, [a - b >= 8 for a, b in zip(before, left())])
    """
    )
    assert said.split("\n") == ["[True, True]", "True True", "[True, False]", "True [True, True]"]


def test_what_was_only_read_leaves_without_a_copy(make_machine):
    machine = make_machine(MEMORY="1GiB", LINK_GBPS="1")
    said = machine.run(
        _LINK
        + """
    SIZE = 256 * MIB; p = managed(SIZE); ctypes.memset(p, 1, SIZE); moved(p, SIZE); copied = moved(p, SIZE, CPU)
    advise(p, SIZE, READ_MOSTLY); moved(p, SIZE); without = moved(p, SIZE, CPU)
    say(copied >= 256, without < copied / 2, free())
    """
    )
    assert said == "True True 1024"


def test_a_device_uses_memory_that_prefers_another_from_there(make_machine):
    machine = make_machine(MEMORY="64MiB", DEVICES="2", FAULT_US="500000")
    said = machine.run(
        _TWO
        + """
    p = managed(8 * MIB); ctypes.memset(p, 0, 8 * MIB); advise(p, 8 * MIB, PREFERRED, 1); before = left()
    fill = lambda device: launched(device, "aliquot_fill", u64(p), ctypes.c_uint32(7), u64(4))
    say(fill(0) >= 2000, [a - b for a, b in zip(before, left())]); say(fill(0) < 500, ctypes.string_at(p, 4).hex())
    """
    )
    assert said.split("\n") == ["True [0, 8]", "True 07000000"], "its faults are taken once"

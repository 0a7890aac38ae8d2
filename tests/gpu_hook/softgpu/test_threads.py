"""Many threads in one process: nothing is lost, nothing hangs, contents stay right."""

from __future__ import annotations

_STRESS = """
    import random, threading
    context = start(); builtin("aliquot_fill")
    failures = []
    def live(seed, rounds=60):
        try:
            r = random.Random(seed); check(cuda.cuCtxSetCurrent(context))
            for _ in range(rounds):
                stream, done = vp(), event()
                check(cuda.cuStreamCreate(ctypes.byref(stream), r.randrange(2)))
                p, value, words = u64(), r.getrandbits(32), r.choice([8, 1000, 300_000])
                size = ctypes.c_size_t(words * 4)
                check(cuda.cuMemAllocAsync(ctypes.byref(p), size, stream))
                check(launch("aliquot_fill", p, ctypes.c_uint32(value), u64(words), stream=stream))
                check(launch("aliquot_spin", u64(r.randrange(200_000)), stream=r.choice([None, stream, vp(2)])))
                check(cuda.cuEventRecord(done, stream))
                check(cuda.cuStreamWaitEvent(r.choice([None, vp(2)]), done, 0))
                data = ctypes.create_string_buffer(words * 4)
                check(cuda.cuMemcpyDtoHAsync_v2(data, p, size, stream))
                assert data.raw == value.to_bytes(4, "little") * words, "contents"
                check(cuda.cuMemFreeAsync(p, stream)); check(cuda.cuStreamDestroy_v2(stream))
                check(cuda.cuEventDestroy_v2(done))
        except BaseException as error:
            failures.append(repr(error))
    threads = [threading.Thread(target=live, args=(i,)) for i in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
    check(cuda.cuCtxSynchronize()); say(failures, free_bytes() // MIB)
"""


def test_threads_that_share_a_context_do_not_disturb_each_other(a_machine):
    assert a_machine.run(_STRESS) == "[] 64"


def test_contexts_come_and_go_under_load(a_machine):
    said = a_machine.run("""
        start()
        for round in range(30):
            made = vp(); check(cuda.cuCtxCreate_v2(ctypes.byref(made), 0, 0))
            stream = vp(); check(cuda.cuStreamCreate(ctypes.byref(stream), 1))
            builtin.__dict__.pop("module", None)
            p = alloc(MIB)[1]
            check(launch("aliquot_fill", u64(p), ctypes.c_uint32(1), u64(1000), stream=stream))
            check(launch("aliquot_spin", u64(300_000), stream=stream)); check(launch("aliquot_spin", u64(300_000)))
            check(cuda.cuCtxDestroy_v2(made))
        threads = lambda: len(os.listdir("/proc/self/task"))
        deadline = time.monotonic() + 60
        while threads() > 1 and time.monotonic() < deadline: time.sleep(0.001)
        say(free_bytes() // MIB, threads())
    """)
    assert said == "64 1"

"""Streams, events and simulated time: order, virtual clocks, and contention between processes."""

from __future__ import annotations

import pytest


def test_events_read_simulated_time_not_the_walls(a_machine):
    said = float(
        a_machine.run("""
            start()
            first, last = event(), event()
            check(launch("aliquot_spin", u64(500_000_000)))  # so that all below is queued before its turn comes
            check(cuda.cuEventRecord(first, None))
            for _ in range(50): check(launch("aliquot_spin", u64(1_000_000)))
            check(cuda.cuEventRecord(last, None))
            say(elapsed(first, last))
        """)
    )
    want_milliseconds = 50
    assert abs(said - want_milliseconds) < 0.01


def test_default_launch_takes_the_configured_time(make_machine):
    machine = make_machine(LAUNCH_NS="2000000")
    said = float(
        machine.run("""
            start(); p = alloc(4096)[1]
            first, last = event(), event()
            check(launch("aliquot_spin", u64(500_000_000)))
            check(cuda.cuEventRecord(first, None))
            for _ in range(10): check(launch("aliquot_fill", u64(p), ctypes.c_uint32(1), u64(1024)))
            check(cuda.cuEventRecord(last, None))
            say(elapsed(first, last))
        """)
    )
    want_milliseconds = 20
    assert abs(said - want_milliseconds) < 0.01


def test_copy_takes_bytes_by_link_speed(make_machine):
    machine = make_machine(LINK_GBPS="1")
    said = float(
        machine.run("""
            start(); p = alloc(32 * MIB)[1]; data = bytes(32 * MIB)
            first, last, took = event(), event(), []
            for _ in range(4):
                check(cuda.cuEventRecord(first, None)); upload(p, data); check(cuda.cuEventRecord(last, None))
                took.append(elapsed(first, last))
            say(min(took))
        """)
    )
    want_milliseconds = 32 * 1.048576
    assert want_milliseconds <= said < want_milliseconds + 200


def test_two_hogs_get_half_of_the_device_each(a_machine):
    code = """
        context = start(); builtin("aliquot_spin"); nvml = ctypes.CDLL("libnvidia-ml.so.1"); check(nvml.nvmlInit_v2())
        busy = ctypes.c_ulonglong()
        check(launch("aliquot_spin", u64(1000))); check(cuda.cuCtxSynchronize())
        say("up"); wait_for_go()
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            for _ in range(4): check(launch("aliquot_spin", u64(5_000_000)))
            check(cuda.cuCtxSynchronize())
        check(nvml.aliquot_softgpu_process_busy(os.getpid(), 0, ctypes.byref(busy)))
        say(busy.value)
    """
    hogs = [a_machine.popen(code) for _ in range(2)]
    for hog in hogs:
        assert hog.stdout.readline() == "up\n"
    for hog in hogs:
        hog.stdin.write("go\n")
        hog.stdin.flush()
    busy = [int(hog.communicate(timeout=90)[0]) for hog in hogs]
    assert 0.5 < busy[0] / busy[1] < 2


def test_stream_waits_for_the_event_of_another(a_machine):
    said = a_machine.run("""
        start(); p = alloc(4096)[1]
        a, b = vp(), vp()
        for s in (a, b): check(cuda.cuStreamCreate(ctypes.byref(s), 1))
        done = event()
        check(launch("aliquot_fill", u64(p), ctypes.c_uint32(1), u64(4), stream=a))
        check(launch("aliquot_spin", u64(500_000_000), stream=a))
        check(launch("aliquot_fill", u64(p), ctypes.c_uint32(2), u64(4), stream=a))
        check(cuda.cuEventRecord(done, a))
        say(cuda.cuEventQuery(done))
        check(cuda.cuStreamWaitEvent(b, done, 0))
        check(launch("aliquot_copy", u64(p + 512), u64(p), u64(4), stream=b))
        check(cuda.cuStreamSynchronize(b))
        say(cuda.cuEventQuery(done), download(p + 512, 4).hex())
    """)
    want_not_ready = "600"
    assert said.split("\n") == [want_not_ready, "0 02000000"]


def test_default_stream_orders_blocking_streams_and_spares_the_others(a_machine):
    said = a_machine.run("""
        start()
        blocking, free = vp(), vp()
        check(cuda.cuStreamCreate(ctypes.byref(blocking), 0)); check(cuda.cuStreamCreate(ctypes.byref(free), 1))
        check(launch("aliquot_spin", u64(900_000_000), stream=free))
        check(launch("aliquot_spin", u64(300_000_000), stream=blocking))
        mark = event(); check(cuda.cuEventRecord(mark, None))
        say(cuda.cuEventQuery(mark)); check(cuda.cuEventSynchronize(mark))
        say(cuda.cuStreamQuery(blocking), cuda.cuStreamQuery(free))
        check(cuda.cuCtxSynchronize()); say(cuda.cuStreamQuery(free))
    """)
    assert said.split("\n") == ["600", "0 600", "0"]


def test_host_function_runs_in_its_turn(a_machine):
    said = a_machine.run("""
        start(); p = alloc(4096)[1]; seen = []
        host = vp(); check(cuda.cuMemHostAlloc(ctypes.byref(host), ctypes.c_size_t(16), 0))
        function = ctypes.CFUNCTYPE(None, vp)(lambda _: seen.append(ctypes.string_at(host, 4).hex()))
        stream = vp(); check(cuda.cuStreamCreate(ctypes.byref(stream), 1))
        check(launch("aliquot_fill", u64(p), ctypes.c_uint32(0x0a0b0c0d), u64(4), stream=stream))
        check(cuda.cuMemcpyDtoHAsync_v2(host, u64(p), ctypes.c_size_t(16), stream))
        check(cuda.cuLaunchHostFunc(stream, function, None))
        check(cuda.cuStreamSynchronize(stream)); say(seen)
    """)
    assert said == "['0d0c0b0a']"


@pytest.mark.parametrize("handle", ["None", "vp(1)", "vp(2)"])
def test_default_stream_handles_synchronise(a_machine, handle):
    said = a_machine.run(f"""
        start(); check(launch("aliquot_spin", u64(5_000_000), stream={handle}))
        check(cuda.cuStreamSynchronize({handle})); say(cuda.cuStreamQuery({handle}))
    """)
    assert said == "0"


def test_destroyed_stream_finishes_its_work(a_machine):
    said = a_machine.run("""
        start(); p = alloc(4096)[1]
        stream = vp(); check(cuda.cuStreamCreate(ctypes.byref(stream), 1))
        check(launch("aliquot_spin", u64(20_000_000), stream=stream))
        check(launch("aliquot_fill", u64(p), ctypes.c_uint32(5), u64(1), stream=stream))
        check(cuda.cuStreamDestroy_v2(stream)); say(cuda.cuStreamQuery(stream))
        check(cuda.cuCtxSynchronize()); say(download(p, 4).hex())
    """)
    want_invalid_handle = "400"
    assert said.split("\n") == [want_invalid_handle, "05000000"]

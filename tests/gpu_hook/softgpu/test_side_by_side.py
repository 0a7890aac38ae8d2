"""Processes side by side on one engine, as under one MPS server: they stretch each other where they want more
multiprocessors than there are; the counters show own time alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gpu_load import Load, compile_load

sys.path.insert(0, str(Path(__file__).parent))
from crowd import Crowd, median_us

STEP_US = 40_000
SMS = 64


@pytest.fixture(scope="session")
def load_program(tmp_path_factory: pytest.TempPathFactory, native: Path) -> Path:
    return compile_load(tmp_path_factory.mktemp("load"), native / "softgpu" / "libcuda.so.1")


@pytest.fixture
def a_shared_machine(make_machine):
    return make_machine(SHARING="side-by-side", SM_COUNT=str(SMS))


def spins(grid: int, **more: int) -> Load:
    return Load(length_us=STEP_US / 10, launches=10, grid=grid, **{"steps": 10, **more})


@pytest.mark.parametrize(("grid", "want_stretch"), [(SMS // 4, 1), (SMS, 2), (SMS * 3 // 4, 1.5), (SMS * 8, 2)])
def test_launches_stretch_each_other_by_what_they_want_too_much(a_shared_machine, load_program, grid, want_stretch):
    with Crowd(a_shared_machine, load_program, *[spins(grid, steps=0)] * 2) as crowd:
        steps = crowd.go().steps_beside(10)
        want_us = STEP_US * want_stretch
        assert all(want_us * 0.9 < median_us(each) < want_us * 1.2 for each in steps)
        for own_us, member in zip(crowd.rest().busy_us(), crowd.members, strict=True):
            want_own_us = len(member.steps) * STEP_US + STEP_US / 10  # and one launch to warm up
            assert abs(own_us - want_own_us) < want_own_us * 0.01


def test_small_neighbour_takes_what_it_fills(a_shared_machine, load_program):
    with Crowd(a_shared_machine, load_program, spins(SMS), spins(SMS // 4, steps=0)) as crowd:
        own, small = crowd.members
        small.go()
        small.wait_steps(1)
        own.go()
        steps = own.wait_done()
        want_us = STEP_US * 1.25
        assert want_us * 0.9 < median_us(steps) < want_us * 1.15


def test_share_of_threads_bounds_what_a_process_gets(a_shared_machine, load_program):
    quarter = {0: {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"}}
    loads = spins(SMS, steps=3, streams=2), spins(SMS * 3 // 4, steps=6)
    with Crowd(a_shared_machine, load_program, *loads, envs=quarter) as crowd:
        bounded, free = (median_us(member.wait_done()) for member in crowd.go().members)
        assert STEP_US * 4 * 0.9 < bounded < STEP_US * 4 * 1.2
        assert STEP_US * 0.9 < free < STEP_US * 1.2


def test_higher_priority_gets_multiprocessors_first_across_processes(a_shared_machine, load_program):
    loads = spins(SMS // 2, priority=-5, steps=0), spins(SMS, priority=0)
    with Crowd(a_shared_machine, load_program, *loads) as crowd:
        high, low = crowd.members
        high.go()
        before = len(high.wait_steps(1))
        low.go()
        assert median_us(low.wait_done()) > STEP_US * 1.7
        assert median_us(high.steps[before:]) < STEP_US * 1.1


def test_killed_process_stretches_nobody_any_more(a_shared_machine, load_program):
    with Crowd(a_shared_machine, load_program, spins(SMS, steps=0), spins(SMS, steps=0)) as crowd:
        stays, goes = crowd.members
        goes.go()
        goes.wait_steps(1)
        stays.go()
        assert median_us(stays.wait_steps(8)) > STEP_US * 1.7
        goes.kill()
        count = len(stays.steps) + 2
        assert median_us(stays.wait_steps(count + 4)[count:]) < STEP_US * 1.2


def test_unknown_way_of_sharing_is_named(make_machine):
    client = make_machine(SHARING="by-halves").popen("say(cuda.cuInit(0))")
    output, errors = client.communicate(timeout=20)
    want_not_ready = 802
    assert output == f"{want_not_ready}\n"
    assert "ALIQUOT_SOFTGPU_SHARING=by-halves: expected time-slice or side-by-side" in errors


@pytest.mark.parametrize(("priority", "want_ms"), [(-5, (100, 170)), (0, (180, 400))])
def test_higher_priority_stream_goes_first_within_its_process(a_machine, priority, want_ms):
    said = a_machine.run(f"""
        start(); builtin("aliquot_spin")
        nvml = ctypes.CDLL("libnvidia-ml.so.1"); check(nvml.nvmlInit_v2()); busy = ctypes.c_ulonglong()
        low, high, begin, end = vp(), vp(), event(), event()
        check(cuda.cuStreamCreateWithPriority(ctypes.byref(low), 1, 0))
        check(cuda.cuStreamCreateWithPriority(ctypes.byref(high), 1, {priority}))
        check(launch("aliquot_spin", u64(2_000_000_000), stream=low))
        while not busy.value: check(nvml.aliquot_softgpu_process_busy(os.getpid(), 0, ctypes.byref(busy)))
        check(launch("aliquot_spin", u64(200_000_000), stream=high))  # all below is queued before its turn comes
        check(cuda.cuEventRecord(begin, high))
        for _ in range(2): check(launch("aliquot_spin", u64(50_000_000), stream=high))
        check(cuda.cuEventRecord(end, high)); say(elapsed(begin, end)); os._exit(0)
    """)
    assert want_ms[0] <= float(said) < want_ms[1]

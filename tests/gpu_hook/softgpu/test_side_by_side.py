"""Processes side by side on one engine, as under one MPS server: they stretch each other where they want more
multiprocessors than there are; the counters show own time alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gpu_load import Load, compile_load

sys.path.insert(0, str(Path(__file__).parent))
from crowd import Crowd, median_us

STEP_US = 20_000
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
    with Crowd(a_shared_machine, load_program, spins(grid), spins(grid)) as crowd:
        steps = [member.wait_done() for member in crowd.go().members]
        want_us = STEP_US * want_stretch
        assert all(want_us * 0.9 < median_us(each) < want_us * 1.2 for each in steps)
        want_own_us = 10 * STEP_US + STEP_US / 10  # and one launch to warm up
        assert all(abs(own_us - want_own_us) < want_own_us * 0.01 for own_us in crowd.busy_us())


def test_small_neighbour_takes_what_it_fills(a_shared_machine, load_program):
    with Crowd(a_shared_machine, load_program, spins(SMS), spins(SMS // 4, steps=0)) as crowd:
        steps = crowd.go().members[0].wait_done()
        want_us = STEP_US * 1.25
        assert want_us * 0.9 < median_us(steps) < want_us * 1.15


def test_share_of_threads_bounds_what_a_process_gets(a_shared_machine, load_program):
    quarter = {0: {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"}}
    loads = spins(SMS, steps=4, streams=2), spins(SMS * 3 // 4, steps=8)
    with Crowd(a_shared_machine, load_program, *loads, envs=quarter) as crowd:
        bounded, free = (median_us(member.wait_done()) for member in crowd.go().members)
        assert STEP_US * 4 * 0.9 < bounded < STEP_US * 4 * 1.2
        assert STEP_US * 0.9 < free < STEP_US * 1.2


def test_higher_priority_gets_multiprocessors_first_across_processes(a_shared_machine, load_program):
    loads = spins(SMS // 2, priority=-5), spins(SMS, priority=0, steps=0)
    with Crowd(a_shared_machine, load_program, *loads) as crowd:
        high, low = crowd.go().members
        assert median_us(high.wait_done()) < STEP_US * 1.1
        assert median_us(low.steps) > STEP_US * 1.7


def test_killed_process_stretches_nobody_any_more(a_shared_machine, load_program):
    with Crowd(a_shared_machine, load_program, spins(SMS, steps=0), spins(SMS, steps=0)) as crowd:
        stays, goes = crowd.go().members
        assert median_us(stays.wait_steps(4)[1:]) > STEP_US * 1.7
        goes.kill()
        count = len(stays.steps) + 2
        assert median_us(stays.wait_steps(count + 4)[count:]) < STEP_US * 1.2


def test_unknown_way_of_sharing_is_named(make_machine):
    client = make_machine(SHARING="by-halves").popen("say(cuda.cuInit(0))")
    output, errors = client.communicate(timeout=20)
    want_not_ready = 802
    assert output == f"{want_not_ready}\n"
    assert "ALIQUOT_SOFTGPU_SHARING=by-halves: expected time-slice or side-by-side" in errors


@pytest.mark.parametrize(("priority", "want_ms"), [(-5, (100, 120)), (0, (180, 240))])
def test_higher_priority_stream_goes_first_within_its_process(a_machine, priority, want_ms):
    said = a_machine.run(f"""
        start(); builtin("aliquot_spin")
        low, high, begin, end = vp(), vp(), event(), event()
        check(cuda.cuStreamCreateWithPriority(ctypes.byref(low), 1, 0))
        check(cuda.cuStreamCreateWithPriority(ctypes.byref(high), 1, {priority}))
        check(launch("aliquot_spin", u64(2_000_000_000), stream=low))
        check(launch("aliquot_spin", u64(200_000_000), stream=high))  # all below is queued before its turn comes
        check(cuda.cuEventRecord(begin, high))
        for _ in range(2): check(launch("aliquot_spin", u64(50_000_000), stream=high))
        check(cuda.cuEventRecord(end, high)); say(elapsed(begin, end)); os._exit(0)
    """)
    assert want_ms[0] <= float(said) < want_ms[1]

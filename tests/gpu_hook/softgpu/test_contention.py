"""Processes on one engine take turns of a time slice, as on a card in its default compute mode.

Events show the neighbours' slices; counters show own time alone.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from gpu_load import Load, compile_load

sys.path.insert(0, str(Path(__file__).parent))
from crowd import Crowd, median_us

SPIN_US = 4000
SHORT = Load(length_us=100, launches=20_000)  # a loaded host is late between steps: long ones
LONG = Load(length_us=50_000, launches=100)


@pytest.fixture(scope="session")
def load_program(tmp_path_factory: pytest.TempPathFactory, native: Path) -> Path:
    return compile_load(tmp_path_factory.mktemp("load"), native / "softgpu" / "libcuda.so.1")


@pytest.mark.parametrize("count", [2, 3])
def test_events_show_the_neighbours_slices_and_counters_own_time_alone(make_machine, load_program, count):
    spins = Load(length_us=SPIN_US, launches=10)
    with Crowd(make_machine(SWITCH_US="0"), load_program, *[spins] * count) as crowd:
        before = crowd.busy_us()
        steps = crowd.go().steps_beside(8)
        step_us = SPIN_US * spins.launches
        assert all(step_us * count * 0.8 < median_us(each) < step_us * count * 1.25 for each in steps)
        own = [after - warm for after, warm in zip(crowd.rest().busy_us(), before, strict=True)]
        assert own == [step_us * len(member.steps) for member in crowd.members]


def test_short_launches_get_as_much_device_time_as_long_ones(a_machine, load_program):
    with Crowd(a_machine, load_program, SHORT, LONG) as crowd:
        short, long = crowd.go().busy_for(1_000_000)
        assert 0.8 < short / long < 1.25


def test_short_launch_is_mostly_not_interrupted(a_machine, load_program):
    one_each = Load(length_us=200, launches=1, steps=200)
    with Crowd(a_machine, load_program, one_each, LONG) as crowd:
        lengths = sorted(step.length_us for step in crowd.go().members[0].wait_done())
        want_slice_us, want_switch_us = 2000, 50
        assert lengths[0] >= 200
        assert lengths[len(lengths) // 2] < 200 + want_slice_us + 2 * want_switch_us + 100


def test_idle_neighbour_costs_nothing(a_machine, load_program):
    work = Load(length_us=1000, launches=50, steps=4)
    with Crowd(a_machine, load_program, work, work) as crowd:
        crowd.members[0].go()
        steps = crowd.members[0].wait_done()[1:]
        want_us = 50_000  # events are floats of milliseconds, and each step begins a moment before its first launch
        assert all(want_us <= step.length_us for step in steps)
        assert min(step.length_us for step in steps) < want_us + 5000


def test_switch_between_processes_takes_its_time(make_machine, load_program):
    spins = Load(length_us=SPIN_US, launches=10)
    with Crowd(make_machine(SLICE_US="1000", SWITCH_US="1000"), load_program, spins, spins) as crowd:
        steps = crowd.go().steps_beside(6)
        want_us = 2 * 2 * SPIN_US * spins.launches  # as much for switches as for slices
        assert all(want_us * 0.8 < median_us(each) < want_us * 1.25 for each in steps)


def test_killed_process_leaves_the_engine_at_once(a_machine, load_program):
    spins = Load(length_us=SPIN_US, launches=10)
    with Crowd(a_machine, load_program, spins) as crowd:
        stuck = a_machine.popen("""
            start(); check(launch("aliquot_spin", u64(600_000_000_000))); say("spins"); signal.pause()
        """)
        try:
            assert stuck.stdout.readline() == "spins\n"
            beside = crowd.go().members[0].wait_steps(3)
        finally:
            stuck.kill()
            stuck.communicate()
        count = len(crowd.members[0].steps) + 2  # the steps that it may have had a part in
        after = crowd.members[0].wait_steps(count + 4)[count:]
        step_us = SPIN_US * spins.launches
        assert median_us(beside) > 1.5 * step_us
        assert median_us(after) < 1.25 * step_us


def test_stopped_process_does_not_keep_the_engine(a_machine, load_program):
    queued = Load(length_us=500, launches=2000)
    spins = Load(length_us=SPIN_US, launches=10)
    with Crowd(a_machine, load_program, queued, spins) as crowd:
        crowd.go().members[1].wait_steps(2)
        os.kill(crowd.members[0].pid, signal.SIGSTOP)
        (before,) = crowd.busy_us(0)
        count = len(crowd.members[1].steps) + 2
        after = crowd.members[1].wait_steps(count + 4)[count:]
        assert median_us(after) < 1.25 * SPIN_US * spins.launches
        assert crowd.busy_us(0)[0] - before <= 2 * queued.length_us  # what was at the engine runs to its end
        os.kill(crowd.members[0].pid, signal.SIGCONT)
        count = len(crowd.members[1].steps) + 2
        beside = crowd.members[1].wait_steps(count + 8)[count:]
        assert median_us(beside) > 1.5 * SPIN_US * spins.launches


@pytest.mark.parametrize("kind", ["ex", "cooperative", "graph"])
def test_every_kind_of_launch_takes_its_turns(a_machine, load_program, kind):
    loads = Load(length_us=300, launches=4000, kind=kind), LONG
    with Crowd(a_machine, load_program, *loads) as crowd:
        short, long = crowd.go().busy_for(600_000)
        assert 0.8 < short / long < 1.25


def test_launches_of_several_streams_share_their_processs_slices(a_machine, load_program):
    with Crowd(a_machine, load_program, Load(length_us=3000, launches=800, streams=4), LONG) as crowd:
        several, one = crowd.go().busy_for(600_000)
        assert 0.8 < several / one < 1.25


def test_sixteen_processes_get_equal_time(a_machine, load_program):
    with Crowd(a_machine, load_program, *[Load(length_us=1000, launches=600)] * 16) as crowd:
        busy = crowd.go().busy_for(1_000_000)
        assert sum(busy) ** 2 / (16 * sum(each**2 for each in busy)) > 0.98

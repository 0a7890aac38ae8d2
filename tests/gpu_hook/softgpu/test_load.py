"""The GPU load that other tests start: its steps last as long as its launches, of any kind."""

from __future__ import annotations

import statistics
from itertools import pairwise
from pathlib import Path

import pytest
from gpu_load import GpuLoad, Load, compile_load


@pytest.fixture(scope="session")
def load_program(tmp_path_factory: pytest.TempPathFactory, native: Path) -> Path:
    return compile_load(tmp_path_factory.mktemp("load"), native / "softgpu" / "libcuda.so.1")


@pytest.mark.parametrize("work", [0, 1], ids=["spin", "work"])
@pytest.mark.parametrize("kind", ["kernel", "ex", "cooperative", "graph"])
def test_step_of_a_load_takes_the_sum_of_its_launches(a_machine, load_program, kind, work):
    load = GpuLoad(load_program, Load(length_us=2000, launches=10, steps=3, kind=kind, work=work), a_machine.env())
    try:
        load.go()
        steps = load.wait_done()
    finally:
        load.kill()
    want_us = 20_000 * 0.99
    assert len(steps) == 3
    lengths = [step.length_us for step in steps]
    assert min(lengths) >= want_us
    assert statistics.median(lengths) < 3 * want_us
    assert all(earlier.begin_us < later.begin_us for earlier, later in pairwise(steps))


def test_load_without_end_stops_when_told(a_machine, load_program):
    load = GpuLoad(load_program, Load(length_us=500, launches=2, duty=0.5, streams=2), a_machine.env())
    try:
        load.go()
        load.wait_steps(5)
        assert len(load.stop()) >= 5
    finally:
        load.kill()

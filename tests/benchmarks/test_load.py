"""The load benchmark's own arithmetic, on numbers that can be computed by hand."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from load import in_use
from load.figures import means, percentile, slope

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MIB = float(1 << 20)


@pytest.fixture(scope="module")
def benchmark_program() -> ModuleType:
    """Load load.py, which its folder of parts hides from an import."""
    spec = importlib.util.spec_from_file_location("load_program", BENCHMARKS / "load.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["load_program"] = module
    spec.loader.exec_module(module)
    return module


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile(values, 100) == 100
    assert percentile([7.0], 99) == 7
    with pytest.raises(ValueError, match="there is none"):
        percentile([], 99)


def test_the_slope_of_a_line_is_its_own_and_certain() -> None:
    found = slope([0, 1, 2, 3], [5, 7, 9, 11])
    assert found.value == pytest.approx(2)
    assert found.margin == pytest.approx(0, abs=1e-9)
    assert found.is_growth


def test_noise_about_a_level_is_no_growth() -> None:
    found = slope(list(range(8)), [10, 11, 10, 11, 10, 11, 10, 11])
    assert found.margin > found.value > 0
    assert not found.is_growth


def test_the_interval_is_students() -> None:
    # Residuals 1, -2, 1 about a line of slope 0: s = sqrt(6 / 1), spread 2, so sqrt(6 / 2), times 12.71 of one degree.
    found = slope([0, 1, 2], [1, -2, 1])
    assert found.value == pytest.approx(0)
    assert found.margin == pytest.approx(12.71 * (6 / 2) ** 0.5)


def test_a_slope_needs_three_moments() -> None:
    with pytest.raises(ValueError, match="three"):
        slope([0, 1], [0, 1])
    with pytest.raises(ValueError, match="all are of one"):
        slope([1, 1, 1], [0, 1, 2])


def test_what_is_allocated_at_the_beginning_is_no_growth(benchmark_program: ModuleType) -> None:
    times = [18.0 * step for step in range(200)]
    values = [MIB * min(100, 50 + step) + MIB * 0.01 * (step % 2) for step in range(200)]
    assert benchmark_program.growth_rows(times, values, 3, 30)[-1].holds


@pytest.mark.parametrize("period", [25, 61, 700])
def test_garbage_that_comes_and_goes_is_no_growth(benchmark_program: ModuleType, period: int) -> None:
    times = [float(second) for second in range(3600)]
    flagged = 0
    for late in range(0, period, max(1, period // 12)):  # at any point of its way up
        values = [MIB * (100 + (second + late) % period * 8 / period) for second in range(3600)]
        assert benchmark_program.growth_rows(times, values, 3, 30)[-1].holds
        flagged += slope(times[1800:], values[1800:]).is_growth
    assert flagged or period < 700, "judged by each second some of it is taken for growth"


def test_what_fills_up_is_not_judged_before_it_is_full(benchmark_program: ModuleType) -> None:
    for seconds, holds in ((3000, None), (3600, False)):
        values = [MIB * (100 + 0.01 * second) for second in range(seconds)]
        row = benchmark_program.growth_rows([float(second) for second in range(seconds)], values, 3, 30)[-1]
        assert (row.holds, bool(row.want)) == (holds, holds is False)


def test_the_means_of_parts_are_of_equal_parts() -> None:
    assert means([1.0, 3.0, 5.0, 7.0], 2) == [2.0, 6.0]
    assert means([1.0, 2.0, 3.0], 2) == [1.0, 2.5]
    assert means([1.0, 2.0], 30) == [1.0, 2.0]
    assert means([], 30) == []


def test_a_leak_is_growth(benchmark_program: ModuleType) -> None:
    times = [18.0 * step for step in range(200)]
    values = [MIB * (100 + 0.05 * step + 0.2 * (step % 2)) for step in range(200)]
    *quarters, rate, _, verdict = benchmark_program.growth_rows(times, values, 3, 30)
    assert [round(row.value, 1) for row in quarters] == [101.3, 103.8, 106.3, 108.8]
    assert rate.value == pytest.approx(10, rel=0.02)
    assert verdict.holds is False


def test_what_a_process_has_in_use_is_told_from_inside_it(benchmark_program: ModuleType, tmp_path: Path) -> None:
    program = f"import load.in_use, time; load.in_use.note({str(tmp_path)!r}); kept = [[] for _ in range(200_000)]"
    process = subprocess.Popen([sys.executable, "-c", f"{program}; input()"], stdin=subprocess.PIPE, cwd=BENCHMARKS)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "in-use.txt").exists() or len(in_use.read(tmp_path, 1)[0]) < 1:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.communicate(b"\n")
    blocks, malloc = in_use.read(tmp_path)
    assert blocks[-1] > 200_000
    assert malloc[-1] > 1 << 20
    rows = benchmark_program.in_use_rows([1e3, 2e3, 3e3, 4e3], [MIB, 2 * MIB, 3 * MIB, 4 * MIB])
    assert [row.value for row in rows] == [1, 2, 3, 4, 1, 2, 3, 4]
    assert not any(row.want for row in rows)


def test_a_slow_answer_in_fifty_breaks_the_bound_on_the_status(benchmark_program: ModuleType) -> None:
    fast, slow = [10.0] * 98, [10.0] * 98 + [80.0] * 2
    assert all(
        row.holds is not False
        for row in benchmark_program.status_rows("x", {"user_status": fast, "admin_status": fast})
    )
    rows = benchmark_program.status_rows("x", {"user_status": fast, "admin_status": slow})
    assert [row.holds for row in rows] == [None, True, None, False]

"""Every benchmark runs: its smoke run takes seconds and judges nothing.

Those with servers have their own file.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
from smoke import BENCHMARKS, smoke_rows

ROOT = BENCHMARKS.parent
HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("program", "want_row"),
    [
        ("compute", "measured: both"),
        ("compute_gpu", "measured: production-input-bound beside opportunistic-long: slow-down, p50"),
        ("density", "reservation needs, times ours"),
        ("door", "a grant, p95"),
        ("hook", "cuLaunchKernel, added"),
        ("hook_gpu", "cuLaunchKernel, issued, bare"),
        ("plan", "500 jobs, las, counted: processor time"),
        ("swap", "wake to first launch, p95"),
        ("usage", "a month by user, slowest"),
    ],
)
def test_a_benchmark_has_a_smoke_run(program: str, want_row: str, tmp_path: Path) -> None:
    assert want_row in smoke_rows(program, tmp_path)


def test_every_benchmark_that_make_or_the_gpu_runner_names_has_a_smoke_run_in_the_tests() -> None:
    named = set(re.findall(r"benchmarks/(\w+)\.py", (ROOT / "Makefile").read_text()))
    for_gpus = re.search(r"^BENCHMARKS = \((.*)\)", (ROOT / "tools" / "gpu_tests.py").read_text(), re.MULTILINE)
    assert for_gpus is not None
    named |= set(re.findall(r'"(\w+)"', for_gpus[1]))
    tests = [*HERE.glob("test_smoke*.py"), ROOT / "tests" / "containers" / "test_benchmark.py"]
    run = {name for test in tests for name in re.findall(r'"(\w+)"', test.read_text())}
    assert named
    assert named <= run, f"no smoke run: {sorted(named - run)}"


def test_options_on_the_command_line_win_over_those_of_a_smoke_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from report import read_arguments

    def parse(*arguments: str) -> argparse.Namespace:
        monkeypatch.setattr("sys.argv", ["bench", *arguments])
        parser = argparse.ArgumentParser()
        parser.add_argument("--rounds", type=int, default=100)
        return read_arguments(parser, {"rounds": 1})

    assert parse().rounds == 100
    assert parse("--smoke").rounds == 1
    assert parse("--smoke", "--rounds", "7").rounds == 7
    assert not parse("--rounds", "7").smoke


def test_a_smoke_run_replaces_no_measurement_and_judges_no_bound(tmp_path: Path) -> None:
    from report import at_most, publish

    rows = [at_most("a bound that does not hold", 2, "s", 1)]
    assert not publish(argparse.Namespace(smoke=False, out=tmp_path), "one", "none", rows)
    measured = (tmp_path / "one.json").read_text()
    assert publish(argparse.Namespace(smoke=True, out=tmp_path), "one", "none", rows)
    assert (tmp_path / "one.json").read_text() == measured
    assert (tmp_path / "one.smoke.json").exists()

"""The harness of `make bench-gpu`'s compute part: its arithmetic, and a run on the software GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from gpu_loads.outcome import Alone, Beside, harvest_percent, rows_of, slowdown_percent
from gpu_loads.workers import Step, Worker

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "compute_gpu.py"

# The protocol of torch_load.py alone, where there may be no PyTorch: its loads are a sleep.
WITHOUT_TORCH = """
import sys, time, types
cuda = types.SimpleNamespace(synchronize=lambda: None)
sys.modules["torch"] = types.SimpleNamespace(nn=types.SimpleNamespace(Module=object), cuda=cuda, manual_seed=print)
from gpu_loads import torch_load
torch_load.LOADS["convnet"] = lambda: lambda: time.sleep(0.001)
sys.argv[1:] = ["convnet", "--pauses"]
torch_load.main()
"""


def steps(count: int, length: float) -> tuple[Step, ...]:
    return tuple(Step(number * length, length) for number in range(count))


PRODUCTION = Alone(0.6, steps(100, 10.0))
HOG = Alone(1.0, steps(200, 5.0))
PAIR = Beside("measured", "p", "o", steps(100, 11.0), steps(60, 5.0))


def test_slow_down_compares_steps_with_those_alone() -> None:
    assert slowdown_percent(PRODUCTION.steps, PAIR.steps, 0.5) == pytest.approx(10)


def test_harvest_is_what_the_other_did_of_what_production_leaves() -> None:
    assert harvest_percent(PRODUCTION, HOG, PAIR) == pytest.approx(75)  # 60 of 200 steps of the device, of 40 %


def test_where_nothing_is_left_nothing_is_harvested() -> None:
    assert harvest_percent(Alone(0.99, PRODUCTION.steps), HOG, PAIR) is None


def test_only_our_controller_has_bounds_to_hold() -> None:
    other = Beside("tgs", "p", "o", PAIR.steps, PAIR.other_steps)
    rows = rows_of({"p": PRODUCTION, "o": HOG}, [PAIR, other], has_bounds=True)
    assert {row.name.split(":")[0] for row in rows if row.want} == {"measured"}
    assert [row.holds for row in rows if row.want] == [False, False, False]


def test_a_pytorch_load_is_begun_and_ended_again(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(BENCHMARK.parent)}
    worker = Worker("torch", [sys.executable, "-c", WITHOUT_TORCH], env, tmp_path / "log", can_repeat=True)
    try:
        for _ in range(2):
            worker.start()
            worker.await_ready()
            worker.begin()
            found = worker.end()
            assert all(step.length >= 1000 for step in found)  # microseconds
            assert [step.begin for step in found] == sorted(step.begin for step in found)
    finally:
        worker.close()


def test_it_runs_on_the_software_gpu_and_needs_no_pytorch() -> None:
    command = [sys.executable, str(BENCHMARK), "--gpu", "softgpu", "--pairs", "1"]
    command += ["--seconds", "1", "--controllers", "measured"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "measured  production-input-bound" in done.stdout
    assert "dry run" in done.stdout

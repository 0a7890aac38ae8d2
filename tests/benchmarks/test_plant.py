"""The simulated GPU against results that can be computed by hand."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from compute.baselines.blocks import BlockOrder
from compute.plant import Device, OnlyMeasured, Outcome, Plant, Process
from compute.programs import MILLISECOND, STEP_OP, SYNC_OP, Workload, graph, host, launches

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import DeviceSample, Verdict

SECOND = 1_000_000_000
HOG = Workload("hog", (launches(100, 100_000), SYNC_OP, STEP_OP))
SLEEPER = Workload("sleeper", (launches(100, 200_000), SYNC_OP, STEP_OP, host(20 * MILLISECOND)))
LONG = Workload("long", (graph(50 * MILLISECOND), SYNC_OP, STEP_OP))


def run(*processes: Process, seed: int = 1, device: Device | None = None, measured: bool = True) -> Outcome:
    return Plant(processes, OnlyMeasured() if measured else None, 4 * SECOND, seed, device).run()


def test_a_step_alone_takes_the_time_of_its_launches() -> None:
    outcome = run(Process(HOG), measured=False)
    assert outcome.steps[0][7].time == 10 * MILLISECOND + Device().wake
    assert outcome.switched == 0


def test_what_is_measured_alone_is_what_was_used() -> None:
    outcome = run(Process(SLEEPER))
    assert abs(outcome.occupied[0] - outcome.own[0]) < 10 * MILLISECOND  # batches that have not ended


class LimitedBlocks:
    """A controller that lets each process launch so many blocks and no more."""

    def __init__(self, blocks: int) -> None:
        self._order = BlockOrder(allowed_blocks=blocks, batch_microseconds=1)

    def step(self, look: DeviceSample) -> Verdict:
        return Verdict({process.key: self._order for process in look.processes})


def test_a_limit_of_blocks_holds_launches_back() -> None:
    outcome = Plant([Process(HOG)], LimitedBlocks(1000 * 256), 4 * SECOND).run()
    assert outcome.launches == [1000]  # of 256 blocks each
    assert outcome.throttled[0] > 3 * SECOND


def test_two_equal_hogs_have_a_half_each() -> None:
    outcome = run(Process(HOG), Process(HOG))
    assert abs(outcome.own[0] - outcome.own[1]) <= 2 * Device().slice_


def test_a_long_launch_has_no_more_than_short_ones_under_time_slices() -> None:
    outcome = run(Process(HOG), Process(LONG))
    assert abs(outcome.own[0] - outcome.own[1]) <= 50 * MILLISECOND


def test_device_time_is_conserved() -> None:
    outcome = run(Process(HOG), Process(LONG), Process(SLEEPER, is_production=True))
    assert 4 * SECOND - 20 * MILLISECOND <= sum(outcome.own) + outcome.switched <= 4 * SECOND
    assert [sum(bins) for bins in outcome.bins] == outcome.own


def test_each_change_of_contexts_costs_a_switch() -> None:
    free = run(Process(HOG), Process(HOG), device=Device(switch_cost=0))
    dear = run(Process(HOG), Process(HOG), device=Device(switch_cost=200_000))
    assert free.switched == 0
    assert abs(dear.switched / (4 * SECOND) - 0.2 / 2.2) < 0.01


def test_measured_time_under_slices_holds_the_neighbours_slices_too() -> None:
    outcome = run(Process(HOG), Process(HOG))
    assert outcome.occupied[0] > 1.8 * outcome.own[0]


def test_side_by_side_each_is_slowed_by_the_factor() -> None:
    outcome = run(Process(LONG), Process(LONG), device=Device(slowdown=300))
    assert abs(outcome.steps[0][3].time - 65 * MILLISECOND) < MILLISECOND


def test_a_seed_gives_the_same_run_and_another_seed_another() -> None:
    pair = (Process(HOG), Process(SLEEPER, is_production=True))
    first, again, other = run(*pair, seed=3), run(*pair, seed=3), run(*pair, seed=4)
    assert first == again
    assert first.occupied != other.occupied


def test_a_process_that_ends_frees_the_device() -> None:
    outcome = run(Process(HOG, ends=2 * SECOND), Process(HOG))
    assert outcome.own_between(0, 2 * SECOND, 4 * SECOND) == 0
    assert outcome.own_between(1, 2 * SECOND, 4 * SECOND) > 1.99 * SECOND

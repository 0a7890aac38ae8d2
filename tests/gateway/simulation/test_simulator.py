"""The simulator: start overheads, node pools, figures and pictures of a run."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from jupyter_aliquot.gateway.planning.backfill import ConservativeBackfill
from jupyter_aliquot.gateway.planning.jobs import DEVICE, Job
from jupyter_aliquot.gateway.planning.queue_orders import FirstComeFirstServed, LeastAttainedService, ShortestRemaining
from jupyter_aliquot.gateway.simulation.cluster import PLACEMENTS
from jupyter_aliquot.gateway.simulation.plot import draw
from jupyter_aliquot.gateway.simulation.pools import CountedGpus
from jupyter_aliquot.gateway.simulation.simulator import Overhead, Simulation
from jupyter_aliquot.gateway.simulation.summary import element, summarize

TWO = [Job("long", 1000, 0.0, 10.0, start_overhead=2.0), Job("short", 1000, 4.0, 1.0, start_overhead=2.0)]


@pytest.mark.parametrize(
    ("overhead", "want"),
    [
        # Stopped at 4, with 6 s of work left.
        (Overhead.NONE, {"short": 5.0, "long": 11.0}),
        # Each start takes 2 s first: 2 s of work are done at 4.
        (Overhead.AT_START, {"short": 7.0, "long": 17.0}),
        # Each interval loses 2 s, but the last interval ends when the work that is left would: as published.
        (Overhead.EACH_EVENT, {"short": 5.0, "long": 13.0}),
    ],
)
def test_start_overheads_delay_as_their_mode_says(overhead: Overhead, want: dict[str, float]) -> None:
    outcome = Simulation(TWO, CountedGpus(DEVICE), ShortestRemaining(), overhead).run()
    assert {run.job.name: run.end for run in outcome.runs} == want


def test_a_job_larger_than_the_cluster_is_left_out_and_told() -> None:
    jobs = [Job("fits", 500, 0.0, 4.0), Job("large", 3000, 0.0, 4.0)]
    outcome = Simulation(jobs, PLACEMENTS["best-fit"]((2,), jobs), FirstComeFirstServed()).run()
    assert [job.name for job in outcome.never] == ["large"]
    assert summarize("fifo", outcome)["never_fits"] == 1
    assert outcome.utilization == pytest.approx(500 / 2000)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("order", [FirstComeFirstServed, LeastAttainedService, lambda: ConservativeBackfill(3000)])
def test_fragmented_devices_hold_jobs_back_but_lose_none(placement, order) -> None:
    jobs = [Job(f"{at}", milli, at / 2, 5.0 + at) for at, milli in enumerate((600, 600, 600, 1000, 2500, 400, 3000))]
    outcome = Simulation(jobs, PLACEMENTS[placement]((2, 1), jobs), order()).run()
    if placement == "none":
        assert len(outcome.runs) == 7
    assert {run.job.name for run in outcome.runs} | {job.name for job in outcome.never} == {job.name for job in jobs}
    assert max(milli for _, milli in outcome.use) <= 3000


def test_progress_is_told_to_the_end() -> None:
    told: list[tuple[int, int]] = []
    jobs = [Job(f"{at}", 1000, float(at), 0.5) for at in range(600)]
    Simulation(jobs, CountedGpus(DEVICE), FirstComeFirstServed(), on_progress=lambda *done: told.append(done)).run()
    assert told[-1] == (600, 600)
    assert len(told) > 1


def test_figures_and_picture_of_a_run() -> None:
    outcome = Simulation(TWO, CountedGpus(DEVICE), FirstComeFirstServed(), Overhead.NONE).run()
    summary = summarize("fifo", outcome)
    assert summary["mean_completion_seconds"] == (10.0 + 7.0) / 2
    assert summary["mean_wait_seconds"] == 3.0
    assert summary["utilization"] == pytest.approx(1.0)
    assert element([3.0, 1.0, 2.0], 0.99) == 3.0
    picture = ElementTree.fromstring(draw({"fifo": outcome, "<las>": outcome}))
    assert sum(node.tag.endswith("polyline") for node in picture.iter()) == 4

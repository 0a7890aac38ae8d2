"""The queue orders on cases that can be computed by hand, and what holds for every trace."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from jupyter_aliquot.gateway.planning.backfill import ConservativeBackfill, FreeCapacity
from jupyter_aliquot.gateway.planning.fair_share import FairShare
from jupyter_aliquot.gateway.planning.gittins import GittinsIndex, LargestGittinsIndex
from jupyter_aliquot.gateway.planning.jobs import DEVICE, Job
from jupyter_aliquot.gateway.planning.queue_orders import (
    FirstComeFirstServed,
    LeastAttainedService,
    QueueOrder,
    ShortestRemaining,
)
from jupyter_aliquot.gateway.simulation.pools import CountedGpus
from jupyter_aliquot.gateway.simulation.simulator import Outcome, Simulation

GPUS = 4
ORDERS = {
    "fifo": FirstComeFirstServed,
    "backfill": lambda: ConservativeBackfill(GPUS * DEVICE),
    "fair": FairShare,
    "las": lambda: LeastAttainedService((10.0, 40.0), promote_after=2.0),
    "gittins": lambda: LargestGittinsIndex(GittinsIndex([5.0, 20.0, 100.0], step=8.0), (10.0, 40.0)),
    "srtf": ShortestRemaining,
    "srsf": lambda: ShortestRemaining(by_service=True),
}


def jobs_of(*rows: tuple[float, float, float]) -> list[Job]:
    """(GPUs, submission, seconds) of each job."""
    return [Job(str(at), round(gpus * DEVICE), submit, seconds) for at, (gpus, submit, seconds) in enumerate(rows)]


def simulate(order: QueueOrder, jobs: list[Job]) -> Outcome:
    return Simulation(jobs, CountedGpus(GPUS * DEVICE), order).run()


def starts(outcome: Outcome) -> dict[str, float]:
    return {run.job.name: run.start for run in outcome.runs}


def ends(outcome: Outcome) -> dict[str, float]:
    return {run.job.name: run.end for run in outcome.runs}


def teams_of(*rows: tuple[str, float, float, float]) -> list[Job]:
    """(team, GPUs, submission, seconds) of each job."""
    return [
        Job(str(at), round(gpus * DEVICE), submit, seconds, team)
        for at, (team, gpus, submit, seconds) in enumerate(rows)
    ]


some_jobs = st.lists(
    st.builds(
        lambda gpus, submit, seconds: (gpus / 4, float(submit), float(seconds)),
        st.integers(1, 4 * GPUS),
        st.integers(0, 60),
        st.integers(1, 50),
    ),
    min_size=1,
    max_size=12,
).map(lambda rows: jobs_of(*rows))


def test_first_come_first_served_blocks_behind_a_job_that_does_not_fit() -> None:
    outcome = simulate(FirstComeFirstServed(), jobs_of((3, 0, 10), (4, 1, 10), (1, 2, 5)))
    assert starts(outcome) == {"0": 0, "1": 10, "2": 20}


def test_backfill_lets_a_small_job_pass_if_it_ends_in_time() -> None:
    outcome = simulate(ORDERS["backfill"](), jobs_of((3, 0, 10), (4, 1, 10), (1, 2, 5), (1, 2, 9)))
    assert starts(outcome) == {"0": 0, "1": 10, "2": 2, "3": 20}, "the last would delay the second"


def test_shortest_remaining_time_stops_a_longer_job() -> None:
    outcome = simulate(ShortestRemaining(), jobs_of((4, 0, 10), (4, 4, 2)))
    assert ends(outcome) == {"0": 12, "1": 6}
    assert [run.stops for run in outcome.runs] == [1, 0]


def test_remaining_service_counts_gpus() -> None:
    jobs = jobs_of((4, 0, 3), (1, 0, 5), (4, 0, 4))
    assert starts(simulate(ShortestRemaining(), jobs)) == {"0": 0, "1": 7, "2": 3}
    assert starts(simulate(ShortestRemaining(by_service=True), jobs)) == {"0": 5, "1": 0, "2": 8}


def test_a_job_beyond_the_first_limit_gives_way_to_a_new_one() -> None:
    outcome = simulate(LeastAttainedService((8.0, 100.0)), jobs_of((4, 0, 10), (4, 1, 2)))
    assert ends(outcome) == {"0": 12, "1": 4}, "8 GPU-seconds are used after 2 s"


def test_a_job_that_waited_long_comes_back_to_the_first_queue() -> None:
    # The short ones arrive as fast as they end, and none of them uses up the first queue's limit.
    rows = [(4, 0, 3), *((4, 0.9 * (at + 1), 0.9) for at in range(20))]
    without = simulate(LeastAttainedService((4.0,)), jobs_of(*rows))
    promoted = simulate(LeastAttainedService((4.0,), promote_after=2.0), jobs_of(*rows))
    assert promoted.runs[0].stops > without.runs[0].stops
    assert promoted.runs[0].end < without.runs[0].end


def test_the_gittins_index_is_the_chance_to_end_by_its_cost() -> None:
    index = GittinsIndex([2.0, 4.0, 100.0], step=4.0)
    # Within the next 4: one of 3 ends at 2, one at 4; the third costs the whole step.
    assert index.of(0.0) == pytest.approx((2 / 3) / ((2 + 4 + 4) / 3))
    assert index.of(4.0) == 0.0, "the longest past job never counts as ended"
    assert index.of(100.0) == 0.0
    with pytest.raises(ValueError, match="at least one past job"):
        GittinsIndex([])


@pytest.mark.parametrize("name", ORDERS)
@given(jobs=some_jobs)
@settings(max_examples=60, deadline=None)
def test_every_job_ends_and_no_gpu_is_used_twice(name: str, jobs: list[Job]) -> None:
    outcome = simulate(ORDERS[name](), jobs)
    assert len(outcome.runs) == len(jobs)
    assert all(0 <= milli <= GPUS * DEVICE for _, milli in outcome.use)
    for run in outcome.runs:
        assert run.start >= run.job.submit
        assert run.completion_seconds >= run.job.seconds * (1 - 1e-9)
    work = sum(job.milli * job.seconds for job in jobs)
    used = sum(milli * (until - at) for (at, milli), (until, _) in zip(outcome.use, outcome.use[1:], strict=False))
    assert used == pytest.approx(work)


@pytest.mark.parametrize("name", ORDERS)
@given(jobs=some_jobs)
@settings(max_examples=25, deadline=None)
def test_the_same_trace_gives_the_same_schedule(name: str, jobs: list[Job]) -> None:
    assert simulate(ORDERS[name](), jobs) == simulate(ORDERS[name](), jobs)


@given(jobs=some_jobs)
@settings(max_examples=80, deadline=None)
def test_no_job_starts_later_for_a_later_one_with_backfill(jobs: list[Job]) -> None:
    jobs = sorted(jobs, key=lambda job: job.submit)
    want = starts(simulate(ORDERS["backfill"](), jobs))
    for count in range(1, len(jobs)):
        alone = starts(simulate(ORDERS["backfill"](), jobs[:count]))
        assert alone == pytest.approx({name: want[name] for name in alone})


@given(jobs=some_jobs)
@settings(max_examples=60, deadline=None)
def test_backfill_starts_no_job_later_than_without(jobs: list[Job]) -> None:
    plain = starts(simulate(FirstComeFirstServed(), jobs))
    for name, start in starts(simulate(ORDERS["backfill"](), jobs)).items():
        assert start <= plain[name] + 1e-6


def test_the_team_with_the_least_of_its_share_is_served_next() -> None:
    jobs = teams_of(*(("a", 2, 0, 10) for _ in range(4)), ("b", 2, 1, 10), ("b", 2, 1, 10))
    assert starts(simulate(FirstComeFirstServed(), jobs))["4"] == 20
    assert starts(simulate(FairShare(), jobs)) == {"0": 0, "1": 0, "4": 10, "2": 10, "5": 20, "3": 20}


def test_a_team_of_twice_the_weight_has_twice_the_gpus() -> None:
    jobs = teams_of(("", 4, 0, 5), *((team, 1, 1, 10) for team in "aaaabbbb"))
    early = [one for one, start in starts(simulate(FairShare({"a": 3.0}), jobs)).items() if start == 5]
    assert sorted(early) == ["1", "2", "3", "5"], "three of a, one of b"
    with pytest.raises(ValueError, match="weight of 'a' is 0"):
        FairShare({"a": 0})


@given(jobs=some_jobs, names=st.lists(st.sampled_from("abc"), min_size=12, max_size=12))
@settings(max_examples=40, deadline=None)
def test_fair_share_starves_no_job_of_any_team(jobs: list[Job], names: list[str]) -> None:
    teamed = [replace(job, team=team) for job, team in zip(jobs, names, strict=False)]
    assert len(simulate(FairShare({"a": 2.0}), teamed).runs) == len(jobs)


def test_free_capacity_finds_the_first_gap_that_is_long_enough() -> None:
    capacity = FreeCapacity(4000, since=0.0)
    capacity.take(3000, 0.0, 10.0)
    capacity.take(4000, 15.0, 20.0)
    assert capacity.earliest(1000, 8.0, 0.0) == 0.0
    assert capacity.earliest(2000, 5.0, 0.0) == 10.0
    assert capacity.earliest(2000, 6.0, 0.0) == 20.0
    assert capacity.earliest(4001, 1.0, 0.0) == float("inf")

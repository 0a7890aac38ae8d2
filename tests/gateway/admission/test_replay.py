"""The simulator's replay against admission itself: the same jobs start, leave and end at the same moments."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from jupyter_aliquot.gateway.planning.jobs import Job
from jupyter_aliquot.gateway.scheduling.admission import Admission, KernelRef
from jupyter_aliquot.gateway.simulation.gateway_replay import GatewayReplay
from jupyter_aliquot.gateway.sizes.wish import Wish
from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.provisioner.resources import GpuShare, Request

DEVICES, COUNT = 3, 16
TEAMS = "teams:\n  a: {users: [a], nominalQuota: 2}\n  b: {users: [b], nominalQuota: 1}\n  c: {users: [c]}\n"
FILES = {
    "none": "",
    "fifo": TEAMS,
    "no backfill": f"queue: {{backfill: false}}\n{TEAMS}",
    "srtf": f"queue: {{order: srtf}}\n{TEAMS}",
    "las": f"queue: {{order: las}}\n{TEAMS}",
    "drf": f"queue: {{order: drf, placement: spread}}\n{TEAMS}",
}


def some_jobs(seed: int) -> list[Job]:
    """Return jobs whose arrivals and ends are all at moments of their own."""
    dice, now, jobs = random.Random(seed), 0.0, list[Job]()
    for at in range(COUNT):
        now += dice.expovariate(1 / 20)
        size = dice.choice((250, 500, 1000, 1000, 1500, 2000, 3000))
        jobs.append(Job(f"j{at:02}", size, now, dice.uniform(30, 300), dice.choice("abc")))
    return jobs


@dataclass
class Seen:
    """One job in admission: what remains of it, and since when it runs."""

    job: Job
    left: float
    runs_since: float | None = None
    first_start: float | None = None
    stops: int = 0

    @property
    def end(self) -> float:
        return float("inf") if self.runs_since is None else self.runs_since + self.left

    def look(self, now: float, *, is_on: bool) -> None:
        """Note whether it has its GPUs now."""
        if is_on and self.runs_since is None:
            self.runs_since = now
            self.first_start = now if self.first_start is None else self.first_start
        elif not is_on and self.runs_since is not None:
            self.left, self.runs_since, self.stops = self.left - (now - self.runs_since), None, self.stops + 1


async def played(admission: Admission, agent: Any, clock: Any, settle: Any, jobs: list[Job]) -> dict[str, Any]:
    """Play the jobs through admission as a gateway does; return the start, end and stops of each."""
    coming, there, found = sorted(jobs, key=lambda job: job.submit), dict[str, Seen](), dict[str, Any]()
    while coming or there:
        first = min([seen.end for seen in there.values()] + [job.submit for job in coming[:1]])
        await clock.advance(first - clock.now())
        for name in [name for name, seen in there.items() if seen.end <= clock.now() + 1e-9]:
            seen = there.pop(name)
            found[name] = (seen.first_start, clock.now(), seen.stops)
            await admission.release(name)
        while coming and coming[0].submit <= clock.now() + 1e-9:
            job = coming.pop(0)
            reference = KernelRef(job.name, job.team, wish=Wish(seconds=job.seconds))
            future = admission.submit(reference, Request(GpuShare(job.milli // 10)))
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            there[job.name] = Seen(job, job.seconds)
        await settle()
        await settle()
        for name, seen in there.items():
            seen.look(clock.now(), is_on=name in agent.held and name not in agent.evicted)
    return found


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("seed", range(4))
def test_a_replay_starts_stops_and_ends_jobs_when_admission_does(desk: Any, file: str, seed: int) -> None:
    jobs = some_jobs(seed)
    quotas = read_quotas(FILES[file], "aliquot.yaml") if FILES[file] else None

    async def scene() -> dict[str, Any]:
        clock = desk.clock()
        agent = desk.agent(clock, DEVICES)
        agent.evicted = set()
        async with desk.admission(agent, clock, quotas=lambda: quotas) as admission:
            return await played(admission, agent, clock, desk.settle, jobs)

    want = asyncio.run(asyncio.wait_for(scene(), 60))
    outcome = GatewayReplay(jobs, (DEVICES,), quotas).run()
    got = {run.job.name: (run.start, run.end, run.stops) for run in outcome.runs}
    assert got.keys() == want.keys()
    for name, (start, end, stops) in want.items():
        assert got[name] == (pytest.approx(start), pytest.approx(end), stops), name


def test_the_replays_that_are_compared_have_kernels_that_leave_and_return() -> None:
    quotas = read_quotas(FILES["fifo"], "aliquot.yaml")
    runs = [run for seed in range(4) for run in GatewayReplay(some_jobs(seed), (DEVICES,), quotas).run().runs]
    assert sum(run.stops for run in runs) >= 3
    assert len(runs) == 4 * COUNT


arrivals = st.lists(
    st.tuples(
        st.sampled_from((250, 500, 1000, 2000, 3000)), st.floats(0, 200), st.floats(1, 500), st.sampled_from("abc")
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(arrivals, st.sampled_from(sorted(FILES)))
def test_each_job_that_fits_ends_and_no_gpu_is_used_twice(
    drawn: list[tuple[int, float, float, str]], file: str
) -> None:
    """No starvation, whatever comes and whatever the queue's order, through the gateway's own plan."""
    jobs = [Job(f"j{at:02}", size, submit, seconds, team) for at, (size, submit, seconds, team) in enumerate(drawn)]
    quotas = read_quotas(FILES[file], "aliquot.yaml") if FILES[file] else None
    outcome = GatewayReplay(jobs, (DEVICES,), quotas).run()
    assert outcome.never == ()
    assert {run.job.name for run in outcome.runs} == {job.name for job in jobs}
    assert max(milli for _, milli in outcome.use) <= 1000 * DEVICES
    for run in outcome.runs:
        assert run.end - run.start >= run.job.seconds - 1e-6
        assert run.start >= run.job.submit
    again = GatewayReplay(jobs, (DEVICES,), quotas).run()
    assert again == outcome, "the same trace gives the same run"


def test_a_job_that_its_team_may_never_hold_is_left_out_and_holds_up_no_other() -> None:
    quotas = read_quotas("teams:\n  a: {nominalQuota: 1, borrowingLimit: 1}\n  b: {nominalQuota: 1}\n", "aliquot.yaml")
    jobs = [Job("too-much", 3000, 0.0, 10.0, "a"), Job("fits", 2000, 1.0, 10.0, "a"), Job("large", 9000, 2.0, 9.0, "b")]
    outcome = GatewayReplay(jobs, (DEVICES,), quotas).run()
    assert {job.name for job in outcome.never} == {"too-much", "large"}
    assert [(run.job.name, run.start, run.end) for run in outcome.runs] == [("fits", 1.0, 11.0)]


def test_start_overheads_and_progress_are_counted() -> None:
    jobs = [Job("k", 1000, 0.0, 10.0, start_overhead=2.0)]
    told: list[tuple[int, int]] = []
    with_it = GatewayReplay(jobs, (1,), None, on_progress=lambda *done: told.append(done)).run()
    without = GatewayReplay(jobs, (1,), None, has_overhead=False).run()
    assert ([run.end for run in (*with_it.runs, *without.runs)], told[-1]) == ([12.0, 10.0], (1, 1))


def test_a_kernel_that_borrows_leaves_when_its_least_run_time_is_over_also_where_rounding_shortens_it() -> None:
    least, begin = 135.2, 84743.0
    assert begin + least - begin < least
    teams = f"a: {{users: [a], reclaimMinRuntime: {least}s}}, b: {{users: [b], nominalQuota: 1, borrowingLimit: 0}}"
    jobs = [Job("j1", 1000, begin, 10000.0, "a"), Job("j2", 1000, begin + 31.0, 50.0, "b")]
    found = GatewayReplay(jobs, [1], read_quotas(f"teams: {{{teams}}}\n", "aliquot.yaml")).run()
    assert {run.job.name: run.start for run in found.runs}["j2"] == pytest.approx(begin + least, abs=1e-6)

"""The arithmetic of the comparison of controllers, on cases computed by hand; and TGS in it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from compute import tables
from compute.clairvoyant import most_harvest
from compute.controllers import OURS, TGS
from compute.opportunistic import OPPORTUNISTIC
from compute.pairs import Pair, measure, slowdown
from compute.plant import Step
from compute.production import PRODUCTION
from compute.programs import MILLISECOND, SECOND, Workload, graph, launches
from compute.rows import of_pair

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import Interval

PAUSES = [Interval(20 * MILLISECOND * number, 20 * MILLISECOND * number + 10 * MILLISECOND) for number in range(100)]
STEP = 20 * MILLISECOND


def test_short_launches_can_fill_a_pause_but_for_the_switch() -> None:
    short = Workload("short", (launches(100, 100_000),))
    assert 0.97 <= most_harvest(PAUSES, short, STEP) <= 1.0


def test_nobody_can_harvest_by_launches_longer_than_pause_and_slack() -> None:
    assert most_harvest(PAUSES, Workload("long", (graph(24 * MILLISECOND),)), STEP) == 0


def test_a_launch_of_most_of_a_pause_fits_once() -> None:
    assert abs(most_harvest(PAUSES, Workload("one", (graph(6 * MILLISECOND),)), STEP) - 0.6) < 0.02


def test_steps_of_several_kinds_are_compared_with_their_own() -> None:
    before = [Step(1, 10, 0), Step(2, 1000, 1)] * 10
    after = [Step(1, 11, 0), Step(2, 1500, 1)] * 10
    assert slowdown(before, after, 0.5) == 0.5


def test_there_are_six_by_six_pairs_with_and_without_idle_time() -> None:
    assert len(OPPORTUNISTIC) >= 6
    assert sum(name.endswith(".idle") for name in PRODUCTION) >= 6
    assert sum(not name.endswith(".idle") for name in PRODUCTION) >= 6


def test_we_harvest_what_tgs_does_not_after_its_minutes() -> None:
    ours = measure("resnet50.idle", "gpt2", OURS, span=15 * SECOND)
    theirs = measure("resnet50.idle", "gpt2", TGS, span=15 * SECOND)
    assert theirs.harvest < 0.3
    assert ours.harvest > 2 * theirs.harvest


def test_what_does_not_hold_is_shown_as_such(tmp_path: Path) -> None:
    held = Pair("a.idle", "b", OURS, 0.01, 0.02, 100, 0.4, 0.85, 0.9)
    pairs = {
        (held.name, OURS): held,
        (held.name, TGS): replace(held, controller=TGS, harvest=0.9),
    }
    assert [row.holds for row in of_pair(pairs, held.name)[:3]] == [True, True, False]
    tables.write(tmp_path / "pairs.md", pairs)
    assert "NO: less harvest than TGS" in (tmp_path / "pairs.md").read_text()

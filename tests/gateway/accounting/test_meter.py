"""The meter from one look to the next: times by place, GPU time by counters, each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_aliquot.gateway.accounting.looks import Place

from .life import ALICE, HOUR, NOON, Life, part, request, settings


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """A life whose first look has seen an empty node."""
    made = Life(settings(tmp_path / "accounting.sqlite"))
    made.look()
    return made


def test_time_is_the_size_times_the_time_at_each_place(life: Life) -> None:
    life.look([part()])
    life.go(2 * HOUR)
    life.look([part(own=HOUR // 4)])
    life.look([part(own=HOUR // 4, place=Place.SWAPPED_OUT, since=life.wall)])
    life.go(4 * HOUR)
    life.look([part(own=HOUR // 4, place=Place.SWAPPED_OUT, since=NOON + 2 * HOUR)])
    [hours] = life.hours().values()
    want = {"working": 0.25, "idle": 0.25, "on_gpu": 0.5, "swapped_out": 1.0, "held": 1.5, "waiting": 0.0}
    assert {name: hours[name] for name in want} == want
    assert hours["charged"] == 1.5


def test_a_look_at_kernels_that_came_says_nothing_of_others(life: Life) -> None:
    life.look([part("k1", hundredths=100)])
    life.go(HOUR)
    life.look([part("k2", hundredths=100, began=life.wall - HOUR // 2)], has_only_new=True)
    life.go(HOUR)
    life.look([part("k1", hundredths=100), part("k2", hundredths=100, began=life.wall - 3 * HOUR // 2)])
    [hours] = life.hours().values()
    assert hours["on_gpu"] == 2.0 + 1.5


def test_a_move_between_two_looks_is_counted_from_when_it_was(life: Life) -> None:
    life.look([part(hundredths=100)])
    life.go(4 * HOUR)
    life.look([part(hundredths=100, place=Place.SWAPPED_OUT, since=NOON + 3 * HOUR)])
    [hours] = life.hours().values()
    assert (hours["on_gpu"], hours["swapped_out"]) == (3.0, 1.0)


def test_a_request_counts_as_waiting_from_when_it_was_queued(life: Life) -> None:
    life.go(HOUR)
    life.look((), [request(hundredths=200, began=NOON + HOUR // 2)])
    life.go(HOUR)
    life.look((), [request(hundredths=200, began=NOON + HOUR // 2)])
    [hours] = life.hours().values()
    assert (hours["waiting"], hours["charged"]) == (3.0, 0.0)


def test_a_kernel_that_began_between_two_looks_is_counted_from_its_beginning(life: Life) -> None:
    life.go(HOUR)
    life.look([part(hundredths=100, began=NOON + HOUR // 4, own=HOUR // 2)])
    [hours] = life.hours().values()
    assert (hours["on_gpu"], hours["working"]) == (0.75, 0.5)


def test_a_new_file_does_not_count_what_was_before_it(tmp_path: Path) -> None:
    life = Life(settings(tmp_path / "accounting.sqlite"))
    life.look([part(hundredths=100, began=NOON - 9 * HOUR, own=5 * HOUR)])
    life.go(HOUR)
    life.look([part(hundredths=100, began=NOON - 9 * HOUR, own=5 * HOUR + HOUR // 2)])
    [hours] = life.hours().values()
    assert (hours["on_gpu"], hours["working"]) == (1.0, 0.5)


def test_an_agent_that_was_restarted_counts_from_zero_and_nothing_is_counted_twice(life: Life) -> None:
    life.look([part(own=0)])
    life.go(HOUR)
    life.look([part(own=HOUR // 2)])
    life.agent = "2.000000"
    life.look(None)
    life.go(HOUR)
    # It has counted more than the earlier one by now, all of it new.
    life.look([part(own=HOUR // 2 + HOUR // 4)])
    [hours] = life.hours().values()
    assert (hours["working"], hours["on_gpu"]) == (0.5 + 0.75, 0.5)


def test_without_counters_of_its_own_the_drivers_count_is_taken(life: Life) -> None:
    life.look([part(busy=0)])
    life.go(HOUR)
    life.look([part(busy=HOUR // 2)])
    life.look([part(busy=HOUR // 2, own=0)])
    life.go(HOUR)
    life.look([part(busy=HOUR, own=HOUR // 4)])
    [hours] = life.hours().values()
    assert hours["working"] == 0.75


def test_no_device_counts_more_time_than_there_was(life: Life) -> None:
    life.look([part(own=0)])
    life.go(HOUR)
    life.look([part(own=1 << 60)])
    life.go(HOUR)
    life.look([part(own=1 << 60)])
    [hours] = life.hours().values()
    assert 2.0 <= hours["working"] < 2.01


def test_an_agent_that_was_away_leaves_no_gap(life: Life) -> None:
    life.look([part(hundredths=100, own=0)])
    for _ in range(4):
        life.go(HOUR)
        life.look(None)
    life.look([part(hundredths=100, own=HOUR)])
    [hours] = life.hours().values()
    assert (hours["on_gpu"], hours["working"]) == (4.0, 1.0)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_gateway_that_comes_back_counts_the_time_between_once(life: Life, is_killed: bool) -> None:
    life.look([part(hundredths=100, own=0)])
    for hour in range(1, 4):
        life.go(HOUR)
        life.look([part(hundredths=100, own=hour * HOUR // 2)])
    if is_killed:
        life.begin()
    else:
        life.restart()
    life.go(2 * HOUR)
    life.look([part(hundredths=100, own=2 * HOUR)])
    life.go(HOUR)
    life.look([part(hundredths=100, own=3 * HOUR)])
    [hours] = life.hours().values()
    assert (hours["on_gpu"], hours["working"]) == (6.0, 3.0)


def test_a_gateway_that_is_killed_between_two_writes_counts_what_it_had_not_written(tmp_path: Path) -> None:
    life = Life(settings(tmp_path / "accounting.sqlite", write_seconds=2.5 * HOUR / 1000))
    life.look()
    for hour in range(1, 12):
        life.go(HOUR)
        life.look([part(hundredths=100, own=hour * HOUR // 4)])
        if hour in (4, 5, 8):
            life.begin()
    [hours] = life.hours().values()
    assert (hours["on_gpu"], hours["working"]) == (11.0, 11 / 4)


@pytest.mark.parametrize("step", [-5 * HOUR, 9 * 24 * HOUR])
def test_a_clock_that_was_set_adds_and_takes_no_time(life: Life, step: int) -> None:
    life.look([part(hundredths=100, own=0)])
    life.go(HOUR)
    life.look([part(hundredths=100, own=0)])
    life.wall += step
    life.restart()
    life.go(HOUR)
    life.look([part(hundredths=100, own=HOUR)])
    life.wall -= step
    life.go(HOUR)
    life.look([part(hundredths=100, own=HOUR)])
    assert life.ask()["total"]["on_gpu"] == 3.0


def test_a_machine_that_was_started_again_counts_its_new_kernels_alone(life: Life) -> None:
    life.look([part(hundredths=100)])
    life.go(HOUR)
    life.look([part(hundredths=100)])
    life.boot, life.monotonic = "boot 2", 1000
    life.wall += 9 * HOUR
    life.begin()
    life.look()
    life.go(HOUR)
    life.look([part("k2", hundredths=100, began=life.wall - HOUR // 2)])
    assert life.ask()["total"]["on_gpu"] == 1.5


def test_a_kernel_that_the_agent_lists_again_is_the_same_one(life: Life) -> None:
    life.look([part(hundredths=100, own=0)])
    life.go(HOUR // 10)
    life.look([part(hundredths=100, own=HOUR // 20)])
    life.look()
    life.go(HOUR // 20)
    life.look([part(hundredths=100, own=HOUR // 10)])
    [hours] = life.hours().values()
    assert (hours["on_gpu"], hours["working"]) == (0.15, 0.1)


def test_a_kernel_on_two_devices_counts_on_each(life: Life) -> None:
    other = ALICE._replace(model="A100")
    both = [part(hundredths=100, own=0), part(hundredths=50, own=0, device="GPU-2", subject=other)]
    life.look(both)
    life.go(HOUR)
    life.look([part(hundredths=100, own=HOUR), part(hundredths=50, own=HOUR // 4, device="GPU-2", subject=other)])
    hours = life.hours("model")
    assert {name: (one["on_gpu"], one["working"]) for name, one in hours.items()} == {
        "H200": (1.0, 1.0),
        "A100": (0.5, 0.25),
    }


def test_a_size_that_changes_is_counted_as_each_was(life: Life) -> None:
    larger = ALICE._replace(size="1")
    life.look([part()])
    life.go(HOUR)
    life.look([part(hundredths=100, subject=larger)])
    life.go(HOUR)
    life.look([part(hundredths=100, subject=larger)])
    assert {name: one["on_gpu"] for name, one in life.hours("size").items()} == {"0.25": 0.25, "1": 1.0}


@pytest.mark.parametrize("is_listed_late", [False, True])
def test_an_agent_that_was_long_away_leaves_no_gap_though_its_kernels_rejoin_late(
    life: Life, is_listed_late: bool
) -> None:
    life.look([part(hundredths=100, own=0)])
    life.go(HOUR)
    life.look([part(hundredths=100, own=0)])
    life.look(None)
    life.go(HOUR)
    life.agent = "2.000000"
    if is_listed_late:
        life.look([])
        life.go(HOUR // 10)
    life.look([part(hundredths=100, own=0)])
    assert life.ask()["total"]["on_gpu"] == (2.1 if is_listed_late else 2.0)


def test_a_kernel_that_is_missing_for_longer_has_ended(life: Life) -> None:
    life.look([part(hundredths=100, own=0)])
    for _ in range(4):
        life.go(HOUR // 10)
        life.look([])
    life.look([part(hundredths=100, own=0)])
    assert life.ask()["total"]["on_gpu"] == 0.0


def test_a_node_that_is_away_loses_no_time_while_another_answers(life: Life) -> None:
    here, there = part("k1", device="GPU-1"), part("k2", device="GPU-2", agent="gpu-b 1", own=0)
    life.look([here, there])
    life.go(HOUR)
    life.look([here], away=frozenset({"gpu-b"}))
    life.go(HOUR)
    life.look([here], away=frozenset({"gpu-b"}))
    life.go(2 * HOUR)
    life.look([here, part("k2", device="GPU-2", agent="gpu-b 1", own=HOUR)])
    [hours] = life.hours().values()
    assert (hours["on_gpu"], hours["working"]) == (2.0, 1.0), "four hours of two quarters, one of them at work for one"


def test_a_kernel_that_an_answering_node_does_not_list_ends_while_another_node_is_away(life: Life) -> None:
    both = [part("k1", device="GPU-1"), part("k2", device="GPU-2", agent="gpu-b 1")]
    life.look(both)
    for _ in range(3):
        life.go(HOUR)
        life.look([], away=frozenset({"gpu-b"}))
    life.look(both)
    [hours] = life.hours().values()
    assert hours["on_gpu"] == 0.75, "the one whose node was away alone"


def test_a_device_that_an_answering_node_lists_no_more_has_lost_its_kernels(life: Life) -> None:
    here, there = part("k1", device="GPU-1"), part("k2", device="GPU-2", agent="gpu-b 1")
    life.look([here, there])
    for _ in range(3):
        life.go(HOUR)
        life.look([here], away=frozenset({"gpu-c"}))
    life.look([here, there])
    [hours] = life.hours().values()
    assert hours["on_gpu"] == 0.75, "the first kernel's alone: the second returns after hours without a GPU"


def test_a_kernel_that_gets_the_same_device_on_another_node_was_not_on_it_between(life: Life) -> None:
    here = part("k1", device="GPU-1")
    life.look([here, part("k2", device="GPU-2", agent="holder-a 1")])
    for _ in range(3):
        life.go(HOUR)
        life.look([here], away=frozenset({"holder-a"}))
    again = part("k2", device="GPU-2", agent="holder-b 1")
    life.look([here, again], away=frozenset({"holder-a"}))
    life.go(HOUR)
    life.look([here, again], away=frozenset({"holder-a"}))
    [hours] = life.hours().values()
    assert hours["on_gpu"] == 1.25, "four hours of the first kernel, and one of the second"


def test_each_agent_has_counters_of_its_own(life: Life) -> None:
    for own in (0, HOUR // 2):
        life.look([part("k1", own=own), part("k2", device="GPU-2", agent="gpu-b 1", own=own)])
        life.go(HOUR)
    life.look([part("k1", own=HOUR // 2), part("k2", device="GPU-2", agent="gpu-b 2", own=HOUR // 4)])
    [hours] = life.hours().values()
    assert hours["working"] == 1.25, "the second run of the other agent has counted from zero"

"""The table of samples: expected times, the launches to measure, and the slowdown from both."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage, HookPage

MS = 1_000_000
SECOND = 1000 * MS
FUNCTION = 0x7F12_3456_7890
LIFE = 120 * SECOND
SOLO, SHARED = (7, 7), (6, 6)
GRID_CLASSES = 32


class Table:
    """samples.c, and a clock that moves 1 ms with each sample."""

    def __init__(self, parts: Any, sample: Any) -> None:
        self._parts, self._sample = parts, sample
        self._calls = parts.library
        self._calls.samples_expect.restype = ctypes.c_uint64
        self._calls.samples_should_sample.restype = ctypes.c_bool
        self.now = 1000 * SECOND

    def take(
        self,
        nanoseconds: int,
        windows: tuple[int, int] = SHARED,
        function: int = FUNCTION,
        grid_class: int = 5,
        device: int = 0,
        has_overlapped: bool = False,
    ) -> None:
        self.now += MS
        sample = self._sample(function, grid_class, has_overlapped, nanoseconds, *windows)
        self._calls.samples_take(device, ctypes.byref(sample), ctypes.c_uint64(self.now))

    def expect(self, function: int = FUNCTION, grid_class: int = 5, device: int = 0) -> int:
        return int(self._calls.samples_expect(device, ctypes.c_void_p(function), grid_class))

    def asks(self, launches: int, function: int = FUNCTION, grid_class: int = 5, device: int = 0) -> list[int]:
        """Return the numbers of the launches that are to be measured."""
        ask = self._calls.samples_should_sample
        return [i for i in range(launches) if ask(device, ctypes.c_void_p(function), grid_class)]

    def open_window(self, number: int, device: int = 0) -> None:
        self._parts.agent_word(AgentPage.SOLO_WINDOW, device).value = number

    def forget(self, graph: int) -> None:
        self._calls.samples_forget(ctypes.c_void_p(graph))

    def stretch(self, device: int = 0) -> float:
        solo = self._parts.hook_word(HookPage.SAMPLED_SOLO, device)
        return self._parts.hook_word(HookPage.SAMPLED, device) / solo if solo else 0.0

    def samples(self, device: int = 0) -> int:
        return int(self._parts.hook_half(HookPage.SAMPLES, device))

    def without_baseline(self, device: int = 0) -> int:
        return int(self._parts.hook_half(HookPage.WITHOUT_BASELINE, device))

    def reset(self) -> None:
        self._calls.samples_reset()


@pytest.fixture
def table(make_parts: Callable[..., Any], hook_parts: Any) -> Iterator[Table]:
    made = Table(make_parts("samples.c", "baselines.c"), hook_parts.Sample)
    yield made
    made.reset()


def test_what_was_never_measured_is_not_known(table: Table) -> None:
    assert table.expect() == 0
    table.take(5000)
    assert table.expect() == 5000
    assert table.expect(grid_class=6) == table.expect(function=FUNCTION + 16) == table.expect(device=1) == 0


def test_what_is_expected_follows_what_is_measured(table: Table) -> None:
    for _ in range(20):
        table.take(5000)
    assert 5000 <= table.expect() <= 5005
    for _ in range(8):
        table.take(100_000)
    assert 95_000 <= table.expect() <= 100_005


def test_the_first_launches_of_a_pair_are_measured_and_then_one_in_64(table: Table) -> None:
    asked = table.asks(64_000)
    assert asked[:4] == [0, 1, 2, 3]
    assert len(asked) == pytest.approx(1004, abs=3)
    gaps = [later - earlier for earlier, later in pairwise(asked[4:])]
    assert 30 < min(gaps) < max(gaps) < 100
    assert table.asks(3, grid_class=6) == [0, 1, 2]
    assert table.asks(3, device=15) == [0, 1, 2]


@pytest.mark.parametrize("period", [2, 8, 32, 50, 64, 96, 200, 256])
def test_no_period_of_a_program_hides_a_launch(table: Table, period: int) -> None:
    assert {launch % period for launch in table.asks(256 * period)[4:]} == set(range(period))


def test_each_window_is_used_for_a_few_samples_of_each_pair(table: Table) -> None:
    assert table.asks(5) == [0, 1, 2, 3]
    table.open_window(3)
    assert table.asks(6) == [0, 1, 2]
    table.open_window(4)
    assert table.asks(6) == []
    table.open_window(5)
    assert table.asks(6) == [0, 1, 2]
    table.open_window(6)
    table.open_window(7, device=1)
    assert table.asks(6) == []  # each device has windows of its own


@pytest.mark.parametrize("windows", [(6, 6), (6, 7), (7, 8), (7, 9), (0, 0)])
def test_only_a_sample_that_lies_in_one_window_is_alone(table: Table, windows: tuple[int, int]) -> None:
    table.take(1000, windows)
    table.take(3000, SHARED)
    assert (table.stretch(), table.samples()) == (0.0, 2)
    table.take(1000, SOLO)
    table.take(3000, SHARED)
    assert table.stretch() == 3.0


@pytest.mark.parametrize("planted", [1.0, 1.05, 2.0, 7.5])
def test_stretch_is_the_contention_that_was_planted(table: Table, planted: float) -> None:
    chance = random.Random(5)
    pairs = [(FUNCTION + 64 * i, i % GRID_CLASSES, chance.randrange(20_000, 5 * MS)) for i in range(40)]
    for number in (1, 3, 5):
        for function, grid_class, alone in pairs:
            jitter = int(alone * chance.uniform(0.99, 1.01))
            table.take(jitter, (number, number), function=function, grid_class=grid_class)
    for _ in range(25):
        for function, grid_class, alone in pairs:
            table.take(int(alone * planted * chance.uniform(0.99, 1.01)), function=function, grid_class=grid_class)
    assert table.stretch() == pytest.approx(planted, rel=0.01)


def test_a_single_strange_sample_moves_no_baseline(table: Table) -> None:
    for nanoseconds in (100_000, 101_000, 900_000, 99_000, 100_500):
        table.take(nanoseconds, SOLO)
    table.take(200_000)
    assert table.stretch() == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize("strange", [0, 2**63, 2**64 - 1, 601 * SECOND])
def test_garbage_is_no_sample(table: Table, strange: int) -> None:
    table.take(100_000, SOLO)
    table.take(strange, SOLO)
    table.take(strange)
    table.take(1000, function=0)
    assert (table.samples(), table.expect()) == (1, 100_000)
    for device in (-1, 16, 1 << 20):
        table.take(1000, device=device)
        assert table.asks(2, device=device) == []


def test_a_sample_beside_other_work_of_the_process_says_only_how_long_it_may_take(table: Table) -> None:
    table.take(9000, SOLO, has_overlapped=True)
    table.take(8000, SOLO, has_overlapped=True)
    table.take(9500, SOLO, has_overlapped=True)
    assert (table.expect(), table.samples(), table.stretch()) == (8000, 0, 0.0)
    table.take(3000, SOLO)
    table.take(8000, has_overlapped=True)
    assert (table.expect(), table.samples(), table.stretch()) == (3000, 1, 0.0)


def test_a_slower_function_under_the_same_handle_gets_its_baseline_in_one_window(table: Table) -> None:
    for _ in range(8):
        table.take(100_000, SOLO)
    for _ in range(3):
        table.take(700_000, (9, 9))
    before = table.stretch()
    assert before == 0.0
    for _ in range(10):
        table.take(700_000)
    assert table.stretch() == 1.0


def test_a_faster_function_under_the_same_handle_loses_the_old_baseline_without_any_window(table: Table) -> None:
    table.asks(8)
    for _ in range(8):
        table.take(700_000, SOLO)
    for _ in range(200):
        table.take(100_000)
    assert table.stretch() == pytest.approx(1 / 7, rel=0.01)  # the few by which it was found
    assert table.without_baseline() == 1
    for _ in range(3):
        table.take(100_000, (9, 9))
    for _ in range(4000):
        table.take(150_000)
    assert table.stretch() == pytest.approx(1.5, rel=0.01)


def test_an_old_baseline_counts_no_longer(table: Table) -> None:
    table.take(100_000, SOLO)
    table.now += LIFE - 2 * MS
    table.take(200_000)
    assert table.stretch() == 2.0
    table.now += 2 * MS
    table.take(900_000)
    assert table.stretch() == 2.0


def test_a_pair_whose_launches_do_different_things_says_nothing_about_contention(table: Table) -> None:
    table.asks(100)
    for index in range(16):
        table.take((100_000, 300_000)[index % 2], SOLO)
    for index in range(200):
        table.take((100_000, 300_000)[index % 2])
    assert table.stretch() == 0.0
    assert table.without_baseline() == 0  # another window would not help


def test_pairs_in_use_that_lack_a_baseline_are_counted(table: Table) -> None:
    for index in range(5):
        table.asks(20, function=FUNCTION + 64 * index)
        table.take(1000, function=FUNCTION + 64 * index)
        assert table.without_baseline() == index + 1
    table.take(1000, function=FUNCTION + 64 * 9)  # launched once: it is not worth a window
    assert table.without_baseline() == 5
    table.take(1000, SOLO)
    assert table.without_baseline() == 4  # at once, for a window lasts no longer than it must
    table.now += 11 * SECOND
    table.take(1000)
    assert table.without_baseline() == 0  # the others are in use no longer
    table.now += LIFE
    table.take(1000)
    assert table.without_baseline() == 1  # its baseline is too old


def test_pairs_that_are_forgotten_lack_nothing(table: Table) -> None:
    for index in range(3000):
        function = 0x1000_0000 + 16 * index
        table.asks(8, function=function, grid_class=0)
        table.take(1000, function=function, grid_class=0)
        assert table.without_baseline() <= 1024
    for index in range(3000):
        table.forget(0x1000_0000 + 16 * index)
    table.take(1000)
    assert table.without_baseline() == 0


def test_a_full_table_forgets_who_was_measured_longest_ago(table: Table) -> None:
    kept = FUNCTION
    table.take(5000, SOLO)
    for index in range(20_000):
        table.take(1000, function=0x1000_0000 + 16 * index)
        if index % 2 == 0:
            table.take(5000, function=kept)
    assert table.expect() >= 5000
    assert table.stretch() == 1.0
    known = sum(table.expect(function=0x1000_0000 + 16 * index) > 0 for index in range(20_000))
    assert 500 < known <= 1024
    newest = sum(table.expect(function=0x1000_0000 + 16 * index) > 0 for index in range(19_700, 20_000))
    assert newest > 290  # what is forgotten is old


def test_the_same_launches_give_the_same_table(make_parts: Callable[..., Any], hook_parts: Any) -> None:
    def walk() -> list[Any]:
        table = Table(make_parts("samples.c", "baselines.c"), hook_parts.Sample)
        chance = random.Random(11)
        found: list[Any] = []
        for _ in range(6000):
            function = 0x5000_0000 + 16 * chance.randrange(3000)
            table.open_window(chance.randrange(8))
            found += [table.asks(2, function=function), table.expect(function)]
            table.take(chance.randrange(1, MS), (chance.randrange(2),) * 2, function=function)
        found += [table.stretch(), table.samples(), table.without_baseline()]
        table.reset()
        return found

    assert walk() == walk()


def test_a_graph_that_ended_leaves_nothing_to_the_next_one(table: Table) -> None:
    table.take(4 * MS, SOLO, grid_class=0)
    table.forget(FUNCTION)
    assert table.expect(grid_class=0) == 0
    table.take(MS, grid_class=0)
    assert (table.expect(grid_class=0), table.stretch()) == (MS, 0.0)


def test_devices_share_nothing(table: Table) -> None:
    table.take(1000, SOLO)
    table.take(2000)
    table.take(5000, SOLO, device=1)
    table.take(5000, device=1)
    assert (table.stretch(0), table.stretch(1), table.samples(0), table.samples(1)) == (2.0, 1.0, 2, 2)


def test_the_grid_class_is_the_logarithm_of_the_blocks(make_parts: Callable[..., Any], tmp_path: Path) -> None:
    source = tmp_path / "grid_class.c"
    body = "unsigned of(uint64_t blocks) { return samples_grid_class(blocks); }"
    source.write_text(f'#include "compute/samples.h"\n{body}\n')
    grid_class = make_parts(source).library.of
    want = {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, (1 << 20) - 1: 19, 1 << 20: 20, 2**64 - 1: GRID_CLASSES - 1}
    assert {blocks: grid_class(ctypes.c_uint64(blocks)) for blocks in want} == want

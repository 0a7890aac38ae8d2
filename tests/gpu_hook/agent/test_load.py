"""The load of a kernel: what it uses of its device while it works there, alone where that was seen."""

from __future__ import annotations

import pytest

from jupyter_aliquot.gpu_hook.agent.kernels.load import ENOUGH_SECONDS, HALF_LIFE_SECONDS, Load, LoadMeter


def test_a_kernel_without_work_has_no_load() -> None:
    meter = LoadMeter()
    meter.add(0.0, 0.0, 1.0, is_alone=True)
    meter.add(0.5, 0.1, 0.0, is_alone=True)
    assert meter.load is None


def test_idle_looks_do_not_count() -> None:
    meter = LoadMeter()
    for busy in (0.8, 0.0, 0.0, 0.0, 0.6):
        meter.add(busy, busy / 2, 1.0, is_alone=True)
    assert meter.load == Load(0.7, 0.35, 2, True)


def test_what_it_uses_alone_comes_before_what_others_leave_it() -> None:
    meter = LoadMeter()
    meter.add(0.3, 0.0, 1.0, is_alone=False)
    assert meter.load == Load(0.3, 0.0, 1, False)
    for _ in range(int(ENOUGH_SECONDS)):
        assert meter.load is not None
        assert not meter.load.is_alone
        meter.add(0.9, 0.0, 1.0, is_alone=True)
    assert meter.load == Load(0.9, 0.0, 3, True)


def test_after_a_half_life_of_work_a_look_counts_half() -> None:
    meter = LoadMeter()
    meter.add(1.0, 0.0, 1.0, is_alone=True)
    meter.add(0.0001, 0.0, HALF_LIFE_SECONDS, is_alone=True)
    assert meter.load is not None
    assert meter.load.gpu == pytest.approx(0.5 / (0.5 + HALF_LIFE_SECONDS), abs=0.01)


def test_no_load_exceeds_the_device() -> None:
    meter = LoadMeter()
    meter.add(1.7, 2.0, 1.0, is_alone=True)
    assert meter.load == Load(1.0, 1.0, 1, True)

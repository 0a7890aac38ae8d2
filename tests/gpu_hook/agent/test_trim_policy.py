"""The times when an idle kernel is asked to return its frameworks' caches."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Activity
from jupyter_aliquot.gpu_hook.agent.swap.table import KernelState
from jupyter_aliquot.gpu_hook.agent.trimming.policy import TrimPolicy, TrimView, add_trim_arguments, is_trim_due

POLICY = TrimPolicy(idle_seconds=20.0, least_bytes=100)
QUIET = Activity(open=0, work=0, since=1_700_000_000.0)
DUE = TrimView(QUIET, idle_since=50.0, state=KernelState.RESIDENT, held_bytes=100, has_neighbours=True)


def test_a_kernel_is_asked_after_it_was_idle_for_long_enough() -> None:
    assert is_trim_due(DUE, 70.0, POLICY)
    assert not is_trim_due(DUE, 69.9, POLICY)
    assert not is_trim_due(replace(DUE, idle_since=None), 1e9, POLICY)


def test_it_is_asked_once_in_a_quiet_period() -> None:
    assert not is_trim_due(replace(DUE, asked_for=QUIET.since), 70.0, POLICY)
    later = replace(QUIET, since=1_700_000_100.0)
    assert is_trim_due(replace(DUE, activity=later, asked_for=QUIET.since), 70.0, POLICY)


@pytest.mark.parametrize("state", [state for state in KernelState if state is not KernelState.RESIDENT])
def test_only_a_resident_kernel_is_asked_for_others_would_be_woken(state: KernelState) -> None:
    assert not is_trim_due(replace(DUE, state=state), 70.0, POLICY)


@pytest.mark.parametrize(
    "view",
    [
        replace(DUE, has_neighbours=False),
        replace(DUE, held_bytes=99),
        replace(DUE, activity=None),
        replace(DUE, activity=Activity(open=1, work=0, since=1.0)),
        replace(DUE, activity=Activity(open=1, work=1, since=1.0, input=2.0)),
    ],
)
def test_a_kernel_that_nobody_gains_from_or_that_has_something_open_is_not_asked(view: TrimView) -> None:
    assert not is_trim_due(view, 1e9, POLICY)


def test_no_seconds_switch_it_off() -> None:
    assert not is_trim_due(DUE, 1e9, replace(POLICY, idle_seconds=0.0))
    parser = argparse.ArgumentParser()
    add_trim_arguments(parser)
    assert parser.parse_args(["--trim-after", "0"]).trim_after == 0
    assert parser.parse_args([]).trim_after == 20
    for odd in ("-1", "inf", "nan", "soon"):
        with pytest.raises(SystemExit):
            parser.parse_args(["--trim-after", odd])

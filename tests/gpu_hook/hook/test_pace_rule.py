"""The rule by which a batch may begin beside others: pace_rule.c, which hook and plant share."""

from __future__ import annotations

import ctypes
import subprocess
from typing import Any

import pytest
from hook_sources import HEADERS, SOURCES, source

from jupyter_aliquot.gpu_hook.protocol.codec import NO_LIMIT, Pace

U32, U64 = ctypes.c_uint32, ctypes.c_uint64
US = 1000


@pytest.fixture(scope="module")
def rule(tmp_path_factory: pytest.TempPathFactory) -> Any:
    target = tmp_path_factory.mktemp("pace_rule") / "rule.so"
    rule_file = source("pace_rule.c")
    flags = ["-std=gnu11", "-shared", "-fPIC", f"-I{HEADERS}", f"-I{SOURCES}"]
    subprocess.run(["cc", *flags, str(rule_file), "-o", str(target)], check=True)
    library = ctypes.CDLL(str(target))
    library.pace_wait.restype = U64
    return library


def may_begin(rule: Any, cap: int, in_flight: int, expected: int, unknown: int = 0) -> bool:
    order = (U64 * 5)(Pace.TIME | cap << 32, NO_LIMIT, NO_LIMIT, 0, 0)  # struct pace_order
    state = (U64 * 5)(0, expected, in_flight, unknown << 32, 0)  # struct pace_state
    return not rule.pace_wait(ctypes.byref(order), ctypes.byref(state), U64(0))


def test_under_a_cap_of_one_a_batch_may_follow_short_ones(rule: Any) -> None:
    assert may_begin(rule, 1, 1, 300 * US)
    assert may_begin(rule, 1, 3, 300 * US)


def test_under_a_cap_of_one_nothing_follows_long_work_or_four_batches(rule: Any) -> None:
    assert not may_begin(rule, 1, 1, 600 * US)
    assert not may_begin(rule, 1, 4, 300 * US)


def test_nothing_follows_work_of_unknown_length_under_a_cap(rule: Any) -> None:
    assert not may_begin(rule, 1, 1, 300 * US, unknown=1)
    assert not may_begin(rule, 1, 1, 0)


@pytest.mark.parametrize("cap", [2, 5])
def test_other_caps_count_batches_alone(rule: Any, cap: int) -> None:
    assert may_begin(rule, cap, cap - 1, 5000 * US)
    assert not may_begin(rule, cap, cap, 1 * US)

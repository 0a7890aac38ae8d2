"""PyCUDA's other kinds of memory and its sharing between processes, bare and in a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

MIB = 1 << 20


@pytest.fixture
def pycuda(start_client: Callable[..., Any]) -> Any:
    client = start_client("with_pycuda_families", "pycuda")
    client.begin_alone()
    yield client
    if client.is_alive:
        assert client("used()") == 0
        assert client.escapes() == [0, 0], "symbols unknown to the hook, calls that it could not charge"


def test_its_pool_holds_memory_until_it_is_emptied(pycuda: Any) -> None:
    with_it, cached, after = pycuda(f"pool({8 * MIB})")
    assert with_it == cached >= 8 * MIB
    assert after == 0


def test_its_pool_frees_what_it_keeps_when_the_quota_is_reached(pycuda: Any) -> None:
    assert pycuda(f"pool_retries({pycuda.place.total_bytes})")


def test_pinned_and_mapped_memory_is_copied(pycuda: Any) -> None:
    assert pycuda("host_memory()")


def test_the_device_writes_managed_memory(pycuda: Any) -> None:
    assert pycuda("managed()") == [8, 8, 1, 1]


def test_a_matrix_survives_pitched_memory(pycuda: Any) -> None:
    assert pycuda("pitched()")


def test_an_array_is_charged_while_it_lives(pycuda: Any) -> None:
    taken, is_whole, after = pycuda("array(512)")
    assert taken >= 512 * 512 * 4
    assert [is_whole, after] == [True, 0]


def test_a_context_of_its_own_takes_its_memory_with_it(pycuda: Any) -> None:
    assert pycuda(f"second_context({8 * MIB})") == [8 * MIB, 0]


def test_profiling_may_begin_and_end(pycuda: Any) -> None:
    assert pycuda("profiled()") is None


def test_another_process_reads_its_memory(pycuda: Any) -> None:
    was_read, is_same_size, escapes, exit_code = pycuda("shared()")
    assert [was_read, is_same_size, exit_code] == [True, True, 0]
    assert escapes == ([0, 0] if pycuda.place.is_hooked else None)

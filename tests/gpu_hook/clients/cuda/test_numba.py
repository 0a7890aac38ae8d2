"""numba-cuda's other kinds of memory, its own kernels and its sharing between processes, bare and in a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def numba(start_client: Callable[..., Any]) -> Any:
    client = start_client("with_numba")
    yield client
    if client.is_alive:
        assert client.escapes() == [0, 0], "symbols unknown to the hook, calls that it could not charge"


def test_the_host_and_kernels_use_the_same_managed_array(numba: Any) -> None:
    assert numba("managed()") == [3] * 4


def test_pinned_and_mapped_arrays_hold_what_was_written(numba: Any) -> None:
    assert numba("pinned_and_mapped()")


def test_its_own_kernels_run(numba: Any) -> None:
    assert numba("reduction()")


def test_a_spawned_process_reads_its_array(start_client: Callable[..., Any]) -> None:
    """With an older cuda-bindings: numba-cuda 0.30 reads a field of IPC handles that newer ones lack."""
    client = start_client("with_numba", "bindings-13.0")
    was_read, is_same_size, escapes, exit_code = client("shared()")
    assert [was_read, is_same_size, exit_code] == [True, True, 0]
    assert escapes == ([0, 0] if client.place.is_hooked else None)
    assert client.escapes() == [0, 0]

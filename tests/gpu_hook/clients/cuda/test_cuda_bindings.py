"""Three releases of cuda-bindings, with every kind of memory, graphs, and processes that share a kernel's quota."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

MIB = 1 << 20


@pytest.fixture(params=["newest", "bindings-13.0", "bindings-12.9"])
def bindings(request: pytest.FixtureRequest, start_client: Callable[..., Any]) -> Any:
    client = start_client("with_bindings", request.param)
    client.begin_alone()
    yield client
    if client.is_alive:
        assert client.escapes() == [0, 0], "symbols unknown to the hook, calls that it could not charge"


def test_stream_ordered_memory_is_charged_while_it_lives(bindings: Any) -> None:
    assert bindings(f"pooled({8 * MIB})") == [8 * MIB, 0]


def test_a_handle_at_two_addresses_is_charged_once(bindings: Any) -> None:
    assert bindings(f"mapped({8 * MIB})") == [8 * MIB, 0, [9] * 4]


def test_the_host_reads_managed_memory(bindings: Any) -> None:
    assert bindings(f"managed({2 * MIB})") == [5] * 4


def test_a_captured_copy_runs_when_it_is_launched(bindings: Any) -> None:
    assert bindings("captured()") == [[1] * 4, [6] * 4]


def test_spawned_processes_share_one_quota(bindings: Any) -> None:
    total = bindings.place.total_bytes
    part = total // 8 * 3
    said = bindings(f"begin_together({part}, 3)")
    assert [words for words, _ in said] == ["held", "held", "CUDA_ERROR_OUT_OF_MEMORY"]
    assert [escapes for _, escapes in said] == [[0, 0] if bindings.place.is_hooked else None] * 3
    bindings.place.until(lambda: bindings("memory()") == [total - 2 * part, total])
    assert bindings("end_together()") == [0, 0, 0]
    bindings.place.until(lambda: bindings("memory()") == [total, total])

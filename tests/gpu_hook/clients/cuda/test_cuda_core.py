"""cuda.core's other kinds of memory, its graphs and its sharing between processes, bare and in a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

MIB = 1 << 20


@pytest.fixture
def core(start_client: Callable[..., Any]) -> Any:
    client = start_client("with_core_families")
    client("let_go()")
    yield client
    if client.is_alive:
        assert client.escapes() == [0, 0], "symbols unknown to the hook, calls that it could not charge"


@pytest.fixture
def agrees(core: Any) -> Callable[[], bool]:
    """Return whether the agent charges the memory that the client sees in use.

    Bare, there is no agent.
    """
    return lambda: not core.place.is_hooked or core.place.until(lambda: core.place.ledger() == core("used()"))


def test_a_pool_of_its_own_is_charged_while_it_holds_memory(core: Any) -> None:
    before = core("used()")
    found = core(f"pool_of_its_own({8 * MIB})")
    assert [used - before for used in found] == [8 * MIB, 0, 0]


def test_virtual_memory_grows_and_keeps_its_contents(core: Any, agrees: Callable[[], bool]) -> None:
    before = core("used()")
    small, large, is_kept = core(f"virtual({4 * MIB})")
    assert [small - before, large - before, is_kept] == [4 * MIB, 8 * MIB, True]
    assert agrees()


def test_a_captured_graph_runs_again_with_new_contents(core: Any) -> None:
    assert core("captured_graph()") == [[0, 0, 0, 0], [7, 7, 1, 1], [7, 7, 2, 2]]


def test_a_capture_forks_and_joins(core: Any) -> None:
    assert core("split_graph(4)") == [0, 1, 2, 3]


def test_a_graph_of_nodes_has_memory_of_its_own(core: Any) -> None:
    assert core("defined_graph()") == [11] * 4


def test_memory_of_graphs_is_charged_until_it_is_trimmed(core: Any, agrees: Callable[[], bool]) -> None:
    before = core("used()")
    reserved, with_it, after = core(f"graph_memory({32 * MIB})")
    assert [reserved, with_it - before, after - before] == [32 * MIB, 32 * MIB, 0]
    assert agrees()


def test_another_process_waits_for_an_event(core: Any) -> None:
    assert core("shared_event()") == [True, True, 0]


def test_another_process_reads_and_writes_a_pool(core: Any, agrees: Callable[[], bool]) -> None:
    was_read, was_written, is_same_size, escapes, exit_code = core(f"shared_pool({4 * MIB})")
    assert [was_read, was_written, is_same_size, exit_code] == [True, True, True, 0]
    assert escapes == ([0, 0] if core.place.is_hooked else None)
    assert agrees()


@pytest.mark.parametrize("compiler", ["ptx", "cubin"])
def test_nvrtc_compiles_for_this_very_device(core: Any, compiler: str) -> None:
    assert core(f"launches({compiler!r})") == [[7] * 4, [7] * 4, True]

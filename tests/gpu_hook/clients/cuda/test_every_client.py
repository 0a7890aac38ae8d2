"""Claims for every CUDA client, bare on the software GPU and in a kernel with half of it.

Each claim is put to each client's own functions: their errors and their sizes, not the driver's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

MIB = 1 << 20
CLIENTS = {
    "cuda-bindings": ("with_bindings", "newest"),
    "cuda-bindings 13.0": ("with_bindings", "bindings-13.0"),
    "cuda-bindings 12.9": ("with_bindings", "bindings-12.9"),
    "cuda-core": ("with_core", "newest"),
    "numba-cuda": ("with_numba", "newest"),
    "pycuda": ("with_pycuda", "pycuda"),
}
OUT_OF_MEMORY = {
    "with_bindings": ("DriverError", "CUDA_ERROR_OUT_OF_MEMORY"),
    "with_core": ("CUDAError", "CUDA_ERROR_OUT_OF_MEMORY"),
    "with_numba": ("CudaAPIError", "CUDA_ERROR_OUT_OF_MEMORY"),
    "with_pycuda": ("MemoryError", "out of memory"),
}


@pytest.fixture(params=CLIENTS)
def a_client(request: pytest.FixtureRequest, start_client: Callable[..., Any]) -> Any:
    """Start a client that holds nothing; check after the test that nothing escaped the hook."""
    client = start_client(*CLIENTS[request.param])
    client.begin_alone()
    yield client
    if client.is_alive:
        client("let_go()")
        assert client.escapes() == [0, 0], "symbols unknown to the hook, calls that it could not charge"


def test_it_sees_the_size_of_the_kernel(a_client: Any) -> None:
    total = a_client.place.total_bytes
    assert a_client("memory()") == [total, total]


def test_bytes_survive_the_way_to_the_device_and_back(a_client: Any) -> None:
    assert a_client(f"round_trip({8 * MIB})")


def test_our_kernel_computes_and_the_users_is_timed(a_client: Any) -> None:
    filled, after, took_time = a_client("launches()")
    assert filled == after == [7] * 4
    assert took_time


def test_over_quota_it_raises_its_own_error_and_works_again(a_client: Any) -> None:
    count = a_client.place.total_bytes // (64 * MIB)
    for _ in range(count):
        a_client(f"hold({64 * MIB})")
    name, text = OUT_OF_MEMORY[a_client("__name__")]
    with pytest.raises(Exception, match=text) as caught:
        a_client(f"hold({64 * MIB})")
    assert caught.value.name == name
    assert a_client("memory()")[0] == 0
    a_client("let_go()")
    assert a_client(f"hold({a_client.place.total_bytes})")


def test_what_it_holds_is_in_the_ledger_to_the_byte(a_client: Any) -> None:
    for amount in (96 * MIB, 1000, 3 * MIB + 1):
        a_client(f"hold({amount})")
    free, total = a_client("memory()")
    assert total - free >= 99 * MIB + 1001
    if a_client.place.is_hooked:
        a_client.place.until(lambda: a_client.place.ledger() == total - free)
        a_client("let_go()")
        a_client.place.until(lambda: a_client.place.ledger() == 0)

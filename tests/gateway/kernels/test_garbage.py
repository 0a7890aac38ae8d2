"""Garbage of ended kernels: none is left to Python's collector, for gateways run for long."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from .test_lives import execute, ready, start


@pytest.mark.parametrize("name", ["python3.gpu-0.5", "python3"])
async def test_a_kernel_that_ended_is_freed_at_once(
    name: str, a_gateway: Any, jp_fetch: Any, until: Any, no_collector: None
) -> None:
    kernel_id = await start(jp_fetch, name)
    kernel = weakref.ref(await ready(a_gateway, kernel_id))
    assert await execute(a_gateway, kernel_id, "print(6 * 7)") == "42\n"
    await jp_fetch("api", "kernels", kernel_id, method="DELETE")
    await until(lambda: kernel() is None)


async def test_a_kernel_that_waited_in_vain_is_freed_at_once(
    a_gateway: Any, jp_fetch: Any, until: Any, no_collector: None
) -> None:
    await ready(a_gateway, await start(jp_fetch, "python3.gpu-1"))
    kernel_id = await start(jp_fetch, "python3.gpu-1")
    kernel = weakref.ref(a_gateway.kernels.get_kernel(kernel_id))
    await until(lambda: a_gateway.admission.waiting(kernel_id) is not None)
    await jp_fetch("api", "kernels", kernel_id, method="DELETE")
    await until(lambda: kernel() is None)

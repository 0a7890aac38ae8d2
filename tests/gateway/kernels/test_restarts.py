"""Restarts of a kernel that is being ended, and the restarter, which polls where the relay tells nothing."""

from __future__ import annotations

import asyncio

import pytest

from jupyter_aliquot.gateway.kernels.kernel import ManagedKernel
from jupyter_aliquot.gateway.kernels.restarts import CalmRestarter, Restarts
from jupyter_aliquot.provisioner.errors import WithdrawnError


async def test_the_restarter_leaves_a_kernel_that_is_being_ended_as_it_is() -> None:
    restarts = Restarts()
    with restarts.none(is_meant=True):
        restarts.found_dead()
        with restarts.one("k1") as may_start:
            assert (may_start, len(restarts.under_way())) == (False, 1)
    assert restarts.under_way() == set()


async def test_the_restarter_leaves_a_kernel_whose_end_began_during_the_restart() -> None:
    restarts = Restarts()
    restarts.found_dead()
    with restarts.none(is_meant=False), restarts.one("k1") as may_start:
        assert may_start
        restarts.is_being_ended = True
        restarts.refuse_if_being_ended("k1")
    assert restarts.under_way() == set()


async def test_a_users_restart_of_a_kernel_that_is_being_ended_is_refused() -> None:
    restarts = Restarts()
    with restarts.none(is_meant=True):
        with pytest.raises(WithdrawnError, match="it is being ended"), restarts.one("k1"):
            pytest.fail("the restart began")
        # The note of a dead kernel is for one restart alone.
        restarts.found_dead()
        with restarts.one("k1"):
            pass
        with pytest.raises(WithdrawnError), restarts.one("k1"):
            pytest.fail("the restart began")


class Kernel(ManagedKernel):
    """A kernel whose relay says that it runs, or not; it counts the looks and the polls."""

    says_it_runs = False

    def __init__(self) -> None:
        super().__init__(kernel_name="python3")
        self.looked, self.polled = asyncio.Queue[bool](), asyncio.Queue[None]()

    def runs_by_its_relay(self) -> bool:
        self.looked.put_nowait(self.says_it_runs)
        return self.says_it_runs

    async def is_alive(self) -> bool:
        self.polled.put_nowait(None)
        return True


async def test_a_kernel_that_its_relay_says_runs_is_not_polled() -> None:
    kernel = Kernel()
    restarter = CalmRestarter(kernel_manager=kernel, parent=kernel, time_to_dead=0.001, stable_start_time=0.0)
    restarter.start()
    restarter.start()
    for _ in range(2):  # it has just started, and then its relay says nothing
        await kernel.polled.get()
    kernel.says_it_runs = True
    while not await kernel.looked.get():
        pass
    while not kernel.polled.empty():
        kernel.polled.get_nowait()
    for _ in range(3):
        assert await kernel.looked.get()
    assert kernel.polled.empty()
    kernel.says_it_runs = False
    await kernel.polled.get()
    restarter.stop()


async def test_a_poll_that_fails_is_followed_by_the_next_and_none_follows_a_stop() -> None:
    kernel = Kernel()
    restarter = CalmRestarter(kernel_manager=kernel, parent=kernel, time_to_dead=0.001)
    failing, stopping = asyncio.Event(), asyncio.Event()

    async def poll() -> None:
        if not failing.is_set():
            failing.set()
            raise OSError("no file")
        restarter.stop()
        stopping.set()

    restarter.poll = poll
    restarter.start()
    await stopping.wait()
    assert restarter._polling is not None
    await restarter._polling
    assert restarter._timer is None

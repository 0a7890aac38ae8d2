"""Watchers of the node get a notice of each change: at once, and once for many changes.

Without watchers there is no work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from jupyter_aliquot.gpu_hook.agent.kernels.usage import DeviceUse
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceAccount
from jupyter_aliquot.gpu_hook.agent.server.notifier import StatusNotices
from jupyter_aliquot.gpu_hook.placement.placement import Part

PART = Part("GPU-00000000-0000-0000-0000-0000000000a0", 0, 50, 100)


class AKernel:
    """A kernel with a quota of 100 bytes."""

    kernel_id = "k"

    def __init__(self) -> None:
        self.accounts: tuple[DeviceAccount, ...] = (DeviceAccount(100, part=PART, lent=100),)
        self.charged = 100
        self.residency = SimpleNamespace(is_copying=False)

    def report(self) -> tuple[DeviceUse, ...]:
        return (DeviceUse(self.charged, self.charged, 0.0, 0),)


class Watchers:
    """The events that connections received, and the notices."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[tuple[int, dict[str, Any]]] = asyncio.Queue()
        self.notices = StatusNotices(lambda connection, event: self.sent.put_nowait((connection, event)))

    async def next(self) -> tuple[int, dict[str, Any]]:
        return await asyncio.wait_for(self.sent.get(), 30)


def play(scenario: Callable[[Watchers], Any]) -> None:
    async def run() -> None:
        await scenario(Watchers())

    asyncio.run(run())


def test_many_changes_are_few_notices() -> None:
    async def scenario(watchers: Watchers) -> None:
        watchers.notices.enter(7)
        for _ in range(1000):
            watchers.notices.tell()
        assert await watchers.next() == (7, {"event": "status"})
        for _ in range(1000):
            watchers.notices.tell()
        assert watchers.sent.empty()  # not before the watchers can look at it
        await watchers.next()
        assert watchers.sent.empty()

    play(scenario)


def test_where_nobody_watches_nothing_is_looked_at() -> None:
    async def scenario(watchers: Watchers) -> None:
        def kernels() -> Any:
            raise AssertionError("looked")
            yield

        watchers.notices.enter(7)
        watchers.notices.drop(7)
        watchers.notices.look(kernels())
        watchers.notices.tell()
        await asyncio.sleep(0)
        assert watchers.sent.empty()

    play(scenario)


def test_a_kernel_that_goes_over_its_quota_or_comes_below_is_news() -> None:
    async def scenario(watchers: Watchers) -> None:
        kernel = AKernel()
        watchers.notices.enter(7)
        watchers.notices.look([kernel])
        assert watchers.sent.empty()
        kernel.accounts = (DeviceAccount(60, part=PART, lent=100),)
        watchers.notices.look([kernel])
        await watchers.next()
        watchers.notices.look([kernel])
        kernel.charged = 60  # and the credit is still lent
        watchers.notices.look([kernel])
        await watchers.next()
        assert watchers.sent.empty()

    play(scenario)


def test_who_waits_for_a_copy_hears_again_and_again_how_far_it_is() -> None:
    async def scenario(watchers: Watchers) -> None:
        kernel = AKernel()
        watchers.notices.enter(7)
        kernel.residency.is_copying = True
        watchers.notices.look([kernel])
        await watchers.next()
        while watchers.sent.empty():
            watchers.notices.look([kernel])
            await asyncio.sleep(0.01)
        kernel.residency.is_copying = False
        await watchers.next()
        watchers.notices.look([kernel])
        assert watchers.sent.empty()

    play(scenario)

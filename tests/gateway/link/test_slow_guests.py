"""Collaborators whose page does not read, and replies that wait for it."""

from __future__ import annotations

import asyncio
from typing import Any

from .browser import text_of
from .test_shared_kernels import SharedHouse, a_shared_house, more_config  # noqa: F401  # fixtures

_LINES = "line = 'x' * 99_999\nfor i in range(400):\n    print(line, flush=True)"


async def flood(house: SharedHouse, alice: Any, seconds: float) -> int:
    asked = await alice.run(_LINES)
    await asyncio.wait_for(alice.finish(asked), seconds)
    return len(text_of(alice.of(asked)))


async def test_a_reply_that_a_collaborator_does_not_read_holds_no_owner_up(a_shared_house: SharedHouse) -> None:  # noqa: F811
    house = a_shared_house
    await house.share("bob", "write")
    alice, bob = await house.browser_of("alice").open(), await house.browser_of("bob").open()
    assert await flood(house, alice, 60) == 40_000_000
    await bob.run("pass")  # bob's page reads nothing from here on; its reply waits
    await asyncio.sleep(1)
    assert await flood(house, alice, 20) == 40_000_000


async def test_questions_that_a_reader_does_not_read_hold_no_owner_up(a_shared_house: SharedHouse) -> None:  # noqa: F811
    house = a_shared_house
    await house.share("bob", "read")
    alice, bob = await house.browser_of("alice").open(), await house.browser_of("bob").open()
    assert await flood(house, alice, 60) == 40_000_000
    asked = await alice.run("import time; time.sleep(6)")
    for count in range(36):
        await bob.send("shell", "kernel_info_request", {})
        await asyncio.sleep(0.25 if count > 20 else 0)
    await alice.finish(asked)
    assert await flood(house, alice, 20) == 40_000_000

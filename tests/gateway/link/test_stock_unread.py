"""A kernel without a relay that does not read: what waits for it is bounded, and what is too much is answered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from started import stopped

from jupyter_aliquot.gateway.channels.backpressure import StockUnread

from .browser import Browser, Message, text_of, widgets_are_told_of_once
from .conftest import House

MOST = 2 << 20
MESSAGE = 1 << 20
PADDING = "#" * (512 << 10)
ONE = len(PADDING) + (64 << 10)
FLOOD = 60


@pytest.fixture
def more_config() -> dict[str, Any]:
    limits = {"unread_bytes": MOST, "message_bytes": MESSAGE, "messages_per_second": 0}
    rates = {"ZMQChannelsWebsocketConnection": {"limit_rate": False}}
    return {**rates, "Limits": limits, "AliquotProvisioner": {"relay": False}}


def is_refused(message: Message) -> bool:
    return message.type == "execute_reply" and message.content.get("ename") == "KernelDoesNotRead"


def kernel_of(house: House) -> int:
    return int(house.server.kernel_manager.get_kernel(house.kernel_id).provisioner.pid)


def unread_of(house: House) -> StockUnread:
    counts = house.server.web_app.settings["aliquot_stock_unread"]
    return counts[house.server.kernel_manager.get_kernel(house.kernel_id)]  # type: ignore[no-any-return]


async def test_cells_for_a_kernel_without_a_relay_that_does_not_read_end_with_words_and_the_others_run(
    a_house: House,
) -> None:
    assert a_house.server.kernel_manager.links.get(a_house.kernel_id) is None, "it has no relay"
    browser, second = await ready(a_house.browser()), await ready(a_house.browser("legacy", "tab-2"))
    await browser.execute("seen = []")
    flooded, unread = a_house.kernel_id, unread_of(a_house)
    with stopped(kernel_of(a_house)):
        asked = []
        for number in range(FLOOD):
            asked.append(await browser.run(f"seen.append({number}){PADDING}"))
            assert unread.bytes <= MOST + ONE
        last = await browser.run(f"seen.append('last'){PADDING}")
        refusal = await browser.until(lambda m: m.parent == last and is_refused(m))
        assert "(c.Limits.unread_bytes)" in refusal.content["evalue"]
        accepted = [one for one in asked if not any(is_refused(m) for m in browser.of(one))]
        guard = a_house.server.web_app.settings["aliquot_limits"]
        assert guard.counts()["unread_bytes"] == len(asked) + 1 - len(accepted)
        too_much = await second.run(f"seen.append('second'){PADDING}")
        told = await second.until(lambda m: m.parent == too_much and is_refused(m))
        assert told.channel == "shell", "all websockets of a kernel have one room, whatever they speak"
        await a_house.start_kernel()
        other = await a_house.browser(session="another").open()
        assert text_of(await other.execute("print('on time')")) == "on time\n"
        a_house.kernel_id = flooded
    for one in accepted:
        await browser.finish(one)
    shown = text_of(await browser.execute("print(seen)"))
    assert json.loads(shown) == [number for number, one in enumerate(asked) if one in accepted]
    assert unread.bytes == 0
    for one in (browser, second, other):
        await one.close()


async def test_widgets_of_a_kernel_without_a_relay_that_does_not_read_are_told_of_once(a_house: House) -> None:
    browser = await ready(a_house.browser())
    with stopped(kernel_of(a_house)):
        await widgets_are_told_of_once(browser)
    await browser.close()


async def test_what_a_closed_websocket_left_for_a_kernel_without_a_relay_counts_on(a_house: House, until: Any) -> None:
    """Its channels are kept for who comes back; others than he end them."""
    browser, stays = await ready(a_house.browser()), await ready(a_house.browser(session="tab-2"))
    unread = unread_of(a_house)
    with stopped(kernel_of(a_house)):
        await fill(browser)
        assert unread.bytes > MOST - ONE
        await browser.close()
        await until(lambda: unread.bytes == 0)
        await fill(stays)
        await stays.close()
        await until(lambda: not a_house.server.kernel_manager._kernel_connections[a_house.kernel_id])
        assert unread.bytes > MOST - ONE, "its channels are kept"
    again = await a_house.browser(session="tab-2").open()
    await again.execute("1")
    assert unread.bytes == 0
    await again.close()


async def ready(browser: Browser) -> Browser:
    """Open on both ends: the server's hears the kernel first."""
    await browser.open()
    await browser.execute("1")
    return browser


async def fill(browser: Browser) -> None:
    """Until one is refused."""
    last = ""
    for number in range(FLOOD):
        last = await browser.run(f"{number}{PADDING}")
    await browser.until(lambda m: m.parent == last and is_refused(m))

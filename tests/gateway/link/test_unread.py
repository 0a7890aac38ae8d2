"""Floods of a kernel, or a relay, that does not read.

Each buffer between browser and kernel is bounded, and other users do not wait.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from started import stopped

from jupyter_aliquot.provisioner.relay.client import control as client

from .browser import Browser, Message, text_of, widgets_are_told_of_once
from .conftest import House

MOST = 2 << 20
MESSAGE = 1 << 20
PADDING = "#" * (256 << 10)
FLOOD = 64
LINK_BYTES = 8 << 20
ONE = len(PADDING) + (64 << 10)


@pytest.fixture
def more_config() -> dict[str, Any]:
    limits = {"unread_bytes": MOST, "message_bytes": MESSAGE, "messages_per_second": 0}
    return {"ZMQChannelsWebsocketConnection": {"limit_rate": False}, "Limits": limits}


def is_refused(message: Message) -> bool:
    return message.type == "execute_reply" and message.content.get("ename") == "KernelNotResponding"


async def test_cells_for_a_kernel_that_does_not_read_end_with_words_and_the_others_run(
    a_house: House, until: Any
) -> None:
    browser = await a_house.browser().open()
    await browser.execute("seen = []")
    record = client.read_relay_record(a_house.folder)
    assert record.kernel is not None
    flooded = a_house.kernel_id
    with stopped(record.kernel.pid):
        asked = [await browser.run(f"seen.append({number}){PADDING}") for number in range(FLOOD)]
        last = await browser.run(f"seen.append('last'){PADDING}")
        refusal = await browser.until(lambda m: m.parent == last and is_refused(m))
        assert "(c.Limits.unread_bytes)" in refusal.content["evalue"]
        accepted = [one for one in asked if not any(is_refused(m) for m in browser.of(one))]
        guard = a_house.server.web_app.settings["aliquot_limits"]
        await until(lambda: guard.counts()["unread_bytes"] == len(asked) + 1 - len(accepted))
        assert 0 < len(accepted) * len(PADDING) <= MOST + 4 * ONE
        await a_house.start_kernel()
        other = await a_house.browser(session="another").open()
        assert text_of(await other.execute("print('on time')")) == "on time\n"
        a_house.kernel_id = flooded
        await a_house.act("interrupt")
    for one in accepted:
        await browser.finish(one)
    shown = text_of(await browser.execute("print(seen)"))
    ran = json.loads(shown)
    # The interrupt ended the running cell, if there was one.
    assert ran == [number for number, one in enumerate(asked) if one in accepted and number in ran]
    assert len(accepted) - len(ran) <= 1
    await browser.close()


async def test_widgets_of_a_kernel_that_does_not_read_are_told_of_once(a_house: House) -> None:
    browser = await a_house.browser().open()
    await browser.execute("1")
    record = client.read_relay_record(a_house.folder)
    assert record.kernel is not None
    with stopped(record.kernel.pid):
        await widgets_are_told_of_once(browser)
    await browser.close()


async def test_a_relay_that_does_not_read_holds_up_its_own_sockets_alone_and_has_all_of_it_later(
    a_house: House, until: Any
) -> None:
    browser = await a_house.browser().open()
    await browser.execute("seen = []")
    link, stuck = a_house.link, a_house.kernel_id
    await a_house.start_kernel()
    other = await a_house.browser(session="another").open()
    a_house.kernel_id = stuck
    with stopped(client.read_relay_record(a_house.folder).pid):
        flood = asyncio.ensure_future(send_all(browser))
        await until(lambda: link.is_full)
        for _ in range(5):
            assert text_of(await other.execute("print('on time')")) == "on time\n"
            assert link._link is not None
            assert link._link.untaken_bytes < LINK_BYTES + ONE
    # The flood is faster than the kernel: the gateway refuses and answers the excess, as always.
    asked = await asyncio.wait_for(flood, 60)
    for one in asked:
        await browser.finish(one)
    shown = text_of(await browser.execute("print(seen)"))
    refused = [one for one in asked if any(is_refused(m) for m in browser.of(one))]
    want = [number for number, one in enumerate(asked) if one not in refused]
    assert json.loads(shown) == want
    assert not link.is_full
    await browser.close()


async def send_all(browser: Browser) -> list[str]:
    return [await browser.run(f"seen.append({number}){PADDING}") for number in range(FLOOD)]

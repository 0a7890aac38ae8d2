"""Websockets that close and open while a kernel prints: each number comes once, in its place."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gateway.channels.connection import KernelWebsocketConnection
from jupyter_aliquot.provisioner.relay.client.control import read_relay_record

from .browser import Message, text_of
from .conftest import House

# The kernel prints as fast as it can: numbers under way when a websocket closes must come again.
COUNT = "import time\nfor i in range({n}):\n    print(i, flush=True)\n    time.sleep(0.0005)\n"
LINES = "line = 'x' * 99_999\nfor i in range(400):\n    print(line, flush=True)\n"


def numbers(messages: Sequence[Message]) -> list[int]:
    return [int(word) for word in re.findall(r"\d+", text_of(messages))]


@pytest.mark.parametrize("protocol", ["v1", "legacy"])
async def test_a_websocket_that_closes_and_opens_again_misses_no_number(a_house: House, protocol: str) -> None:
    browser = await a_house.browser(protocol).open()
    asked = await browser.run(COUNT.format(n=1500))
    for closes_after in (50, 300, 800):
        # The number may have come as the socket closed.
        if not any(number >= closes_after for number in numbers(browser.seen)):
            await browser.until(lambda m: bool(numbers([m])) and numbers([m])[-1] >= closes_after)  # noqa: B023
        await browser.close()
        await browser.open()
    seen = await browser.finish(asked)
    assert numbers(seen) == list(range(1500))
    assert [m.type for m in seen if m.channel == "shell"] == ["execute_reply"], "the reply comes once, too"


async def test_a_reloaded_page_gets_what_was_printed_meanwhile(a_house: House, until: Any) -> None:
    first = await a_house.browser(session="before").open()
    asked = await first.run(COUNT.format(n=500))
    await first.until(lambda m: bool(numbers([m])))
    await first.close()
    await until(lambda: not a_house.link.activity.is_busy)
    second = await a_house.browser(session="after").open()
    await second.until(lambda m: m.parent == asked and m.content.get("execution_state") == "idle")
    assert numbers(first.of(asked)) + numbers(second.of(asked)) == list(range(500))
    assert "execute_reply" not in [m.type for m in second.seen], "a reply is for who asked"
    again = await a_house.browser(session="before").open()
    assert (await again.until(lambda m: m.parent == asked)).type == "execute_reply"


async def test_two_tabs_both_get_all(a_house: House) -> None:
    one, other = await a_house.browser(session="one").open(), await a_house.browser("legacy", session="other").open()
    asked = await one.run(COUNT.format(n=300))
    await one.finish(asked)
    await other.until(lambda m: m.parent == asked and m.content.get("execution_state") == "idle")
    assert numbers(one.of(asked)) == numbers(other.of(asked)) == list(range(300))
    assert [m.type for m in other.of(asked) if m.channel == "shell"] == []
    await one.close()
    assert text_of(await other.execute("print('alone')")) == "alone\n"


async def test_a_second_websocket_of_a_session_takes_its_place(a_house: House) -> None:
    stale, fresh = a_house.browser(), a_house.browser()
    await stale.open()
    await fresh.open()
    assert text_of(await fresh.execute("print('here')")) == "here\n"
    assert stale.socket is not None
    while await stale.socket.read_message() is not None:
        pass
    assert (await a_house.model())["connections"] == 1


async def test_a_browser_that_does_not_read_bounds_what_the_gateway_holds(
    a_house: House, until: Any, tmp_path: Path
) -> None:
    """Print 40 MB to a browser that does not read.

    The window's 8 MiB are on their way, and the relay keeps the rest.
    """
    slow, done = await a_house.browser().open(), tmp_path / "done"
    asked = await slow.run(f"{LINES}import pathlib\npathlib.Path({str(done)!r}).touch()")
    await until(done.exists)
    await until(lambda: not a_house.link.activity.is_busy)
    await until(lambda: a_house.bytes_to_write() > 0)
    assert a_house.bytes_to_write() < 10 << 20
    assert len(text_of(await slow.finish(asked))) == 40_000_000


async def test_a_tab_that_does_not_read_is_waited_for_and_its_end_is_counted(a_house: House, until: Any) -> None:
    slow, quick = await a_house.browser(session="slow").open(), await a_house.browser(session="quick").open()
    asked = await quick.run(LINES)
    for _ in range(20):
        await quick.read()
    # The socket, read again while it closes, does not take so much before its end is known.
    await until(lambda: a_house.link.waiting > 0 and a_house.bytes_to_write("slow") > 4 << 20)
    await slow.close()
    assert len(text_of(await quick.finish(asked))) == 40_000_000
    assert a_house.link.dropped["closed_socket"] > 0


async def test_a_relay_that_is_killed_is_forked_again_and_the_link_comes_back(a_house: House, until: Any) -> None:
    browser = await a_house.browser().open()
    await browser.execute("x = 41")
    provisioner = a_house.server.kernel_manager.get_kernel(a_house.kernel_id).provisioner
    kernel_pid = provisioner.pid
    folder = a_house.folder
    before = read_relay_record(folder)
    os.kill(before.pid, signal.SIGKILL)
    await until(lambda: read_relay_record(folder).pid != before.pid)
    assert text_of(await browser.execute("print(x + 1)")) == "42\n"
    assert provisioner.pid == kernel_pid


async def test_a_browser_that_is_faster_than_the_link_does_not_wait_for_a_cell_that_waits(
    a_house: House, until: Any
) -> None:
    browser = await a_house.browser().open()
    asked = await browser.run("print(input())")
    question = await browser.until(lambda m: m.type == "input_request")
    await browser.close()
    sessions, session = KernelWebsocketConnection._open_sessions, f"{a_house.kernel_id}:{browser.session}"
    await until(lambda: session not in sessions)
    manager, relay = a_house.server.kernel_manager, read_relay_record(a_house.folder)
    # The gateway is now as after a recovery of the kernel.
    manager.links.close(a_house.kernel_id)
    del manager.get_kernel(a_house.kernel_id)._kernel_info_future
    os.kill(relay.pid, signal.SIGSTOP)
    try:
        manager.start_watching_activity(a_house.kernel_id)
        opening = asyncio.ensure_future(browser.open())
        await until(lambda: session in sessions)
    finally:
        os.kill(relay.pid, signal.SIGCONT)
    await opening
    await browser.send("stdin", "input_reply", {"value": "here", "status": "ok"}, parent=question.header)
    assert text_of(await browser.finish(asked)).endswith("here\n")


async def test_a_kernel_whose_relay_and_relay_host_were_killed_gets_others(a_house: House) -> None:
    browser = await a_house.browser().open()
    await browser.execute("x = 5")
    relay = read_relay_record(a_house.folder)
    host = int((a_house.folder.parent.parent / "relay.lock").read_text())
    os.kill(host, signal.SIGKILL)
    os.kill(relay.pid, signal.SIGKILL)
    assert text_of(await browser.execute("print(x)")) == "5\n"
    assert read_relay_record(a_house.folder).kernel == relay.kernel, "the same kernel"

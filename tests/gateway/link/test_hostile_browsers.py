"""Browsers that send garbage, or read nothing.

The browser's own socket ends or waits, and other browsers notice nothing.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from jupyter_server.services.kernels.connection.base import serialize_binary_message, serialize_msg_to_ws_v1

from jupyter_aliquot.gateway.base.jupyter_private import V1
from jupyter_aliquot.gateway.channels.browser_socket import why_unreadable

from .conftest import House
from .test_channels import text_of

PARTS = [b"{}"] * 4


def v1(*numbers: int, rest: bytes = b"") -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers) + rest


def legacy(*numbers: int, rest: bytes = b"") -> bytes:
    return struct.pack(f"!{len(numbers)}I", *numbers) + rest


HOSTILE: dict[str, list[str | bytes]] = {
    "v1": [
        v1(2**63),  # this number alone once made the server count up to it
        v1(2**64 - 1, 0, 0),
        v1(0),
        v1(5, 48, 53),
        v1(4, 40, 40, 2**60, 41),
        v1(6, 8, 1000, 8, 1000, 8, 1000, rest=b"x" * 1000),
        v1(3, 32, 37, 37, rest=b"\xff\xff\xff\xff\xff"),
        b"",
        b"{}",
        "text",
    ],
    "legacy": [
        legacy(2**31 - 1),
        legacy(2**32 - 1),
        legacy(0),
        legacy(3, 16, 4, 16, rest=b"{}"),
        b"\0",
        "",
        "[]",
        "null",
        "5",
        '{"channel": ["shell"]}',
        '{"channel": "shell", "header": 5}',
        '{"channel": "shell", "header": {"msg_type": "execute_request"}}',
        "[" * 200_000,
        '{"channel": "shell", "header": ' + "{}" * 9 + "}",
        '{"a": ' + "9" * 10_000 + "}",
    ],
}


@pytest.mark.parametrize("protocol", ["v1", "legacy"])
async def test_what_is_no_message_ends_its_own_socket_alone(a_house: House, protocol: str) -> None:
    other = await a_house.browser(session="other").open()
    for number, hostile in enumerate(HOSTILE[protocol]):
        browser = await a_house.browser(protocol, session=f"hostile-{number}").open()
        assert browser.socket is not None
        await browser.socket.write_message(hostile, binary=isinstance(hostile, bytes))
        while await browser.socket.read_message() is not None:
            pass
        assert browser.socket.close_code in (1007, 1006, None), (hostile[:40], browser.socket.close_code)
    assert text_of(await other.execute("print('still here')")) == "still here\n"
    assert (await a_house.model())["connections"] == 1


async def test_everybody_is_answered_while_a_kernel_floods_who_does_not_read(a_house: House, until: Any) -> None:
    """Flood a browser that does not read.

    test_output_survives.py checks that the gateway holds no more than a window of the flood.
    """
    flooder = a_house.kernel_id
    slow = await a_house.browser().open()
    await slow.run("while True:\n    print('x' * 99_999, flush=True)")
    await until(lambda: a_house.bytes_to_write() > 1 << 20)
    held = []
    for _ in range(20):
        answer = await a_house.fetch("aliquot", "api", "v1", "status")
        assert answer.code == 200
        held.append(a_house.bytes_to_write())
    assert max(held) < 10 << 20
    assert a_house.link.activity.is_busy, "it still floods"
    await a_house.start_kernel()
    other = await a_house.browser(session="another").open()
    assert text_of(await other.execute("print('on time')")) == "on time\n"
    await a_house.fetch("api", "kernels", flooder, method="DELETE", request_timeout=120)


async def test_a_huge_comm_message_harms_nobody(a_house: House) -> None:
    browser = await a_house.browser().open()
    content = {"comm_id": "nobody's", "data": {"x": "y" * (4 << 20)}}
    await browser.send("shell", "comm_msg", content, buffers=[b"z" * (4 << 20)])
    assert text_of(await browser.execute("print('fine')")) == "fine\n"


def test_messages_of_both_protocols_can_be_read() -> None:
    for parts in (PARTS, [*PARTS, b"buffer", b""], [b""] * 5):
        assert why_unreadable(serialize_msg_to_ws_v1(parts, "shell"), V1) == ""
    whole = {"header": {}, "parent_header": {}, "content": {}, "metadata": {}, "buffers": [b"x", b"y" * 100]}
    assert why_unreadable(serialize_binary_message(whole), None) == ""
    assert why_unreadable(json.dumps({"channel": "shell"}), None) == ""


def test_parts_that_overlap_would_be_many_times_what_was_sent() -> None:
    count = 1000
    places = [0, 8 * (count + 1)] * (count // 2)
    assert "overlap" in why_unreadable(v1(count, *places), V1)

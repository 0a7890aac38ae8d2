"""Cells of a page that comes back, by a real server, a real relay and a real kernel."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError

from .browser import Browser, is_state
from .conftest import House


async def ask_cells(house: House, **query: str) -> dict[str, Any]:
    answer = await house.fetch("aliquot", "api", "v1", "kernels", house.kernel_id, "outputs", params=query)
    return json.loads(answer.body)  # type: ignore[no-any-return]


async def run_cell(browser: Browser, cell_id: str, code: str) -> str:
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": True, "stop_on_error": True}
    message = browser.make("execute_request", {**content, "user_expressions": {}})
    message["metadata"] = {"cellId": cell_id}
    return await browser.send("shell", "execute_request", content, message=message)


def text(cell: dict[str, Any]) -> str:
    return "".join(m["content"]["text"] for m in cell["messages"] if m["header"]["msg_type"] == "stream")


async def has_none(house: House) -> bool:
    return (await ask_cells(house))["cells"] == []


def is_seen(seen: dict[str, Any], msg_id: str) -> bool:
    prefix, _, number = msg_id.rpartition("_")
    ranges = seen["ranges"].get(f"{prefix}_", [])
    return msg_id in seen["ids"] or any(first <= int(number) <= last for first, last in ranges)


async def test_cells_are_told_with_all_that_they_showed_and_another_page_may_answer(a_house: House, until: Any) -> None:
    page = await a_house.browser(session="before").open()
    first = await run_cell(page, "count", "for i in range(500): print(i, flush=True)")
    await page.finish(first)
    asking = await run_cell(page, "ask", "print('before'); print('hello', input('name? '))")
    question = await page.until(lambda m: m.type == "input_request")
    await page.close()
    after = await a_house.browser(session="after").open()
    # This page opens in the middle of a cell.
    await after.until(lambda m: is_state(m, "busy") and not m.parent)
    told = await ask_cells(a_house)
    count, ask = told["cells"]
    want = "".join(f"{number}\n" for number in range(500))
    assert (count["msg_id"], count["cell_id"], count["is_open"], count["omitted_messages"]) == (
        first,
        "count",
        False,
        0,
    )
    assert text(count) == want
    assert count["messages"][0]["content"]["execution_count"] == 1
    assert (ask["msg_id"], ask["is_open"]) == (asking, True)
    assert ask["input"] == {"prompt": "name? ", "password": False, "id": question.header["msg_id"]}
    assert text(ask) == "before\n"
    ids = {m["header"]["msg_id"] for cell in told["cells"] for m in cell["messages"]}
    assert all(is_seen(told["seen"], name) for name in ids)
    await after.send("stdin", "input_reply", {"value": "ada", "status": "ok"}, parent=None)
    await after.until(lambda m: m.parent == asking and m.content.get("execution_state") == "idle")
    assert "".join(m.content["text"] for m in after.of(asking) if m.type == "stream") == "hello ada\n"
    assert (await ask_cells(a_house))["cells"][1]["input"] is None
    brief = await ask_cells(a_house, messages="no")
    assert [(cell["msg_id"], cell["messages"]) for cell in brief["cells"]] == [(first, []), (asking, [])]
    with pytest.raises(HTTPClientError, match="404"):
        await a_house.fetch("aliquot", "api", "v1", "kernels", "nobodys", "outputs")
    await a_house.act("restart")
    assert await until(lambda: has_none(a_house)), "what a kernel showed goes with it"


async def test_a_gateway_that_was_away_knows_the_cells_that_run(a_house: House, until: Any) -> None:
    page = await a_house.browser(session="before").open()
    ended = await run_cell(page, "first", "print('first')")
    await page.finish(ended)
    asked = await run_cell(page, "second", "print('second', input('go? '))")
    question = await page.until(lambda m: m.type == "input_request")
    await page.close()
    manager = a_house.server.kernel_manager
    manager.links.close(a_house.kernel_id)
    manager.start_watching_activity(a_house.kernel_id)
    await a_house.link.wait_until_told(30)
    cells = {cell["msg_id"]: cell for cell in (await ask_cells(a_house))["cells"]}
    assert {msg_id: (cell["cell_id"], cell["is_open"]) for msg_id, cell in cells.items()} == {
        ended: ("first", False),
        asked: ("second", True),
    }
    assert cells[asked]["omitted_messages"] > 0, "its beginning went to the browser, and nobody kept it"
    assert cells[asked]["input"] == {"prompt": "go? ", "password": False, "id": question.header["msg_id"]}

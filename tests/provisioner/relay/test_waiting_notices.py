"""Notices in real cells, from a scripted agent: signed, to that cell alone, never after its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from relay_house import Gateway, House, a_client, parent, until
from scripted_agent import Agent

# The cell ends when its user answers, as a call that waits ends when the memory is there. A cell in
# input() would not count as waiting.
SILENT_WAIT = "import os, time\nwhile not os.path.exists({path!r}): time.sleep(0.01)"
WAIT = SILENT_WAIT + "\nprint('on')"


@pytest.fixture
def an_agent(a_house: House) -> Iterator[Agent]:
    a_house.runtime.path.mkdir(exist_ok=True)
    agent = Agent(a_house.runtime.agent_socket)
    yield agent
    agent.close()


def notices(gateway: Gateway, cell: str) -> list[dict[str, Any]]:
    return [m for m in gateway.messages if parent(m) == cell and "Aliquot" in m["content"].get("text", "")]


async def a_quick_cell(gateway: Gateway) -> str:
    """Run a cell that is over within a second."""
    while True:
        began = time.monotonic()
        cell = gateway.execute("1")
        await gateway.done(cell)
        if time.monotonic() - began < 1:
            return cell


def test_a_waiting_cell_is_told_on_its_stderr_and_on_every_way(a_house: House, an_agent: Agent, tmp_path: Any) -> None:
    async def scene() -> None:
        record = await a_house.kernel(tells_agent=True)
        gateway = await Gateway(record).connect()
        async with a_client(record) as client:
            done = tmp_path / "done"
            cell = gateway.execute(WAIT.format(path=str(done)))
            await until(lambda: an_agent.asked("watch"))
            assert an_agent.asked("watch")[0]["kernel_id"] == record.kernel_id
            an_agent.tell("lease", record.kernel_id, waits_seconds=0.0, reason="queue", before=1, expected_seconds=4)
            await gateway.until(lambda m: isinstance(m, dict) and "Aliquot" in str(m["content"]))
            (notice,) = notices(gateway, cell)
            assert (notice["msg_type"], notice["channel"], notice["to"]) == ("stream", "iopub", None)
            assert notice["content"] == {
                "name": "stderr",
                "text": "[Aliquot: waiting for GPU memory: others came before; 1 kernel before it; about 4 s]\n",
            }
            assert notice["parent_header"]["session"] == gateway.session.session, "the cell's own header, as it was"
            while parent(seen := await client.get_iopub_msg(timeout=30)) != cell or seen["msg_type"] != "stream":
                pass
            assert seen["header"]["msg_id"] == notice["header"]["msg_id"], "the same message, its signature checked"
            done.touch()
            await gateway.done(cell)
            an_agent.tell("lease", record.kernel_id, waits_seconds=30.0)
            after = await a_quick_cell(gateway)
            assert len(notices(gateway, cell)) == 1
            assert notices(gateway, after) == [], "a cell is told after a second"

    asyncio.run(scene())


def shown(gateway: Gateway, cell: str) -> list[dict[str, Any]]:
    """Return the cell's outputs as a client that follows the protocol shows them at last."""
    outputs: list[dict[str, Any]] = []
    is_to_clear = False
    for message in (each for each in gateway.messages if parent(each) == cell and each["channel"] == "iopub"):
        if message["msg_type"] == "clear_output":
            is_to_clear = message["content"]["wait"]
            outputs = outputs if is_to_clear else []
        elif message["msg_type"] not in ("status", "execute_input"):
            outputs = [message["content"]] if is_to_clear else [*outputs, message["content"]]
            is_to_clear = False
    return outputs


@pytest.mark.parametrize("ends_by", ["its output", "its end", "the memory", "the agent's end", "an interrupt"])
def test_no_line_of_a_wait_stays_in_the_cell(a_house: House, an_agent: Agent, tmp_path: Any, ends_by: str) -> None:
    want_shown = {"its output": ["on\n"], "an interrupt": [None]}.get(ends_by, [])
    code = WAIT if ends_by == "its output" else SILENT_WAIT

    async def scene() -> None:
        record = await a_house.kernel(tells_agent=True)
        gateway = await Gateway(record).connect()
        done = tmp_path / "done"
        cell = gateway.execute(code.format(path=str(done)))
        await until(lambda: an_agent.asked("watch"))
        an_agent.tell("lease", record.kernel_id, waits_seconds=9.0, reason="queue")
        await until(lambda: notices(gateway, cell))
        assert len(shown(gateway, cell)) == 1
        if ends_by == "the memory":
            an_agent.tell("lease", record.kernel_id, waits_seconds=None, state="resident")
            await until(lambda: not shown(gateway, cell))
        if ends_by == "the agent's end":
            an_agent.close()
            await until(lambda: not shown(gateway, cell))
        if ends_by == "an interrupt":
            gateway.request("interrupt_request", {}, "control")
        else:
            done.touch()
        await gateway.done(cell)
        assert [content.get("text") for content in shown(gateway, cell)] == want_shown

    asyncio.run(scene())


def test_a_cell_that_has_shown_something_is_told_nothing_and_keeps_it(
    a_house: House, an_agent: Agent, tmp_path: Any
) -> None:
    async def scene() -> None:
        record = await a_house.kernel(tells_agent=True)
        gateway = await Gateway(record).connect()
        done = tmp_path / "done"
        cell = gateway.execute("print('first', flush=True)\n" + WAIT.format(path=str(done)))
        await until(lambda: shown(gateway, cell))
        await until(lambda: an_agent.asked("watch"))
        an_agent.tell("lease", record.kernel_id, waits_seconds=9.0, reason="queue")
        await gateway.done(gateway.request("kernel_info_request", {}, "control"))
        an_agent.tell("lease", record.kernel_id, waits_seconds=21.0, reason="queue")
        await gateway.done(gateway.request("kernel_info_request", {}, "control"))
        done.touch()
        await gateway.done(cell)
        assert "".join(content["text"] for content in shown(gateway, cell)) == "first\non\n"
        assert notices(gateway, cell) == []

    asyncio.run(scene())


def test_cells_of_subshells_are_told_each_for_itself_and_queued_ones_not(
    a_house: House, an_agent: Agent, tmp_path: Any
) -> None:
    async def scene() -> None:
        record = await a_house.kernel(tells_agent=True)
        gateway = await Gateway(record).connect()
        await gateway.done(gateway.execute("1"))  # a kernel that only just starts may not answer the next
        gateway.request("create_subshell_request", {}, "control")
        made = await gateway.until(lambda m: isinstance(m, dict) and m["msg_type"] == "create_subshell_reply")
        first, second = tmp_path / "1", tmp_path / "2"
        main = gateway.execute(WAIT.format(path=str(first)))
        queued = gateway.execute("2")
        silent = gateway.execute("3", silent=True)
        message = gateway.session.msg(
            "execute_request",
            {"code": WAIT.format(path=str(second)), "silent": False, "store_history": False},
        )
        message["header"]["subshell_id"] = made["content"]["subshell_id"]
        gateway.link.send("shell", gateway.name, gateway.session.serialize(message))
        below = message["header"]["msg_id"]
        await until(lambda: an_agent.asked("watch"))
        an_agent.tell("lease", record.kernel_id, waits_seconds=9.0, reason="coming")
        await until(lambda: notices(gateway, main) and notices(gateway, below))
        first.touch()
        await gateway.done(main)
        await gateway.done(queued)
        an_agent.tell("lease", record.kernel_id, waits_seconds=None, state="resident")
        second.touch()
        await gateway.done(below)
        assert [len(notices(gateway, each)) for each in (main, queued, silent, below)] == [1, 0, 0, 1]
        assert [len(shown(gateway, each)) for each in (main, queued, silent, below)] == [1, 1, 0, 1], "their own output"

    asyncio.run(scene())


def test_notices_can_be_switched_off(a_house: House, an_agent: Agent) -> None:
    async def scene() -> None:
        record = await a_house.kernel(tells_agent=True, waiting_notice=False)
        gateway = await Gateway(record).connect()
        await gateway.done(gateway.execute("1"))
        await until(lambda: an_agent.work == 0)
        assert an_agent.asked("watch") == []

    asyncio.run(scene())


def test_an_agent_that_knows_no_leases_is_told_activity_all_the_same(a_house: House, an_agent: Agent) -> None:
    async def scene() -> None:
        an_agent.refuses.add("watch")
        gateway = await Gateway(await a_house.kernel(tells_agent=True)).connect()
        for _ in range(2):
            await gateway.done(gateway.execute("1"))
            await until(lambda: an_agent.work == 0)
        assert len(an_agent.asked("watch")) == 1

    asyncio.run(scene())

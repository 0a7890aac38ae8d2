"""All that a browser does with a kernel, over a real websocket, server, relay and kernel."""

from __future__ import annotations

import hashlib

import pytest
from jupyter_server.services.kernels.connection.base import serialize_msg_to_ws_v1

from .browser import Browser, text_of
from .conftest import House

ECHO = """
from ipykernel.comm import Comm
import hashlib
def echo(comm, opening):
    @comm.on_msg
    def heard(message):
        data = bytes(message["buffers"][0])
        comm.send({"sha256": hashlib.sha256(data).hexdigest()}, buffers=[data[::-1]])
get_ipython().kernel.comm_manager.register_target("echo", echo)
"""


@pytest.mark.parametrize("protocol", ["v1", "legacy"])
async def test_a_websocket_does_all_that_it_does_without_a_relay(a_house: House, protocol: str) -> None:
    """Use one kernel for all checks: its start takes longer than most of them."""
    browser = await a_house.browser(protocol).open()
    assert a_house.link.activity is not None, "the kernel has a relay"
    await check_cells(browser)
    await check_stdin(browser)
    await check_interrupt(a_house, browser)
    await check_debugger(browser)
    await check_subshell(a_house, browser)
    await check_widgets(browser)
    await check_large_buffers(browser)
    await browser.close()


async def check_cells(browser: Browser) -> None:
    seen = await browser.execute("print('out'); import sys; print('err', file=sys.stderr); 6 * 7")
    assert [m.type for m in seen if m.channel == "shell"] == ["execute_reply"]
    for name, text in (("stdout", "out\n"), ("stderr", "err\n")):
        assert "".join(m.content["text"] for m in seen if m.type == "stream" and m.content["name"] == name) == text
    [result] = [m for m in seen if m.type == "execute_result"]
    assert result.content["data"]["text/plain"] == "42"
    seen = await browser.execute("1 / 0")
    [error] = [m for m in seen if m.type == "error"]
    assert (error.channel, error.content["ename"]) == ("iopub", "ZeroDivisionError")
    assert any("ZeroDivisionError" in line for line in error.content["traceback"])
    completed = await browser.ask("shell", "complete_request", {"code": "impor", "cursor_pos": 5})
    assert "import" in completed.content["matches"]


async def check_stdin(browser: Browser) -> None:
    asked = await browser.run("print('hello ' + input('name? '))")
    question = await browser.until(lambda m: m.type == "input_request")
    assert (question.channel, question.content["prompt"]) == ("stdin", "name? ")
    await browser.send("stdin", "input_reply", {"value": "you"}, parent=question.header)
    assert text_of(await browser.finish(asked)) == "hello you\n"


async def check_interrupt(house: House, browser: Browser) -> None:
    asked = await browser.run("import time\nprint('on')\ntime.sleep(600)")
    await browser.until(lambda m: m.type == "stream")
    await house.act("interrupt")
    assert "KeyboardInterrupt" in [m.content["ename"] for m in await browser.finish(asked) if m.type == "error"]


async def check_debugger(browser: Browser) -> None:
    arguments = {"clientID": "test", "adapterID": "", "pathFormat": "path", "linesStartAt1": True}
    request = {"seq": 1, "type": "request", "command": "initialize", "arguments": arguments}
    reply = await browser.ask("control", "debug_request", request)
    assert (reply.channel, reply.content["success"]) == ("control", True)


async def check_subshell(house: House, browser: Browser) -> None:
    made = await browser.ask("control", "create_subshell_request", {})
    asked = await browser.run("import threading; go = threading.Event(); print('on'); go.wait(60)")
    await browser.until(lambda m: m.type == "stream" and m.parent == asked)
    short = await browser.execute("print('beside')", subshell=made.content["subshell_id"])
    assert text_of(short) == "beside\n"
    assert (await house.model())["execution_state"] == "busy", "the end of the subshell's cell is not the kernel's"
    activity = house.server.kernel_manager.activity.of(house.kernel_id)
    assert (activity.work, activity.idle_since) == (1, None)
    await browser.execute("go.set()", subshell=made.content["subshell_id"])
    await browser.finish(asked)


async def check_widgets(browser: Browser) -> None:
    seen = await browser.execute("import ipywidgets; slider = ipywidgets.IntSlider(value=7); slider")
    opened = [m for m in seen if m.type == "comm_open"]
    [slider] = [m for m in opened if m.content["data"]["state"].get("value") == 7]
    update = {"method": "update", "state": {"value": 21}, "buffer_paths": []}
    asked = await browser.send("shell", "comm_msg", {"comm_id": slider.content["comm_id"], "data": update})
    await browser.until(lambda m: m.parent == asked and m.content.get("execution_state") == "idle")
    assert text_of(await browser.execute("print(slider.value)")) == "21\n"
    state = await browser.ask("shell", "comm_info_request", {"target_name": "jupyter.widget"})
    assert slider.content["comm_id"] in state.content["comms"]


async def check_large_buffers(browser: Browser) -> None:
    """Send 50 MB to the kernel and back, and compare them."""
    await browser.execute(ECHO)
    data = hashlib.sha256(b"seed").digest() * (50_000_000 // 32)
    await browser.send("shell", "comm_open", {"comm_id": "c1", "target_name": "echo", "data": {}})
    await browser.send("shell", "comm_msg", {"comm_id": "c1", "data": {}}, buffers=[data])
    answer = await browser.until(lambda m: m.type == "comm_msg")
    assert answer.content["data"]["sha256"] == hashlib.sha256(data).hexdigest()
    assert [hashlib.sha256(b).hexdigest() for b in answer.buffers] == [hashlib.sha256(data[::-1]).hexdigest()]


async def test_a_request_that_is_sent_twice_is_executed_once(a_house: House) -> None:
    browser = await a_house.browser().open()
    request = browser.make("execute_request", {"code": "n = globals().get('n', 0) + 1", "silent": False})
    await browser.send("shell", "execute_request", {}, message=request)
    await browser.send("shell", "execute_request", {}, message=request)
    assert text_of(await browser.execute("print(n)")) == "1\n"


async def test_what_is_no_message_is_left_out_and_the_link_stays(a_house: House) -> None:
    browser = await a_house.browser().open()
    other = await a_house.browser(session="x" * 300).open()
    assert browser.socket is not None
    for parts in ([b"{}"], [b"junk"] * 4, [b"[]", b"{}", b"{}", b"{}"], [b"{}"] * 9000):
        await browser.socket.write_message(serialize_msg_to_ws_v1(parts, "shell"), binary=True)
    assert text_of(await other.execute("print('still here')")) == "still here\n"
    assert text_of(await browser.execute("print('and here')")) == "and here\n"

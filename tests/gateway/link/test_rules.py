"""The server's and Jupyter's own rules about messages: they hold for kernels with relays, too."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gateway.kernels.kernel import ManagedKernel

from .browser import is_state, text_of
from .conftest import House


class TestWithRules:
    @pytest.fixture
    def more_config(self) -> dict[str, Any]:
        return {
            "ZMQChannelsWebsocketConnection": {"iopub_msg_rate_limit": 1.0, "iopub_data_rate_limit": 0.0},
            "MappingKernelManager": {
                "allow_tracebacks": False,
                "allowed_message_types": ["kernel_info_request", "execute_request", "comm_info_request"],
            },
        }

    @pytest.mark.parametrize("protocol", ["v1", "legacy"])
    async def test_rates_types_and_tracebacks_are_as_configured(self, a_house: House, protocol: str) -> None:
        browser = await a_house.browser(protocol).open()
        seen = await browser.execute("for i in range(300): print(i, flush=True)")
        printed = text_of([m for m in seen if m.content.get("name") == "stdout"])
        assert "message rate exceeded" in text_of(seen)
        missing = 300 - len(printed.split())
        # A number and its end of line sometimes come in two messages.
        assert 0 < missing <= a_house.link.dropped["rate_limit"] <= 2 * missing
        counted = a_house.server.kernel_manager.activity.seen(a_house.kernel_id)[1]
        assert counted["rate_limit"] == a_house.link.dropped["rate_limit"]

        [error] = [m for m in await browser.execute("1 / 0") if m.type == "error"]
        assert error.content["ename"] == "ExecutionError"
        assert "ZeroDivisionError" not in str(error.content)

        await browser.send("shell", "complete_request", {"code": "impor", "cursor_pos": 5})
        await browser.ask("shell", "comm_info_request", {})
        assert "complete_reply" not in [m.type for m in browser.seen]


class TestWithLimits:
    @pytest.fixture
    def more_config(self) -> dict[str, Any]:
        limits = {"iopub_msg_rate_limit": 5.0, "iopub_data_rate_limit": 0.0, "rate_limit_window": 0.5}
        return {"ZMQChannelsWebsocketConnection": limits}

    @pytest.mark.parametrize("protocol", ["v1", "legacy"])
    async def test_what_was_kept_for_a_browser_comes_whole(
        self, a_house: House, protocol: str, until: Any, tmp_path: Path
    ) -> None:
        browser = await a_house.browser(protocol).open()
        count = "for i in range(200):\n    print(i, flush=True)\n"
        go = tmp_path / "go"
        wait = f"import os, time\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.01)\n"
        asked = await browser.run(f"{wait}{count}time.sleep(1)")
        await browser.until(lambda m: m.type == "execute_input")
        await browser.close()
        await until(lambda: not a_house.link._subscribers)
        go.touch()
        await until(lambda: not a_house.link.activity.is_busy)
        await browser.open()
        assert text_of(await browser.finish(asked)).split() == [str(i) for i in range(200)]
        assert "rate exceeded" in text_of(await browser.execute(count)), "what is printed now is limited as ever"


async def test_a_kernel_that_dies_is_restarted_and_its_browsers_are_told(a_house: House, until: Any) -> None:
    browser = await a_house.browser().open()
    await browser.execute("x = 1")
    kernel = a_house.server.kernel_manager.get_kernel(a_house.kernel_id)
    asked = await browser.run("import time; print('on'); time.sleep(600)")
    await browser.until(lambda m: m.type == "stream" and m.parent == asked)
    assert (await a_house.model())["execution_state"] == "busy"
    first_pid = kernel.provisioner.pid
    os.kill(first_pid, signal.SIGKILL)
    await browser.until(lambda m: is_state(m, "restarting"))
    await until(lambda: kernel.execution_state == "idle" and kernel.provisioner.pid != first_pid)
    [error] = [m for m in await browser.execute("x") if m.type == "error"]
    assert error.content["ename"] == "NameError"


async def test_a_restart_that_is_asked_for_keeps_the_websocket(a_house: House, until: Any) -> None:
    browser = await a_house.browser().open()
    await browser.execute("x = 1")
    link = a_house.link
    await until(lambda: not link.activity.is_busy)
    asked_at = time.time()
    await a_house.act("restart")
    await until(lambda: link.activity.idle_since >= asked_at)  # and not since the work of the kernel before
    assert "NameError" in [m.content.get("ename") for m in await browser.execute("x")]
    assert a_house.link is link
    assert (await a_house.model())["connections"] == 1
    await until(lambda: not link.activity.is_busy)
    assert (await a_house.model())["execution_state"] == "idle"


async def test_nothing_is_kept_twice_and_the_link_ends_with_the_kernel(a_house: House, until: Any) -> None:
    browser = await a_house.browser().open()
    await browser.execute("1")
    await browser.close()
    manager = a_house.server.kernel_manager
    await until(lambda: manager._kernel_connections[a_house.kernel_id] == 0)
    assert a_house.kernel_id not in manager._kernel_buffers
    await a_house.fetch("api", "kernels", a_house.kernel_id, method="DELETE")
    assert manager.links.get(a_house.kernel_id) is None


async def test_a_message_with_a_wrong_signature_is_left_out_and_the_rest_goes_on(a_house: House) -> None:
    browser = await a_house.browser("legacy").open()
    seen = await browser.execute(
        "session = get_ipython().kernel.session\nkey, session.key = session.key, b'wrong'\n"
        "print('forged', flush=True)\nsession.key = key\nprint('signed', flush=True)"
    )
    assert "signed" in text_of(seen)
    assert "forged" not in text_of(seen)
    assert a_house.link.dropped["unreadable"] > 0


async def test_a_kernel_that_runs_by_its_relays_word_is_not_looked_for(
    a_house: House, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand restarters would look every few seconds."""
    kernel, looks = a_house.server.kernel_manager.get_kernel(a_house.kernel_id), list[int]()
    kernel.stop_restarter()
    provisioner = kernel.provisioner
    poll = provisioner.poll

    async def counted() -> int | None:
        looks.append(provisioner.pid)
        return await poll()  # type: ignore[no-any-return]

    monkeypatch.setattr(provisioner, "poll", counted)
    await until(lambda: a_house.link.kernel is not None and a_house.link.kernel.state == "started")
    assert await kernel.is_alive()
    assert looks == []
    os.kill(provisioner.pid, signal.SIGKILL)

    async def is_dead() -> bool:
        return not await kernel.is_alive()

    await until(is_dead)
    assert looks == [provisioner.pid]
    assert kernel.process_end.signal == signal.SIGKILL


async def test_a_further_kernel_starts_without_what_the_server_has(
    a_house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(a_house.server.event_logger, "register_event_schema", lambda *_: made.append("schema"))
    monkeypatch.setattr(ManagedKernel, "_create_connected_socket", lambda *_, **__: made.append("socket"))
    await a_house.start_kernel()
    kernel = a_house.server.kernel_manager.get_kernel(a_house.kernel_id)
    await kernel.ready
    assert kernel.event_logger is a_house.server.event_logger
    assert made == []
    monkeypatch.undo()

"""The client: answers as values, lost connections for every waiter, one agent for many starters."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import subprocess
import sys
import threading
import weakref
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.client.client import (
    AgentClient,
    AgentRefused,
    AgentStartError,
    AgentUnreachable,
    AgentUnreadable,
    KernelActivity,
    find_agent,
    query,
    start_agent,
)
from jupyter_aliquot.gpu_hook.paths import PathError

FAKE_AGENT = (sys.executable, str(Path(__file__).parent / "run_fake_agent.py"))


def test_a_client_reserves_and_sees_what_it_holds(a_node: Any) -> None:
    async def scene() -> None:
        async with await AgentClient.connect(a_node.folder) as client:
            hello = await client.hello("test")
            assert (hello.pid, hello.driver) == (a_node.process.pid, "nvidia")
            grant = await client.reserve("k", owner="ada", hundredths=25, attributes={"a": "b"})
            assert grant.devices[0].quota_bytes == 256 << 20
            status = await client.status()
            assert status.devices[0].reserved_hundredths == 25
            assert (status.kernels[0].kernel_id, status.kernels[0].attributes) == ("k", (("a", "b"),))
            with pytest.raises(AgentRefused, match="Queued") as refused:
                await client.reserve("l", owner="ada", hundredths=100)
            assert refused.value.code == "no_room"
            assert [await client.release("k"), await client.release("k")] == [True, False]

    asyncio.run(scene())


def test_what_a_relay_says_is_open_is_shown_and_holds_nothing(a_node: Any) -> None:
    async def scene() -> None:
        async with (
            await AgentClient.connect(a_node.folder) as gateway,
            await AgentClient.connect(a_node.folder) as relay,
        ):
            with pytest.raises(AgentRefused, match="no kernel k is reserved") as refused:
                await relay.ask("activity", kernel_id="k", open=1, work=1, since=5.0)
            assert refused.value.code == "not_found"
            await gateway.reserve("k", owner="ada", hundredths=25)
            assert (await gateway.status()).kernels[0].activity is None
            for activity in (KernelActivity(3, 1, 1763.25), KernelActivity(1, 0, None)):
                await relay.ask("activity", kernel_id="k", **asdict(activity))
                assert (await gateway.status()).kernels[0].activity == activity
            await gateway.close()
            await asyncio.to_thread(a_node.until, lambda: a_node.kernel() is None)

    asyncio.run(scene())


def test_many_questions_at_once_each_get_their_answer(a_node: Any) -> None:
    async def scene() -> None:
        async with await AgentClient.connect(a_node.folder) as client:
            names = [f"k{i}" for i in range(50)]
            grants = await asyncio.gather(*(client.reserve(n, owner="ada", hundredths=1) for n in names))
            assert [grant.kernel_id for grant in grants] == names

    asyncio.run(scene())


@pytest.mark.parametrize("listen", ["subscribe", "watch_node"])
def test_a_subscriber_hears_of_changes(listen: str, a_node: Any) -> None:
    async def scene() -> None:
        async with (
            await AgentClient.connect(a_node.folder) as client,
            await AgentClient.connect(a_node.folder) as other,
        ):
            changes = getattr(client, listen)()
            first = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            await client.status()  # the subscription was sent before it
            await other.reserve("k", owner="ada", hundredths=25)
            await asyncio.wait_for(first, 30)
            await changes.aclose()

    asyncio.run(scene())


def test_a_lost_agent_fails_all_waiters_at_once(a_node: Any) -> None:
    async def scene() -> None:
        client = await AgentClient.connect(a_node.folder)
        changes = client.subscribe()
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        await client.status()
        a_node.process.send_signal(signal.SIGSTOP)
        questions = [asyncio.ensure_future(client.status()) for _ in range(3)]
        await asyncio.sleep(0)
        a_node.end(signal.SIGKILL)
        for question in (*questions, waiting):
            with pytest.raises(AgentUnreachable, match="lost the agent"):
                await asyncio.wait_for(question, 30)
        with pytest.raises(AgentUnreachable):
            await client.status()
        assert not client.is_connected
        await client.close()

    asyncio.run(scene())


def test_closing_ends_a_subscription_quietly(a_node: Any) -> None:
    async def scene() -> None:
        client = await AgentClient.connect(a_node.folder)

        async def listen() -> int:
            return len([change async for change in client.subscribe()])

        listener = asyncio.ensure_future(listen())
        await asyncio.sleep(0)
        await client.status()
        await client.close()
        await client.close()
        assert await asyncio.wait_for(listener, 30) == 0

    asyncio.run(scene())


def test_a_closed_clients_connection_is_freed_without_a_look_for_garbage(a_node: Any) -> None:
    async def scene() -> weakref.ref[Any]:
        async with await AgentClient.connect(a_node.folder) as client:
            await client.hello("test")
            return weakref.ref(client._writer.transport)

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(scene())() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("answer", [b"hello\n", b"[]\n", b"", b'{"id":1,"ok":true}\n'])
def test_an_agent_that_talks_nonsense_is_no_hang(a_folder: Path, answer: bytes) -> None:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(a_folder / "agent.sock"))
    listening.listen()

    def talk() -> None:
        for _ in range(2):
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)

    talker = threading.Thread(target=talk)
    talker.start()

    async def scene() -> None:
        client = await AgentClient.connect(a_folder)
        with pytest.raises((AgentUnreachable, AgentUnreadable)):
            await asyncio.wait_for(client.status(), 30)
        await client.close()

    asyncio.run(scene())
    if answer.endswith(b"true}\n"):
        assert query("status", runtime_dir=a_folder) == {"id": 1, "ok": True}
    else:
        with pytest.raises((AgentUnreachable, AgentUnreadable, AgentRefused)):
            query("status", runtime_dir=a_folder)
    talker.join(30)
    listening.close()


def test_where_no_agent_is_the_message_says_what_to_do(a_folder: Path) -> None:
    with pytest.raises(AgentUnreachable, match=r"there is no socket; start one with: aliquot agent"):
        query("status", runtime_dir=a_folder)
    with pytest.raises(AgentUnreachable, match="at most 50"):
        query("status", runtime_dir=a_folder / ("x" * 50))
    with pytest.raises(AgentUnreachable, match="there is no socket"):
        asyncio.run(AgentClient.connect(a_folder))


def test_a_stale_socket_is_called_stale(an_idle_node: Any) -> None:
    an_idle_node.start()
    an_idle_node.end(signal.SIGKILL)
    facts = find_agent(an_idle_node.folder)
    assert (facts.pid, facts.answers, facts.socket.exists()) == (None, False, True)
    with pytest.raises(AgentUnreachable, match="the socket is stale"):
        query("status", runtime_dir=an_idle_node.folder)


def test_find_agent_tells_who_holds_the_lock(a_node: Any) -> None:
    facts = find_agent(a_node.folder)
    assert (facts.pid, facts.answers, facts.driver) == (a_node.process.pid, True, "nvidia")


def test_racing_starters_start_one_agent(an_idle_node: Any) -> None:
    folder = an_idle_node.folder
    results: list[bool] = []

    def starter() -> None:
        results.append(start_agent(folder, command=FAKE_AGENT, exit_when_idle_seconds=30, seconds=60))

    threads = [threading.Thread(target=starter) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert sorted(results) == [False] * 7 + [True]
    assert an_idle_node.log().count("event=started") == 1
    pid = find_agent(folder).pid
    assert query("shutdown", runtime_dir=folder)["ok"]
    # As its starters, we leave no zombie.
    an_idle_node.until(lambda: not Path(f"/proc/{pid}").exists())


def test_an_agent_that_cannot_start_leaves_its_last_words(a_folder: Path) -> None:
    command = (sys.executable, "-c", "import sys; sys.exit('aliquot agent: no room on /dev/shm')")
    with pytest.raises(AgentStartError, match="ended with code 1: no room on /dev/shm"):
        start_agent(a_folder, command=command)
    with pytest.raises(AgentStartError, match="cannot start the node agent"):
        start_agent(a_folder, command=("/nowhere/python",))
    with pytest.raises(PathError, match="at most 50"):
        start_agent(a_folder / ("x" * 50))


def test_an_agent_that_never_answers_is_ended(a_folder: Path) -> None:
    command = (sys.executable, "-c", "import time; time.sleep(60)")
    with pytest.raises(AgentStartError, match=r"did not answer within 0\.5 s"):
        start_agent(a_folder, command=command, seconds=0.5)


def test_a_started_agent_outlives_its_starter(an_idle_node: Any) -> None:
    call = f"start_agent({str(an_idle_node.folder)!r}, command={FAKE_AGENT!r}, seconds=60)"
    code = f"from jupyter_aliquot.gpu_hook.client.client import start_agent; {call}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=90)
    assert query("shutdown", runtime_dir=an_idle_node.folder)["ok"]
    an_idle_node.until(lambda: find_agent(an_idle_node.folder).pid is None)

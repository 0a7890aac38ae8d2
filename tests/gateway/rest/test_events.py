"""The stream of events: its content by user, in the form of its schema."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.events.diff import by_id, kernel_news
from jupyter_aliquot.gateway.events.stream import _LONGEST_QUEUE, KernelEvents, Listener
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.sharing.shares import Share, Shares
from jupyter_aliquot.gateway.status.report import PLAIN, LocalKernel, StatusSnapshot, kernel_reports
from jupyter_aliquot.gpu_hook.client.client import read_status

from .conftest import TOKENS, Ask
from .fake_agent import GIB, FakeAgent, device, kernel

ADA = User("ada", "admin")
PATIENCE_SECONDS = 30.0


def look(*kernels: dict[str, Any]) -> dict[str, Any]:
    node = {"node": "n", "driver": "softgpu", "enforcer": "hook", "connections": 1, "devices": [device()]}
    return dict(
        by_id(kernel_reports(StatusSnapshot("", node=NodeView(read_status({**node, "kernels": list(kernels)}))), ADA))
    )


def residency(state: str, **more: Any) -> dict[str, Any]:
    return {"state": state, "mode": "vmm", "swapped_bytes": GIB if state == "swapped" else 0, **more}


def told(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str, Any]]:
    return [(news["kind"], news["state"], news["was"]) for news in kernel_news(before, after)]


def test_each_change_is_one_event_and_an_equal_look_none() -> None:
    here, out = kernel("k", "ada", residency=residency("resident")), kernel("k", "ada", residency=residency("swapped"))
    waits = {"reason": "no room", "seconds": 1.5, "before": 1}
    waking = kernel("k", "ada", residency=residency("swapped", waits=waits))
    assert told(look(here), look(here)) == []
    assert told(look(), look(here)) == [("state", "on_gpu", None)]
    assert told(look(here), look(out)) == [("state", "swapped_out", "on_gpu")]
    assert told(look(out), look(waking)) == [("state", "restoring", "swapped_out")]
    assert told(look(waking), look(waking)) == []
    later = kernel("k", "ada", residency=residency("swapped", waits={**waits, "seconds": 2.0}))
    assert told(look(waking), look(later)) == [("queued", "restoring", "restoring")]
    next_one = kernel("k", "ada", residency=residency("swapped", waits={**waits, "before": 0}))
    assert told(look(waking), look(next_one)) == [("queued", "restoring", "restoring")]
    coming = kernel("k", "ada", residency=residency("swapping_in"))
    assert told(look(waking), look(coming)) == [("queued", "restoring", "restoring")], "the wait is over"
    grows = kernel("k", "ada", residency=residency("resident", waits=waits))
    assert told(look(here), look(grows)) == [("queued", "on_gpu", "on_gpu")], "an allocation waits"
    assert told(look(grows), look(here)) == [("queued", "on_gpu", "on_gpu")]
    assert told(look(waking), look()) == [("state", "ended", "restoring")]
    [news] = kernel_news(look(later), look(waking))
    assert news["queued"] == {"reason": "no room", "seconds": 1.5, "ahead": 1, "expected_seconds": None}
    assert news["swapped_bytes"] == GIB


def test_what_a_requested_swap_out_waits_for_is_no_event_and_a_doubt_is_one() -> None:
    here = look(kernel("k", "ada", residency=residency("resident")))
    waits, later = (
        look(kernel("k", "ada", residency=residency("resident", swap_out_waits_for=one)))
        for one in ("host memory for its copy", "the end of its work")
    )
    assert waits["k"]["reason"] != later["k"]["reason"]
    assert told(here, waits) == told(waits, later) == told(later, here) == []
    doubted = {"k": {**here["k"], "reason": "its node agent does not know it"}}
    assert told(waits, doubted) == told(doubted, waits) == [("state", "on_gpu", "on_gpu")]


def test_sizes_are_told_as_they_wait_come_and_go() -> None:
    plain = look(kernel("k", "ada"))
    resize = {"state": "queued", "gpus": 0.5, "requested_memory_bytes": None, "priority": "normal"}
    resize |= {"reason": "no room", "position": 1, "since": "2026-01-01T00:00:00Z"}
    waiting = {"k": {**plain["k"], "resize": resize}}
    grown = {"k": {**plain["k"], "gpus": 0.5}}

    def resize(before: dict[str, Any], after: dict[str, Any]) -> Any:
        [news] = kernel_news(before, after)
        return news["kind"], news["resize"]["state"], news["resize"]["gpus"]

    assert resize(plain, waiting) == ("resize", "queued", 0.5)
    assert resize(waiting, grown) == ("resize", "granted", 0.5)
    assert resize(waiting, plain) == ("resize", "withdrawn", 0.5)
    assert kernel_news(waiting, waiting) == []
    over = {"k": {**plain["k"], "over_limit_bytes": 5}}
    assert told(plain, over) == told(over, plain) == [("memory_limit", "on_gpu", "on_gpu")]


def test_memory_that_was_refused_is_told_once_and_again_when_it_was_more() -> None:
    plain = look(kernel("k", "ada"))["k"]

    def needed(before: int | None, after: int | None, *times: str) -> list[str]:
        looks = [{"k": {**plain, "required_bytes": amount}} for amount in (before, after)]
        for one, at in zip(looks, times, strict=False):
            one["k"]["last_failed_allocation_at"] = at
        return [news["kind"] for news in kernel_news(*looks)]

    quota = plain["memory_limit_bytes"]
    assert needed(None, quota + 1) == needed(quota + 1, quota + 2) == ["memory_limit"]
    assert needed(quota + 1, quota + 1) == needed(None, quota) == needed(quota + 1, None) == []
    assert needed(quota + 1, quota + 1, "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z") == ["memory_limit"]


async def test_who_a_kernel_is_shared_with_hears_of_it_and_who_lost_it_hears_that_and_nothing_after() -> None:
    shared = Shares((Share("user", "bob", Access.READ),))
    alices = LocalKernel("k", "python3", "alice", "", PLAIN, "on_gpu")
    snapshots = [alices, alices._replace(shares=shared), alices, alices._replace(state="swapped_out")]
    snapshot = {"kernel": snapshots[0]}

    def look() -> StatusSnapshot:
        return StatusSnapshot("", kernels=(snapshot["kernel"],))

    async def gather() -> StatusSnapshot:
        return look()

    events = KernelEvents(look, gather, logging.getLogger("test"))
    alice, bob, carol = (events.listen(User(name, "user")) for name in ("alice", "bob", "carol"))
    for kernel_now in snapshots[1:]:
        snapshot["kernel"] = kernel_now
        events.tell()
        for _ in range(4):  # the look, and the logger's own tasks, which deliver
            await asyncio.sleep(0)

    def heard(listener: Listener) -> list[tuple[str, str]]:
        found = [listener.events.get_nowait() for _ in range(listener.events.qsize())]
        return [(event["kind"], event["state"]) for event in found if event is not None]

    want = [("shared", "on_gpu"), ("shared", "on_gpu")]
    assert heard(alice) == [*want, ("state", "swapped_out")]
    assert (heard(bob), heard(carol)) == (want, [])


def test_a_listener_that_does_not_read_is_told_that_its_stream_is_over() -> None:
    listener = Listener(ADA)
    for number in range(2 * _LONGEST_QUEUE):
        listener.put({"number": number})
    events = [listener.events.get_nowait() for _ in range(listener.events.qsize())]
    assert len(events) == _LONGEST_QUEUE + 1
    assert events[-1] is None


def test_while_nobody_listens_nothing_is_looked_at() -> None:
    def snapshot() -> StatusSnapshot:
        raise AssertionError("looked")

    async def gather() -> StatusSnapshot:
        return snapshot()

    KernelEvents(snapshot, gather, logging.getLogger()).tell()


@pytest.fixture
def open_stream(ask: Ask, jp_ws_fetch: Any) -> Callable[[str], Any]:
    async def opened(who: str) -> Any:
        return await jp_ws_fetch("aliquot/api/v1/events", headers={"Authorization": f"token {TOKENS[who]}"})

    return opened


async def until_told(stream: Any, kind: str, kernel_id: str) -> dict[str, Any]:
    async def found() -> dict[str, Any]:
        while True:
            message = await stream.read_message()
            assert message is not None, "the stream ended"
            event: dict[str, Any] = json.loads(message)
            if (event["kind"], event["kernel_id"]) == (kind, kernel_id):
                return event

    return await asyncio.wait_for(found(), PATIENCE_SECONDS)


async def test_everybody_hears_of_his_own_kernels_alone(
    ask: Ask, an_agent: FakeAgent, open_stream: Callable[[str], Any]
) -> None:
    an_agent.kernels = [kernel("k1", "alice"), kernel("k2", "bob")]
    await an_agent.start()
    assert (await ask("alice", "GET", "aliquot/api/v1/status")).status == 200
    streams = {who: await open_stream(who) for who in ("alice", "bob", "ada")}
    for turn in range(3):
        state, want_state = ("swapped", "swapped_out") if turn % 2 == 0 else ("resident", "on_gpu")
        an_agent.kernels = [kernel(k, o, residency=residency(state)) for k, o in (("k1", "alice"), ("k2", "bob"))]
        alices = await until_told(streams["alice"], "state", "k1")
        bobs = await until_told(streams["bob"], "state", "k2")
        adas = [await until_told(streams["ada"], "state", one) for one in ("k1", "k2")]
        assert (alices["state"], alices["owner"], bobs["owner"]) == (want_state, "alice", "bob")
        assert alices["schema_id"] == "https://schema.aliquot.dev/kernel-change"
        assert [event["owner"] for event in adas] == ["alice", "bob"]
    heard = [json.loads(m) for m in (await waiting_messages(streams["bob"]))]
    assert {event["owner"] for event in heard} <= {"bob"}
    for stream in streams.values():
        stream.close()


async def waiting_messages(stream: Any) -> list[str]:
    """Return the messages that have come and were not read."""
    found = []
    while True:
        try:
            found.append(await asyncio.wait_for(stream.read_message(), 0.1))
        except asyncio.TimeoutError:
            return found


async def test_a_stream_ends_with_its_server(
    ask: Ask, an_agent: FakeAgent, a_server: ServerApp, open_stream: Callable[[str], Any]
) -> None:
    await an_agent.start()
    assert (await ask("alice", "GET", "aliquot/api/v1/status")).status == 200
    stream = await open_stream("alice")
    assert (await ask("alice", "GET", "aliquot/api/v1/status")).status == 200
    await a_server.extension_manager.stop_all_extensions()
    assert await asyncio.wait_for(stream.read_message(), PATIENCE_SECONDS) is None
    assert stream.close_code == 1013


async def test_a_look_that_began_before_the_first_listener_tells_nothing_that_is_undone() -> None:
    began, goes_on = asyncio.Event(), asyncio.Event()
    kernel = LocalKernel("k", "python3", "alice", "", PLAIN, "on_gpu")
    now = {"kernel": kernel}

    def look() -> StatusSnapshot:
        return StatusSnapshot("", kernels=(now["kernel"],))

    async def gather() -> StatusSnapshot:
        found = look()
        began.set()
        await goes_on.wait()
        return found

    events = KernelEvents(look, gather, logging.getLogger("test"))
    first = events.listen(ADA)
    events.tell()
    await began.wait()  # it has seen the kernel on its GPU
    events.forget(first)
    now["kernel"] = kernel._replace(state="swapped_out")
    second = events.listen(ADA)
    goes_on.set()
    for _ in range(8):
        await asyncio.sleep(0)
    assert second.events.empty(), "the kernel is as the second listener found it"
    await events.close()

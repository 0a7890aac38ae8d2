"""Evictions: the news to a kernel's owner, its reason and its actor, and cases without news."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.events.diff import by_id, kernel_news
from jupyter_aliquot.gateway.events.evictions import find_eviction
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.status.report import StatusSnapshot, kernel_reports
from jupyter_aliquot.gpu_hook.client.client import read_status

from .conftest import TOKENS, Ask
from .fake_agent import GIB, FakeAgent, device, kernel

ADA = User("ada", "admin")


def look(**changes: Any) -> Any:
    """Return the report of Alice's kernel."""
    node = {"node": "n", "driver": "softgpu", "enforcer": "hook", "connections": 1, "devices": [device()]}
    status = read_status({**node, "kernels": [kernel("k", "alice", **changes)]})
    [report] = kernel_reports(StatusSnapshot("", node=NodeView(status)), ADA)
    return dict(report)


def at(swaps_out: int, left_for: str | None = None) -> Any:
    return look(residency={"state": "resident", "mode": "vmm", "swaps_out": swaps_out, "left_for": left_for})


@pytest.mark.parametrize(
    ("left_for", "want"),
    [
        ("idle", ("idle", True)),
        ("turn", ("turn", True)),
        ("production", ("normal_priority", False)),
        ("asked", None),
        ("compute", None),
    ],
)
def test_a_kernel_that_made_room_hears_so_once(left_for: str, want: tuple[str, bool] | None) -> None:
    taken = find_eviction(at(1), at(2, left_for), None)
    assert (None if taken is None else taken[0]) == (
        None if want is None else {"code": want[0], "by": "", "is_quiet": want[1]}
    )
    assert find_eviction(at(2, left_for), at(2, left_for), None) is None
    # The agent reported nothing of the kernel's memory before.
    assert find_eviction(look(), at(2, left_for), None) is None


def test_what_somebody_else_asked_is_told_with_his_name_and_ones_own_wish_is_not() -> None:
    taken = find_eviction(at(0), at(1, "asked"), "ada")
    assert taken is not None
    assert taken[0] == {"code": "requested", "by": "ada", "is_quiet": False}
    assert find_eviction(at(0), at(1, "asked"), "alice") is None


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"hundredths": 50}, "ada changed its size from 0.25 to 0.5 GPU."),
        ({"memory_limit": 2 * GIB}, "ada changed its memory limit to 2.0 GiB."),
        ({"workload_class": "opportunistic"}, "ada changed its priority to low."),
    ],
)
def test_another_size_is_told_where_it_was_somebody_elses_doing(change: dict[str, Any], want: str) -> None:
    taken = find_eviction(look(), look(**change), "ada")
    assert taken == ({"code": "resized", "by": "ada", "is_quiet": False}, want)
    assert find_eviction(look(), look(**change), "alice") is None
    assert find_eviction(look(), look(**change), None) is None


def test_the_event_says_what_was_taken_and_the_others_do_not() -> None:
    before, after = by_id([at(0)]), by_id([at(1, "production")])
    [news] = kernel_news(before, after)
    assert (news["kind"], news["evicted"]["code"]) == ("evicted", "normal_priority")
    assert "A normal-priority kernel needed the room" in news["reason"]
    [news] = kernel_news(before, {"k": {**before["k"], "state": "swapped_out"}})
    assert (news["kind"], news["evicted"]) == ("state", None)


async def test_an_administrators_change_is_told_to_the_owner(
    ask: Ask, an_agent: FakeAgent, jp_ws_fetch: Callable[..., Any]
) -> None:
    an_agent.gives_room = True
    an_agent.kernels = [kernel("k1", "alice")]
    await an_agent.start()
    assert (await ask("alice", "GET", "aliquot/api/v1/status")).status == 200
    stream = await jp_ws_fetch("aliquot/api/v1/events", headers={"Authorization": f"token {TOKENS['alice']}"})
    for who, gpus in (("alice", 0.5), ("ada", 0.25)):
        assert (await ask(who, "PATCH", "aliquot/api/v1/kernels/k1", body={"gpus": gpus})).status == 200
    heard: list[dict[str, Any]] = []
    while not heard or heard[-1]["kind"] != "evicted":
        heard.append(json.loads(await asyncio.wait_for(stream.read_message(), 30)))
    assert [event["kind"] for event in heard] == ["resize", "resize", "evicted"]
    assert heard[-1]["evicted"] == {"code": "resized", "by": "ada", "is_quiet": False}
    assert heard[-1]["reason"] == "ada changed its size from 0.5 to 0.25 GPU."
    stream.close()

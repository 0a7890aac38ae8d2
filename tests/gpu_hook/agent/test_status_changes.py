"""A client that requests the status every second gets the changed kernels alone.

It still has all of them.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.agent.server.status_maker import StatusChanges
from jupyter_aliquot.gpu_hook.client.client import AgentClient, AgentRefused
from jupyter_aliquot.gpu_hook.client.reports import UnreadableReportError, read_status
from jupyter_aliquot.gpu_hook.client.status_reader import StatusReader

NODE = {"node": "n", "driver": "softgpu", "enforcer": "hook", "connections": 1, "devices": []}


def described(name: str, generation: int = 1) -> dict[str, Any]:
    fixed = {"owner": "ada", "label": "", "hundredths": 1, "memory_limit": None, "workload_class": "production"}
    more = {"attributes": {}, "created": 1.0, "interception": "holds", "pids": [], "ending": False, "devices": []}
    return {"kernel_id": name, "generation": generation, **fixed, **more}


def told(changes: StatusChanges, number: int, kernels: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an answer as the client receives it."""
    found: dict[str, Any] = json.loads(json.dumps({**NODE, **changes.since(number, kernels)}))
    return found


def test_only_kernels_that_changed_are_told_to_who_saw_the_others() -> None:
    changes = StatusChanges()
    first = told(changes, 0, [described("a"), described("b")])
    assert [kernel["kernel_id"] for kernel in first["kernels"]] == ["a", "b"]
    again = told(changes, first["seen"], [described("a"), described("b")])
    assert (again["kernels"], again["kernel_ids"], again["seen"]) == ([], ["a", "b"], first["seen"])
    later = told(changes, again["seen"], [described("a"), described("b", 2), described("c")])
    assert [kernel["kernel_id"] for kernel in later["kernels"]] == ["b", "c"]


def test_a_kernel_that_came_back_under_its_id_is_told_anew() -> None:
    changes, reader = StatusChanges(), StatusReader()
    for kernels in ([described("a")], [], [described("a")]):
        report = told(changes, reader.seen, kernels)
        assert len(reader.read(report).kernels) == len(kernels)


def test_an_unchanged_device_is_the_same_object_and_a_changed_one_is_not() -> None:
    reader, device = StatusReader(), {"uuid": "GPU-a", "index": 0, "name": "A", "memory_bytes": 8, "lost": False}
    device |= {"utilization_percent": 0, "temperature_celsius": 40, "power_watts": 90}
    device |= {"reserved_hundredths": 0, "reserved_bytes": 0, "used_bytes": 0, "foreign_bytes": 0}

    def read(**more: Any) -> Any:
        return reader.read({**NODE, "kernels": [], "devices": [device], **more})

    first = read()
    assert read().devices[0] is first.devices[0]
    device = {**device, "reserved_hundredths": 25}
    assert [one.reserved_hundredths for one in read().devices] == [25]
    assert read(connections=7).connections == 7
    device = {**device, "reserved_hundredths": "many"}
    with pytest.raises(UnreadableReportError, match="reserved_hundredths"):
        read(connections=7)


def test_a_number_of_another_agent_has_seen_nothing() -> None:
    report = told(StatusChanges(), 7, [described("a")])
    assert ([kernel["kernel_id"] for kernel in report["kernels"]], report["seen"]) == (["a"], 1)


def test_readers_that_ask_at_different_times_all_see_what_is() -> None:
    dice, changes, now = random.Random(8), StatusChanges(), dict[str, int]()
    readers = [StatusReader() for _ in range(3)]
    for step in range(300):
        name = f"k{dice.randrange(6)}"
        if dice.random() < 0.3:
            now.pop(name, None)
        else:
            now[name] = step
        kernels = [described(name, generation) for name, generation in now.items()]
        for reader in readers:
            if dice.random() < 0.4:
                found = reader.read(told(changes, reader.seen, kernels))
                assert found == read_status({**NODE, "kernels": kernels})


def test_what_did_not_change_is_the_same_value_whether_it_was_told_or_not() -> None:
    changes, reader, old = StatusChanges(), StatusReader(), StatusReader()
    for one, ask in (
        (reader, lambda kernels: told(changes, reader.seen, kernels)),
        (old, lambda k: {**NODE, "kernels": k}),
    ):
        before = one.read(ask([described("a"), described("b")])).kernels
        after = one.read(ask([described("a"), described("b", 2)])).kernels
        assert (after[0] is before[0], after[1] is before[1], after[1].generation) == (True, False, 2)


@pytest.mark.parametrize("wrong", [{"kernel_ids": ["a", "b"], "seen": 1}, {"kernel_ids": 3, "seen": 1}, {"seen": 1}])
def test_an_answer_that_lacks_a_kernel_is_unreadable_and_changes_nothing(wrong: dict[str, Any]) -> None:
    reader = StatusReader()
    with pytest.raises(UnreadableReportError, match="changed"):
        reader.read({**NODE, "kernels": [described("a")], **wrong})
    assert reader.seen == 0


def test_an_agent_tells_a_client_what_changed(a_node: Any) -> None:
    async def scene() -> None:
        async with await AgentClient.connect(a_node.folder) as client:
            for name in ("a", "b"):
                await client.reserve(name, owner="ada", hundredths=1)
            first = await client.status()
            seen = (await client.ask("status", since=0))["seen"]
            await client.resize("b", hundredths=2)
            told = await client.ask("status", since=seen)
            assert [kernel["kernel_id"] for kernel in told["kernels"]] == ["b"]
            assert told["kernel_ids"] == ["a", "b"]
            second = await client.status()
            assert [kernel.hundredths for kernel in second.kernels] == [1, 2]
            assert second.kernels[0] is first.kernels[0]
            await client.release("a")
            assert [kernel.kernel_id for kernel in (await client.status()).kernels] == ["b"]
            for bad in (-1, 1.5, "x", True, 1 << 70):
                with pytest.raises(AgentRefused, match="since") as refused:
                    await client.ask("status", since=bad)
                assert refused.value.code == "bad_request"

    asyncio.run(scene())


def test_a_kernel_that_does_nothing_is_told_once_though_its_idle_time_grows(a_node: Any) -> None:
    def idle_seconds() -> float | None:
        found: float | None = a_node.kernel("a")["residency"]["idle_seconds"]
        return found

    async def scene() -> None:
        async with await AgentClient.connect(a_node.folder) as client:
            await client.reserve("a", owner="ada", hundredths=1)
            await client.ask("activity", kernel_id="a", open=0, work=0, since=time.time())
            await asyncio.to_thread(a_node.until, idle_seconds)
            before, seen = idle_seconds(), (await client.ask("status", since=0))["seen"]
            await asyncio.to_thread(a_node.until, lambda: idle_seconds() != before)
            assert (await client.ask("status", since=seen))["kernels"] == []
            assert not (await client.status()).kernels[0].residency.is_busy

    asyncio.run(scene())

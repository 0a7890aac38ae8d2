"""The measurement of contexts.

A driver's fault does not keep the agent from serving, nor one device's fault another's result.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_aliquot.gpu_hook.agent.devices import context_probe
from jupyter_aliquot.gpu_hook.agent.devices.audit import Findings
from jupyter_aliquot.gpu_hook.agent.devices.context_probe import ContextProbe, context_bytes, probe_devices
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceMonitor, DeviceReading
from jupyter_aliquot.gpu_hook.agent.ledger.contexts import ContextCosts
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts
from jupyter_aliquot.gpu_hook.agent.main import Agent

MIB = 1 << 20
UUIDS = [f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in range(3)]
# A driver of three devices; making a context fails on the device with this number. As bytes: its
# number comes last.
DRIVER = """
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 3; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, 0, 16); uuid[15] = device; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return device == FAILS ? 2 : 0; }
"""
# One that shows the devices of CUDA_VISIBLE_DEVICES alone, which are two at most.
VISIBLE_DRIVER = """
#include <stdlib.h>
#include <string.h>
static const char *visible(void) { return getenv("CUDA_VISIBLE_DEVICES"); }
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = !visible() ? 3 : strchr(visible(), ',') ? 2 : 1; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetUuid_v2(char *uuid, int device)
{
    memset(uuid, 0, 16);
    uuid[15] = visible() ? visible()[41 * device + 39] - '0' : device;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { return 0; }
int cuCtxSetCurrent(void *context) { return 1; }
"""
HANGING_DRIVER = """
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
int cuInit(unsigned flags) { close(creat(getenv("PROBE_BEGAN"), 0600)); for (;;) pause(); }
"""


@pytest.fixture
def a_library(tmp_path: Path) -> Callable[..., Path]:
    def make(source: str, *options: str) -> Path:
        library = tmp_path / "libcuda.so.1"
        (tmp_path / "driver.c").write_text(source)
        subprocess.run(["cc", "-shared", "-fPIC", *options, "-o", library, tmp_path / "driver.c"], check=True)
        return library

    return make


class Source:
    """Devices whose use grows by a context's bytes at each look.

    The driver reports no processes.
    """

    def __init__(self, *uuids: str) -> None:
        self.uuids, self.looks = uuids, 0
        self.answers = threading.Event()
        self.answers.set()

    def read(self) -> tuple[DeviceReading, ...]:
        self.answers.wait(60)
        self.looks += 1
        facts = (DeviceFacts(uuid, index, "Fake", 1 << 30) for index, uuid in enumerate(self.uuids))
        return tuple(DeviceReading(one, used_bytes=self.looks * MIB) for one in facts)

    def close(self) -> None: ...


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def test_a_device_that_fails_leaves_the_others_measured(a_library: Callable[..., Path]) -> None:
    async def scenario() -> None:
        monitor = DeviceMonitor(Source(*UUIDS), lambda: None)
        await monitor.look()
        found = await probe_devices(a_library(DRIVER, "-DFAILS=1"), monitor)
        assert found.contexts == {UUIDS[0]: MIB, UUIDS[2]: MIB}

    play(scenario())


def test_a_device_that_is_not_held_gets_no_context(a_library: Callable[..., Path]) -> None:
    async def scenario() -> None:
        monitor = DeviceMonitor(Source(*UUIDS), lambda: None)
        await monitor.look()
        checked: dict[str, str] = {}
        costs, cuda = ContextCosts(0), a_library(VISIBLE_DRIVER)
        await ContextProbe(
            cuda, monitor, costs, checked=checked.update, is_ours=lambda uuid: uuid == UUIDS[1]
        ).measure()
        assert [uuid for uuid in UUIDS if costs.is_measured(uuid)] == [UUIDS[1]]
        assert set(checked) == {UUIDS[1]}

    play(scenario())


def test_a_process_that_its_driver_does_not_let_end_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process stands for one in a system call that no signal ends."""

    class Stuck:
        def __init__(self) -> None:
            self.pid, self.stdout, self.was_killed = 7, asyncio.StreamReader(), False

        def kill(self) -> None:
            self.was_killed = True

        async def wait(self) -> int:
            await asyncio.Event().wait()
            return 0

    async def scenario() -> None:
        process = Stuck()

        async def start(*command: str, **options: object) -> Stuck:
            return process

        monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
        monkeypatch.setattr(context_probe, "_END_SECONDS", 0.01, raising=False)
        assert (await probe_devices(Path("/nowhere"), DeviceMonitor(Source(), lambda: None), 0.01)).contexts == {}
        assert process.was_killed

    play(scenario())


def test_a_silent_driver_is_asked_for_no_context_until_it_comes_back(a_library: Callable[..., Path]) -> None:
    library = a_library(DRIVER, "-DFAILS=1")

    async def scenario() -> None:
        source, costs = Source(*UUIDS), ContextCosts()
        source.answers.clear()
        monitor = DeviceMonitor(source, lambda: None, deadline_seconds=0.01)
        await monitor.look()
        probe = ContextProbe(library, monitor, costs)
        await probe.measure()
        assert probe._probes == 0
        source.answers.set()
        while not monitor.readings:
            await monitor.look()
        for _ in range(3):  # the failing device is not tried at each look
            probe.saw_devices()
            if probe._task is not None:
                await probe._task
        assert [costs.measured(uuid) for uuid in UUIDS] == [MIB, 0, MIB]
        assert probe._probes == 1
        await probe.close()

    play(scenario())


def test_a_device_that_comes_later_is_measured_then_and_a_known_one_is_not_again(
    a_library: Callable[..., Path],
) -> None:
    library = a_library(DRIVER, "-DFAILS=3")

    async def scenario() -> None:
        source, costs = Source(UUIDS[0]), ContextCosts()
        monitor = DeviceMonitor(source, lambda: None)
        await monitor.look()
        probe = ContextProbe(library, monitor, costs)
        await probe.measure()
        for uuids, want in ((UUIDS[:2], 2), ((), 2), (UUIDS[:2], 2)):
            source.uuids = tuple(uuids)
            await monitor.look()
            probe.saw_devices()
            if probe._task is not None:
                await probe._task
            assert probe._probes == want
        assert all(costs.is_measured(uuid) for uuid in UUIDS[:2])
        await probe.close()

    play(scenario())


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        ({}, {}, 5 * MIB),
        ({}, {7: None}, 5 * MIB),
        ({}, {4711: 5 * MIB}, 5 * MIB),
        ({3: MIB}, {3: MIB, 7: 2 * MIB}, 2 * MIB),
        ({3: MIB}, {3: 6 * MIB}, None),
        ({}, {3: MIB, 4711: MIB}, None),
        ({}, {3: MIB, 7: None}, None),
    ],
    ids=["no pids", "no bytes", "other namespace", "told", "other there", "other comes", "other comes, no bytes"],
)
def test_growth_is_a_context_only_where_nothing_else_can_have_grown(
    before: dict[int, int | None], after: dict[int, int | None], want: int | None
) -> None:
    facts = DeviceFacts(UUIDS[0], 0, "Fake", 1 << 30)
    looks = [DeviceReading(facts, used_bytes=n * MIB, processes=there) for n, there in ((10, before), (15, after))]
    assert context_bytes(7, *looks) == want


def test_the_end_of_an_agent_ends_a_measure_whose_driver_hangs(
    an_idle_node: Any, a_library: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = tmp_path / "began"
    monkeypatch.setenv("PROBE_BEGAN", str(began))
    an_idle_node.set_devices(count=1, cuda=str(a_library(HANGING_DRIVER)))
    an_idle_node.process = subprocess.Popen(
        an_idle_node.command("--log-file", str(an_idle_node.folder / "agent.log")), env=os.environ
    )
    an_idle_node.until(began.exists)
    assert an_idle_node.end() == 0
    assert "event=contexts_not_measured" not in an_idle_node.log(), "it waited for the deadline"


def test_findings_that_are_there_for_several_looks_are_learned_once() -> None:
    """An audit that waits for a slow file in /proc gives the same findings for several looks."""
    seen: list[Any] = []
    contexts = SimpleNamespace(note_seen=lambda *found: seen.append(found))
    first = Findings(least_contexts={("k", "GPU-a"): 7}, context_pids={("k", "GPU-a"): frozenset({1})})
    agent = SimpleNamespace(
        _auditor=SimpleNamespace(findings=first), _learned=None, _ledger=SimpleNamespace(contexts=contexts)
    )
    for _ in range(3):
        Agent._learn_contexts(cast(Agent, agent))
    assert seen == [(first.least_contexts, first.context_pids)]
    agent._auditor.findings = Findings()
    Agent._learn_contexts(cast(Agent, agent))
    assert len(seen) == 2


@pytest.mark.parametrize("are_known", [False, True])
def test_looks_from_before_kernels_are_restored_count_nothing_as_others(are_known: bool) -> None:
    async def scenario() -> None:
        booked: list[str] = []
        known = asyncio.Event()
        if are_known:
            known.set()

        def book(name: str, found: Any = None) -> Callable[..., Any]:
            return lambda *_: booked.append(name) or found

        agent = SimpleNamespace(
            _monitor=SimpleNamespace(readings=()),
            _devices_known=known,
            _overcommit=SimpleNamespace(look=book("overcommit")),
            _promised_bytes=lambda readings: 0,
            _claim_late=book("claims"),
            _ledger=SimpleNamespace(device_states=tuple),
            _set_devices=book("ledger"),
            _tell_devices=lambda before: None,
            _auditor=SimpleNamespace(look=book("audit")),
            _learn_contexts=book("contexts"),
            _reservations=SimpleNamespace(processes=tuple, book_looks=book("kernels"), on_devices=dict),
            _compute=SimpleNamespace(saw_devices=book("compute")),
            _follow_departures=book("departures"),
            _leases=SimpleNamespace(room=SimpleNamespace(look=book("room")), paged_bytes=lambda uuid: 0),
            _probe=SimpleNamespace(saw_devices=book("probe")),
        )
        Agent._saw_devices(cast(Agent, agent))
        served = ["claims", "audit", "contexts", "kernels", "compute", "departures", "room", "probe"]
        assert booked == ["ledger", "overcommit", *(served if are_known else [])]

    play(scenario())


def test_the_process_says_what_it_made_and_what_failed(a_library: Callable[..., Path]) -> None:
    module = "jupyter_aliquot.gpu_hook.agent.devices.context_process"
    library = a_library(DRIVER, "-DFAILS=1")
    told = subprocess.run([sys.executable, "-m", module, library], input="", capture_output=True, text=True, check=True)
    assert told.stdout == (
        f'{{"devices": ["{UUIDS[0]}", "{UUIDS[2]}"], "errors": ["device 1: cuDevicePrimaryCtxRetain answered 2"]}}\n'
    )

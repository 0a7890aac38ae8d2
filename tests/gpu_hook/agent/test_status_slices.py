"""A status of many kernels holds up no other work on the agent's loop, and shows one moment."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from reservations_node import MIB, UUID, AProcess, AReservationsNode

from jupyter_aliquot.gpu_hook.agent.actuators.actuation import Actuation, ChosenActuators
from jupyter_aliquot.gpu_hook.agent.base.slices import Slices, encode_line
from jupyter_aliquot.gpu_hook.agent.devices.audit import Findings
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading
from jupyter_aliquot.gpu_hook.agent.kernels.kernel import Kernel, KernelReading
from jupyter_aliquot.gpu_hook.agent.server.status_maker import StatusMaker, Subjects
from jupyter_aliquot.gpu_hook.protocol.codec import HookPage

KERNELS = 8


def short_slices() -> Slices:
    """Return slices that end after each piece of work.

    A second passes at each reading of the clock.
    """
    return Slices(itertools.count(0.0, 1.0).__next__)


def a_status_maker(node: AReservationsNode, *readings: DeviceReading) -> StatusMaker:
    enforcement = SimpleNamespace(
        name="hook", reports=(), state_of=lambda kernel_id: "holds", drifts_of=lambda kernel_id: 0
    )
    subjects = SimpleNamespace(
        ledger=node.ledger,
        reservations=node.reservations,
        evictions=SimpleNamespace(leaving=list),  # no kernel leaves
        relocations=SimpleNamespace(why_not=lambda kernel, facts: "", places=list),
        monitor=SimpleNamespace(readings=readings, problem=""),
        auditor=SimpleNamespace(findings=Findings()),
        enforcement=enforcement,
        actuation=Actuation(ChosenActuators((), ())),
        compute=node._compute,
        leases=node.leases,
        trims=SimpleNamespace(describe=lambda kernel_id: None),
        arena=node._arena,
        overcommit=SimpleNamespace(reasons={}, problem=""),
    )
    of_node = SimpleNamespace(name="n", driver=SimpleNamespace(kind="softgpu"), libraries=SimpleNamespace(problem=""))
    return StatusMaker(cast(Any, of_node), cast(Subjects, subjects), lambda: 0, short_slices)


def play(scenario: Callable[[AReservationsNode], Awaitable[None]], folder: Path) -> None:
    async def on_a_node() -> None:
        node = AReservationsNode(folder)
        connection = node.a_connection()
        for number in range(KERNELS):
            node.reserve(connection, f"k{number}", 5)
        await scenario(node)
        await node.end(is_killed=False)

    asyncio.run(on_a_node())


def ids(status: dict[str, Any]) -> list[str]:
    return [kernel["kernel_id"] for kernel in status["kernels"]]


class Ticks:
    """A timer like that of compute control, due in each turn of the loop."""

    def __init__(self) -> None:
        self.count = 0
        self._again()

    def _again(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(0, self._tick)

    def _tick(self) -> None:
        self.count += 1
        self._again()

    def stop(self) -> int:
        self._timer.cancel()
        return self.count


def test_a_control_period_runs_between_two_kernels_of_a_status_and_of_its_text(a_folder: Path) -> None:
    async def scenario(node: AReservationsNode) -> None:
        ticks = Ticks()
        status = await a_status_maker(node).describe(True, None)
        assert ticks.stop() >= KERNELS - 1
        assert len(ids(status)) == KERNELS
        ticks = Ticks()
        line = await encode_line({"id": 1, "ok": True, **status}, short_slices())
        assert ticks.stop() >= KERNELS - 1
        assert line == json.dumps({"id": 1, "ok": True, **status}, separators=(",", ":")).encode() + b"\n"

    play(scenario, a_folder)


def test_what_comes_goes_and_grows_while_a_status_is_made_is_told_as_it_is_at_its_end(a_folder: Path) -> None:
    async def scenario(node: AReservationsNode) -> None:
        making = asyncio.ensure_future(a_status_maker(node).describe(True, None))
        for _ in range(KERNELS // 2):
            await asyncio.sleep(0)
        assert not making.done()
        node.reservations.release("k0")  # in the status already
        node.reservations.release(f"k{KERNELS - 1}")  # not in the status yet
        node.reserve(node.a_connection(), "new", 5)
        node.reservations.resize("k1", 7, None, None)
        status = await making
        assert ids(status) == [*(f"k{number}" for number in range(1, KERNELS - 1)), "new"]
        sizes = {kernel["kernel_id"]: kernel["hundredths"] for kernel in status["kernels"]}
        assert (sizes["k1"], sizes["k2"]) == (7, 5)
        (device,) = status["devices"]
        assert device["reserved_hundredths"] == sum(sizes.values())

    play(scenario, a_folder)


def test_two_that_ask_at_once_are_answered_one_after_the_other(a_folder: Path) -> None:
    """Otherwise each turn of the loop would have a slice of each client."""

    async def scenario(node: AReservationsNode) -> None:
        maker, done = a_status_maker(node), list[int]()

        async def ask(number: int) -> dict[str, Any]:
            status = await maker.describe(True, 0)
            done.append(number)
            return status

        first, second = await asyncio.gather(ask(1), ask(2))
        assert done == [1, 2]
        assert ids(first) == ids(second)

    play(scenario, a_folder)


def test_what_a_device_has_in_use_is_told_whole_though_a_page_hides_some_of_it(a_folder: Path) -> None:
    """The status uses the figure that the room uses.

    By the pages' figure, the rest would look like memory given back since the look.
    """

    async def scenario(node: AReservationsNode) -> None:
        process = AProcess(node.folder("k0"))
        await process.hello()
        assert await process.borrow(50 * MIB) == 50 * MIB
        process.write_page(HookPage.CHARGED, 0)
        node.look()
        reading = DeviceReading(node.ledger.devices[0], used_bytes=50 * MIB)
        (device,) = (await a_status_maker(node, reading).describe(True, None))["devices"]
        assert (device["uuid"], device["charged_bytes"], device["used_bytes"]) == (UUID, 0, 50 * MIB)
        process.close()

    play(scenario, a_folder)


def test_a_status_without_the_use_of_devices_looks_at_no_kernel(
    a_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway asks for it with each grant, however many kernels there are."""

    async def scenario(node: AReservationsNode) -> None:
        def look(kernel: Kernel) -> KernelReading:
            raise AssertionError(f"the status looked at {kernel.kernel_id}")

        maker = a_status_maker(node, DeviceReading(node.ledger.devices[0], used_bytes=7 * MIB))
        whole = await maker.describe(True, None)
        monkeypatch.setattr(Kernel, "read", look)
        found = await maker.describe(False, None, False)
        (device,), (with_use,) = found["devices"], whole["devices"]
        assert device == {k: v for k, v in with_use.items() if k not in ("used_bytes", "charged_bytes")}
        assert {"used_bytes", "charged_bytes"} <= set(with_use)
        assert {**found, "kernels": 0, "devices": 0} == {**whole, "kernels": 0, "devices": 0}
        assert (found["kernels"], len(whole["kernels"])) == ([], KERNELS)

    play(scenario, a_folder)

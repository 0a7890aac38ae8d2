"""Moves between devices, as an agent without a driver decides about them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Container, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Activity
from jupyter_aliquot.gpu_hook.agent.base.processes import start_time_ticks
from jupyter_aliquot.gpu_hook.agent.kernels.kernel import Kernel
from jupyter_aliquot.gpu_hook.agent.kernels.relocations import (
    PATIENCE_SECONDS,
    RETRY_SECONDS,
    Relocations,
    is_overdue,
)
from jupyter_aliquot.gpu_hook.agent.kernels.reservations import Refused
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts
from jupyter_aliquot.gpu_hook.agent.scheduling.records import State
from jupyter_aliquot.gpu_hook.agent.swap.checkpoint import CheckpointTools, Circumstances
from jupyter_aliquot.gpu_hook.agent.swap.checkpoint_helper import CheckpointHelper
from jupyter_aliquot.gpu_hook.protocol.codec import Enforcer

if TYPE_CHECKING:
    from tests.gpu_hook.agent.reservations_node import CARD, AProcess, AReservationsNode
else:
    from reservations_node import CARD, AProcess, AReservationsNode

# Hold the lock of a process that begins CUDA.
ENTERS = (
    "import fcntl, sys; held = open(sys.argv[1]); fcntl.lockf(held, fcntl.LOCK_SH); print('in', flush=True); input()"
)
UUIDS = [f"GPU-00000000-0000-0000-0000-0000000000a{index}" for index in range(2)]


Enter = Callable[[Path], "subprocess.Popen[str]"]


@pytest.fixture
def enter() -> Iterator[Enter]:
    """Start a process of the kernel with this folder that begins CUDA, and does not come to an end with it."""
    started: list[subprocess.Popen[str]] = []

    def start(folder: Path) -> subprocess.Popen[str]:
        command, pipe = [sys.executable, "-c", ENTERS, str(folder / "entrance")], subprocess.PIPE
        started.append(process := subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def _put_link(path: Path) -> None:
    path.symlink_to("elsewhere")


class Moving:
    """A node of two devices, and a kernel without a process of its own on the first."""

    def __init__(self, node: Any, open_holder: Callable[[], Any]) -> None:
        self.node = node
        node.set_devices(count=2)
        node.start()
        self.holder = open_holder()
        placement = [{"uuid": UUIDS[0], "hundredths": 50}]
        assert self.holder.reserve("k", 50, placement=placement)["ok"]
        pid = os.getpid()
        assert self.holder.ask("bind", kernel_id="k", pid=pid, start_time_ticks=start_time_ticks(pid))["ok"]
        assert self.holder.ask("activity", kernel_id="k", open=0, work=0, since=0.0)["ok"]

    @property
    def folder(self) -> Path:
        return Path(self.node.folder) / "kernels" / "k"

    def begin(self) -> None:
        self.node.until(lambda: self.holder.ask("move", kernel_id="k", device=UUIDS[1])["ok"] or None, 30)

    @property
    def outcome(self) -> tuple[str, str]:
        answer = self.holder.ask("moved", kernel_id="k", device=UUIDS[1])
        return answer["state"], answer["reason"]

    def ended(self) -> tuple[str, str]:
        self.node.until(lambda: self.outcome[0] != "moving" or None, 30)
        return self.outcome

    @property
    def reserved(self) -> list[int]:
        return [device["reserved_hundredths"] for device in self.node.status()["devices"]]


@pytest.fixture
def moving(an_idle_node: Any, open_holder: Callable[[], Any]) -> Moving:
    return Moving(an_idle_node, open_holder)


def test_a_move_waits_for_a_process_that_begins_cuda(moving: Moving, enter: Enter) -> None:
    process = enter(moving.folder)
    moving.begin()
    assert (moving.outcome, moving.reserved) == (("moving", ""), [50, 50])
    process.kill()
    assert (moving.ended(), moving.reserved) == (("done", ""), [0, 50])


def test_an_eviction_calls_off_a_move_that_has_not_left(moving: Moving, enter: Enter) -> None:
    enter(moving.folder)
    moving.begin()
    assert moving.holder.ask("evict", kernel_id="k")["ok"]
    assert moving.ended() == ("failed", "it is evicted")
    moving.node.until(lambda: moving.node.status()["evicted"] == ["k"] or None, 30)
    assert moving.reserved == [0, 0]
    assert moving.holder.ask("readmit", kernel_id="k")["ok"]
    assert moving.reserved == [50, 0]


def test_a_move_to_a_device_that_is_lost_meanwhile_is_called_off(moving: Moving, enter: Enter) -> None:
    enter(moving.folder)
    moving.begin()
    moving.node.set_devices(count=1)
    state, reason = moving.ended()
    assert (state, UUIDS[1] in reason, "gone" in reason) == ("failed", True, True), reason
    moving.node.until(lambda: moving.reserved == [50] or None, 30)
    assert moving.node.kernel("k")["devices"][0]["index"] == 0


def test_a_kernel_whose_entrance_was_removed_stays_and_says_so_at_once(moving: Moving, enter: Enter) -> None:
    entrance = moving.folder / "entrance"
    why = f"the node agent cannot tell whether a process of it begins CUDA: No such file or directory: {entrance}"
    entrance.unlink()
    refused = moving.node.until(
        lambda: "busy" not in (told := moving.holder.ask("move", kernel_id="k", device=UUIDS[1])["message"]) and told
    )
    assert refused == f"kernel k cannot be moved: {why}. It has made that file again: try once more"
    assert moving.reserved == [50, 0]
    process = enter(moving.folder)
    moving.begin()
    entrance.unlink()
    assert moving.ended() == ("failed", f"{why}. It has made that file again: try once more")
    process.kill()
    moving.begin()
    assert (moving.ended(), moving.reserved) == (("done", ""), [0, 50])


def test_a_kernel_whose_entrance_cannot_be_made_again_says_so(moving: Moving, enter: Enter) -> None:
    enter(moving.folder)
    moving.begin()
    entrance = moving.folder / "entrance"
    entrance.unlink()
    (entrance / "of the kernel").mkdir(parents=True)
    state, reason = moving.ended()
    assert (state, reason.endswith(f"begins CUDA: Not a regular file: {entrance}")) == ("failed", True)
    tries = moving.node.folder / "kernels" / "k" / "entrance.new"
    tries.unlink()
    moving.node.until(lambda: tries.exists() or None, 30)  # it has tried again
    assert moving.node.log().count("event=entrance_closed") == 1
    (entrance / "of the kernel").rmdir()
    moving.node.until(lambda: entrance.is_file() or None, 30)
    assert entrance.stat().st_size == 0


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, _put_link], ids=["a pipe", "a folder", "a link"])
def test_what_is_no_file_at_the_entrance_is_replaced(moving: Moving, enter: Enter, put: Callable[[Path], None]) -> None:
    process, entrance = enter(moving.folder), moving.folder / "entrance"
    moving.begin()
    put(entrance.with_suffix(".put"))
    entrance.unlink()
    entrance.with_suffix(".put").rename(entrance)
    state, reason = moving.ended()
    assert (state, f"Not a regular file: {entrance}. It has made that file again" in reason) == ("failed", True), reason
    assert (entrance.is_file(), entrance.is_symlink(), entrance.stat().st_size) == (True, False, 0)
    assert "event=entrance_closed" not in moving.node.log()
    process.kill()
    moving.begin()
    assert moving.ended() == ("done", "")


def test_a_moves_time_begins_again_with_each_step() -> None:
    assert is_overdue(began=10.0, step=0.0, now=10.0 + PATIENCE_SECONDS)
    assert not is_overdue(began=10.0, step=20.0, now=10.0 + PATIENCE_SECONDS)
    assert is_overdue(began=10.0, step=20.0, now=20.0 + PATIENCE_SECONDS)


def play(
    scenario: Callable[[AReservationsNode, Relocations], Coroutine[Any, Any, None]],
    folder: Path,
    unhooked: Container[str] = (),
) -> None:
    """Run a scene with an agent on this loop. Its driver checkpoints, and no kernel of the scene gets so far.

    *unhooked*: the kernels with a process that the hook does not see.
    """

    async def run() -> None:
        helper = CheckpointHelper(folder / "libcuda.so.1", {})
        node = AReservationsNode(folder, checkpoints=CheckpointTools(helper, Circumstances, lambda _: {}))
        node.ledger.set_devices([DeviceFacts(uuid, at, "Fake", CARD) for at, uuid in enumerate(UUIDS)])
        parts = (node.reservations, node.ledger, node.leases, "")
        try:
            await scenario(node, Relocations(*parts, lambda: None, unhooked.__contains__))
        finally:
            await node.end(is_killed=True)

    asyncio.run(run())


def test_a_kernel_that_has_to_leave_for_other_work_is_not_moved(a_folder: Path, enter: Enter) -> None:
    async def scenario(node: AReservationsNode, relocations: Relocations) -> None:
        kernel = node.reserve(node.a_connection(), "k", 50)
        assert kernel.bind(os.getpid(), start_time_ticks(os.getpid()) or 0)
        kernel.activity = Activity(0, 0, 0.0)
        node.leases.keep_out("k")
        with pytest.raises(Refused, match="normal-priority work needs the time"):
            relocations.begin("k", UUIDS[1])
        node.leases.let_in("k")
        enter(kernel.folder)
        relocations.begin("k", UUIDS[1])
        assert relocations.outcome("k", UUIDS[1]) == ("moving", "")
        node.leases.keep_out("k")
        relocations.look("k")
        assert relocations.outcome("k", UUIDS[1]) == ("failed", "normal-priority work needs the time of its GPU")
        assert [node.ledger.reserved(uuid).hundredths for uuid in UUIDS] == [50, 0]

    play(scenario, a_folder)


def test_a_kernel_arrives_without_the_limits_that_the_driver_had_set_on_the_device_before(a_folder: Path) -> None:
    async def scenario(node: AReservationsNode, relocations: Relocations) -> None:
        kernel = node.reserve(node.a_connection(), "k", 50)
        assert kernel.bind(os.getpid(), start_time_ticks(os.getpid()) or 0)
        kernel.activity = Activity(0, 0, 0.0)
        kernel.set_enforcer(Enforcer.DRIVER)
        relocations.begin("k", UUIDS[1])
        assert relocations.outcome("k", UUIDS[1]) == ("done", "")
        process = AProcess(kernel.folder)
        await process.hello()
        assert process.enforcer is Enforcer.HOOK
        kernel.set_enforcer(Enforcer.DRIVER)
        assert process.enforcer is Enforcer.DRIVER, "once it is told"
        process.close()

    play(scenario, a_folder)


def test_a_kernel_with_a_process_that_the_hook_does_not_see_is_not_moved(a_folder: Path, enter: Enter) -> None:
    unhooked: set[str] = set()

    async def scenario(node: AReservationsNode, relocations: Relocations) -> None:
        kernel = node.reserve(node.a_connection(), "k", 50)
        assert kernel.bind(os.getpid(), start_time_ticks(os.getpid()) or 0)
        kernel.activity = Activity(0, 0, 0.0)
        unhooked.add("k")
        with pytest.raises(Refused, match="without the hook"):
            relocations.begin("k", UUIDS[1])
        unhooked.clear()
        enter(kernel.folder)
        relocations.begin("k", UUIDS[1])
        unhooked.add("k")
        relocations.look("k")
        assert relocations.outcome("k", UUIDS[1]) == ("failed", "a process of it uses the GPU without the hook")

    play(scenario, a_folder, unhooked)


def an_idle_kernel(node: AReservationsNode) -> Kernel:
    kernel = node.reserve(node.a_connection(), "k", 50)
    assert kernel.bind(os.getpid(), start_time_ticks(os.getpid()) or 0)
    kernel.activity = Activity(0, 0, 0.0)
    return kernel


def test_a_look_at_a_kernel_that_is_swapped_does_not_make_its_entrance_again(a_folder: Path, enter: Enter) -> None:
    """The next look that acts on it must find that processes may have begun CUDA meanwhile."""

    async def scenario(node: AReservationsNode, relocations: Relocations) -> None:
        kernel = an_idle_kernel(node)
        enter(kernel.folder)
        relocations.begin("k", UUIDS[1])
        process, record = AProcess(kernel.folder), node.leases.record("k")
        await process.hello()
        assert record is not None
        record.is_beginning = State.SWAPPING_OUT
        kernel.entrance.path.unlink()
        relocations.look("k")
        assert relocations.outcome("k", UUIDS[1]) == ("moving", "")
        assert not kernel.entrance.path.exists()
        record.is_beginning = None
        relocations.look("k")
        state, reason = relocations.outcome("k", UUIDS[1])
        assert (state, reason.endswith("It has made that file again: try once more")) == ("failed", True)
        assert kernel.entrance.path.stat().st_size == 0
        process.close()

    play(scenario, a_folder)


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_move_waits_while_its_agent_has_no_descriptor_to_look_with(
    a_folder: Path, enter: Enter, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: AReservationsNode, relocations: Relocations) -> None:
        kernel = an_idle_kernel(node)
        process = enter(kernel.folder)
        relocations.begin("k", UUIDS[1])
        with no_descriptor_left():
            for _ in range(3):
                relocations.look("k")
            assert relocations.outcome("k", UUIDS[1]) == ("moving", "")
        assert caplog.text.count("event=entrance_unusable") == 1
        process.kill()
        process.wait()
        relocations.look("k")
        assert relocations.outcome("k", UUIDS[1]) == ("done", "")

    play(scenario, a_folder)


def test_an_entrance_that_is_to_be_opened_once_more_stays_closed_for_the_next_move(
    a_folder: Path, enter: Enter
) -> None:
    async def scenario(node: AReservationsNode, relocations: Relocations) -> None:
        kernel = an_idle_kernel(node)
        enter(kernel.folder)
        relocations.begin("k", UUIDS[1])
        node.leases.keep_out("k")
        with no_descriptor_left():
            relocations.look("k")
        assert relocations.outcome("k", UUIDS[1])[0] == "failed"
        assert kernel.entrance.path.stat().st_size == 1
        after_it = asyncio.sleep(RETRY_SECONDS)
        node.leases.let_in("k")
        relocations.begin("k", UUIDS[1])
        await after_it
        assert kernel.entrance.path.stat().st_size == 1
        assert relocations.outcome("k", UUIDS[1]) == ("moving", "")

    play(scenario, a_folder)

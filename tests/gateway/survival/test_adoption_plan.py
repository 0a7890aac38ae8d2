"""Plan of the recovery for each kernel, for each way in which a gateway can have left it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from jupyter_aliquot.gateway.recovery.discovery import ProcessFinder
from jupyter_aliquot.gateway.recovery.plan import FoundProcesses, RecoveryAction, plan_recovery
from jupyter_aliquot.gateway.state.records import KernelRecord, KernelState
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.errors import EngineError
from jupyter_aliquot.provisioner.relay.wire.files import ProcessId, RelayRecord
from jupyter_aliquot.provisioner.resources import KernelProcess
from jupyter_aliquot.provisioner.runtime.base import Containers, FoundContainer
from jupyter_aliquot.provisioner.terminations import EndingCode, ProcessEnd

BOOT, NOW = "this boot", 1e9
PROCESS = KernelProcess("k", 10, 5, 10)
CRASHED = ProcessEnd(signal=11, at=NOW - 60)


def _fail(kernel_id: str, error: Exception) -> None:
    raise error


def relay(*, alive: bool = True, spawned: bool = True, boot: str = BOOT) -> RelayRecord:
    kernel = ProcessId(10, 5) if spawned else None
    return RelayRecord("k", Path("/r/k"), {}, 9, 4, boot, 1, {}, "g", kernel, is_alive=alive)


def record(state: KernelState, boot: str = BOOT, **more: object) -> KernelRecord:
    return KernelRecord("k", "ada", "python3", state, NOW - 100, boot, **more)  # type: ignore[arg-type]


RUNS = FoundProcesses(relay(), PROCESS, had_process=True)
DIED = FoundProcesses(relay(), None, CRASHED, had_process=True)
NO_KERNEL_YET = FoundProcesses(relay(spawned=False))
RELAY_KILLED = FoundProcesses(relay(alive=False), PROCESS, had_process=True)
RELAY_LOST = FoundProcesses(None, PROCESS, had_process=True, container=PROCESS)
ORPHANED = FoundProcesses(
    relay(alive=False), None, ProcessEnd(signal=9, at=NOW - 60, is_orphaned=True), had_process=True
)
REBOOTED = FoundProcesses(relay(alive=False, boot="before"), had_process=True)
PENDING, RUNNING, RESTARTING, ENDING = KernelState


@pytest.mark.parametrize(
    ("state", "remains", "want", "want_code"),
    [
        # A running kernel is recovered, whatever its record says, unless it was to end.
        (None, RUNS, RecoveryAction.RECOVER, None),
        (PENDING, RUNS, RecoveryAction.RECOVER, None),
        (RUNNING, RUNS, RecoveryAction.RECOVER, None),
        (RESTARTING, RUNS, RecoveryAction.RECOVER, None),
        (ENDING, RUNS, RecoveryAction.END, None),
        # A kernel that ended meanwhile is never started again.
        (None, DIED, RecoveryAction.ENDED, EndingCode.CRASH),
        (PENDING, DIED, RecoveryAction.ENDED, EndingCode.CRASH),
        (RUNNING, DIED, RecoveryAction.ENDED, EndingCode.CRASH),
        (RUNNING, ORPHANED, RecoveryAction.ENDED, EndingCode.ORPHANED),
        (None, ORPHANED, RecoveryAction.ENDED, EndingCode.ORPHANED),
        # A user had requested these: a restart, and an end.
        (RESTARTING, DIED, RecoveryAction.RESTART, None),
        (ENDING, DIED, RecoveryAction.ENDED, EndingCode.USER),
        # Half a start is begun anew, or cleared away where no request waits for it.
        (None, NO_KERNEL_YET, RecoveryAction.ENDED, None),
        (PENDING, NO_KERNEL_YET, RecoveryAction.REQUEUE, None),
        (RESTARTING, NO_KERNEL_YET, RecoveryAction.RESTART, None),
        (ENDING, NO_KERNEL_YET, RecoveryAction.ENDED, EndingCode.USER),
        # Neither a kernel nor a relay is left.
        (PENDING, FoundProcesses(), RecoveryAction.REQUEUE, None),
        (RUNNING, FoundProcesses(), RecoveryAction.ENDED, EndingCode.CRASH),
        (RESTARTING, FoundProcesses(), RecoveryAction.REQUEUE, None),
        (ENDING, FoundProcesses(), RecoveryAction.ENDED, EndingCode.USER),
        # The gateway cannot reach a kernel without its relay.
        (RUNNING, RELAY_KILLED, RecoveryAction.ENDED, EndingCode.CRASH),
        (PENDING, RELAY_KILLED, RecoveryAction.ENDED, EndingCode.CRASH),
        (None, RELAY_KILLED, RecoveryAction.ENDED, EndingCode.CRASH),
        (RESTARTING, RELAY_KILLED, RecoveryAction.REQUEUE, None),
        (RUNNING, RELAY_LOST, RecoveryAction.ENDED, EndingCode.CRASH),
        (None, RELAY_LOST, RecoveryAction.ENDED, EndingCode.CRASH),
    ],
)
def test_every_way_in_which_a_kernel_was_left(
    state: KernelState | None, remains: FoundProcesses, want: RecoveryAction, want_code: EndingCode | None
) -> None:
    records = [] if state is None else [record(state)]
    found = {} if remains == FoundProcesses() else {"k": remains}
    (decision,) = plan_recovery(records, found, BOOT, NOW, _fail)
    assert (decision.action, decision.ending and decision.ending.code) == (want, want_code)


@pytest.mark.parametrize(
    ("state", "want", "want_code"),
    [
        (PENDING, RecoveryAction.REQUEUE, None),
        (RUNNING, RecoveryAction.ENDED, EndingCode.NODE_LOST),
        (RESTARTING, RecoveryAction.ENDED, EndingCode.NODE_LOST),
        (ENDING, RecoveryAction.ENDED, EndingCode.USER),
    ],
)
@pytest.mark.parametrize("remains", [FoundProcesses(), REBOOTED], ids=["nothing left", "folders left"])
def test_after_a_reboot_what_ran_is_lost_and_what_waited_waits(
    state: KernelState, want: RecoveryAction, want_code: EndingCode | None, remains: FoundProcesses
) -> None:
    if state is PENDING and remains is REBOOTED:
        want, want_code = RecoveryAction.ENDED, EndingCode.NODE_LOST  # it had a process
    found = {} if remains == FoundProcesses() else {"k": remains}
    (decision,) = plan_recovery([record(state, boot="before")], found, BOOT, NOW, _fail)
    assert (decision.action, decision.ending and decision.ending.code) == (want, want_code)


def test_the_reason_is_what_its_user_was_told() -> None:
    asked = {"code": "culled", "message": "the kernel was ended after 60 min idle", "by": ""}
    (decision,) = plan_recovery([record(ENDING, ended_for=asked)], {}, BOOT, NOW, _fail)
    assert decision.ending is not None
    assert (decision.ending.code, decision.ending.message) == (EndingCode.CULLED, asked["message"])


def test_a_crash_is_told_with_its_time_and_signal() -> None:
    (decision,) = plan_recovery([record(RUNNING)], {"k": DIED}, BOOT, NOW, _fail)
    assert decision.ending is not None
    assert (decision.ending.at, decision.ending.signal) == (NOW - 60, 11)


def test_those_noted_come_first_in_their_order() -> None:
    first, second = (KernelRecord(name, "ada", "s", PENDING, at, BOOT) for name, at in (("b", 1.0), ("a", 2.0)))
    decisions = plan_recovery([first, second], {"k": RUNS}, BOOT, NOW, _fail)
    assert [decision.kernel_id for decision in decisions] == ["b", "a", "k"]


def test_a_kernel_about_which_the_decision_fails_keeps_none_of_the_others() -> None:
    undecided = []
    other = KernelRecord("other", "bob", "s", PENDING, NOW, BOOT)
    strange = replace(DIED, end=ProcessEnd(signal=[9]))  # type: ignore[arg-type]
    decisions = plan_recovery(
        [record(RUNNING), other], {"k": strange}, BOOT, NOW, lambda kernel_id, error: undecided.append(kernel_id)
    )
    assert ([decision.kernel_id for decision in decisions], undecided) == (["other"], ["k"])


class Unseen:
    """A runtime of pods in a cluster that tells a running pod, and nothing more of it."""

    def serves(self, node: str) -> bool:
        return bool(node)

    async def find(self, labels: Mapping[str, str]) -> tuple[FoundContainer, ...]:
        return (FoundContainer(PROCESS, labels, True),)

    async def revive(self, found: FoundContainer) -> RelayRecord | None:
        raise EngineError("The API answered: too many requests")


@pytest.mark.parametrize("noted", [[record(RUNNING)], []])
def test_a_pod_that_runs_is_left_while_its_keys_cannot_be_read(noted: list[KernelRecord], tmp_path: Path) -> None:
    finder = ProcessFinder(RuntimeDir(tmp_path), "g", cast(Containers, Unseen()), logging.getLogger("test"))
    found = asyncio.run(finder.find(noted, has_images=True))
    (decision,) = plan_recovery(noted, found, "", NOW, _fail)
    assert decision.action is RecoveryAction.LEAVE


class Starting(Unseen):
    """One that runs another kernel, too, which this gateway starts now: its relay is not there yet."""

    def __init__(self) -> None:
        self.revived: list[str] = []

    async def find(self, labels: Mapping[str, str]) -> tuple[FoundContainer, ...]:
        new = FoundContainer(replace(PROCESS, kernel_id="new"), labels, True)
        return *await super().find(labels), new

    async def revive(self, found: FoundContainer) -> RelayRecord | None:
        self.revived.append(found.process.kernel_id)
        return None


def test_a_kernel_that_starts_gets_no_second_relay_from_a_later_look(tmp_path: Path) -> None:
    there = Starting()
    finder = ProcessFinder(RuntimeDir(tmp_path), "g", cast(Containers, there), logging.getLogger("test"))
    found = asyncio.run(finder.find([record(RUNNING)], has_images=True, only={"k"}))
    assert (set(found), there.revived) == ({"k"}, ["k"])

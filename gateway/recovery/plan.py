"""Plan of recovery: what happens to each kernel that an earlier gateway left. Pure.

It compares the records with the processes that are found. A process that runs counts more than a
record; the record supplies what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from jupyter_aliquot.gateway.state.records import KernelRecord, KernelState
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord
from jupyter_aliquot.provisioner.resources import KernelProcess
from jupyter_aliquot.provisioner.terminations import (
    Asked,
    Ending,
    EndingCode,
    ProcessEnd,
    asked_by_rule,
    node_lost,
    read_ending,
)


class RecoveryAction(str, Enum):
    """The action of recovery on one kernel."""

    # It runs: this server takes it over.
    RECOVER = "recover"
    # It was asked to end, and still runs.
    END = "end"
    # It was being restarted: its relay stands, and its process is to follow.
    RESTART = "restart"
    # Nothing of it ran yet: it is queued again, at its old place.
    REQUEUE = "requeue"
    # It has ended: what is left of it is removed.
    ENDED = "ended"
    # The gateway cannot tell what it is: it runs on, and its record stays for the next gateway.
    LEAVE = "leave"


@dataclass(frozen=True)
class FoundProcesses:
    """The relay, process and container that were found of one kernel.

    ``process`` runs. ``end`` tells how the last process ended, if that is known, and
    ``had_process`` whether there ever was one. ``container`` is removed with the kernel.
    ``is_unknown``: something runs, and the gateway cannot tell whether it is the kernel; with
    ``container`` it can later, when its engine answers.
    """

    relay: RelayRecord | None = None
    process: KernelProcess | None = None
    end: ProcessEnd | None = None
    had_process: bool = False
    container: KernelProcess | None = None
    is_unknown: bool = False

    @property
    def has_relay(self) -> bool:
        return self.relay is not None and self.relay.is_alive


@dataclass(frozen=True)
class Decision:
    """The decision about one kernel.

    ``ending`` is why it ended, or for END why it must; None if that is not to be told.
    """

    kernel_id: str
    action: RecoveryAction
    record: KernelRecord | None
    found: FoundProcesses
    ending: Ending | None = None
    asked: Asked | None = None


def plan_recovery(
    records: Iterable[KernelRecord],
    found: Mapping[str, FoundProcesses],
    boot_id: str,
    now: float,
    undecided: Callable[[str, Exception], None],
) -> tuple[Decision, ...]:
    """Return a decision for each kernel.

    Kernels with a record come first, the oldest first, then those without one. A kernel about which
    the decision fails keeps none of the others: *undecided* gets it with the error. *boot_id* is empty
    where kernels run on other machines: a start of this one ends none.
    """
    noted = {record.kernel_id: record for record in records}
    ids = [*noted, *(kernel_id for kernel_id in found if kernel_id not in noted)]
    decisions = []
    for one in ids:
        try:
            decisions.append(_decide(one, noted.get(one), found.get(one, FoundProcesses()), boot_id, now))
        except Exception as error:  # *undecided* logs it
            undecided(one, error)
    return tuple(decisions)


def _decide(kernel_id: str, record: KernelRecord | None, found: FoundProcesses, boot_id: str, now: float) -> Decision:
    if found.is_unknown:
        return Decision(kernel_id, RecoveryAction.LEAVE, record, found)
    state = None if record is None else record.state
    asked = None if record is None or state is not KernelState.ENDING else _asked(record)
    if found.has_relay and found.process is not None:
        action = RecoveryAction.END if asked is not None else RecoveryAction.RECOVER
        return Decision(kernel_id, action, record, found, asked=asked)
    if asked is None and record is not None and _is_to_begin(record, found, boot_id):
        keeps_relay = state is KernelState.RESTARTING and found.has_relay
        return Decision(kernel_id, RecoveryAction.RESTART if keeps_relay else RecoveryAction.REQUEUE, record, found)
    never_ran = record is None and not found.had_process
    ending = None if never_ran else _ending(record, found, asked, boot_id, now)
    return Decision(kernel_id, RecoveryAction.ENDED, record, found, ending)


def _is_to_begin(record: KernelRecord, found: FoundProcesses, boot_id: str) -> bool:
    """Return True if the kernel can start from scratch: it had not run before the restart."""
    if record.state is KernelState.RESTARTING:
        return boot_id in ("", record.boot_id)
    return record.state is KernelState.PENDING and not found.had_process


def _ending(
    record: KernelRecord | None, found: FoundProcesses, asked: Asked | None, boot_id: str, now: float
) -> Ending:
    ran_under = found.relay.boot_id if found.relay is not None else record.boot_id if record is not None else boot_id
    if asked is None and boot_id not in ("", ran_under):
        return node_lost("its machine was restarted", now)
    if asked is None and found.end is None and found.process is not None:
        return Ending(
            EndingCode.CRASH, "the kernel's relay is gone, and no client can reach the kernel without it", now
        )
    return read_ending(found.end, asked, now)


def _asked(record: KernelRecord) -> Asked:
    """Return who asked for its end, as the record has it.

    A code of a later version counts as a user's request.
    """
    said = record.ended_for
    try:
        return Asked(EndingCode(said["code"]), said["message"], said.get("by", ""))
    except (KeyError, ValueError):
        return asked_by_rule(EndingCode.USER, "while its gateway was away")

"""Pure: what becomes of each kernel that a gateway of our name left, from what it noted and what is found running.

What runs counts more than what was noted; what was noted tells only what is missing. Asks nobody, ends nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


class Fate(str, Enum):
    """What becomes of one kernel."""

    ADOPT = "adopt"
    # It was asked to end, and still runs.
    END = "end"
    # It was being restarted: its relay stands, and its process is to follow.
    START_AGAIN = "start_again"
    # Nothing of it ran yet: it waits again, at its place.
    QUEUE_AGAIN = "queue_again"
    # It has ended; what is left of it is cleared away.
    ENDED = "ended"


@dataclass(frozen=True)
class Remains:
    """What was found of one kernel. ``process``: the one that runs; ``end``: how the last one ended, if known.

    ``had_process``: one was started at all; ``container``: the one to be removed with it.
    """

    relay: RelayRecord | None = None
    process: KernelProcess | None = None
    end: ProcessEnd | None = None
    had_process: bool = False
    container: KernelProcess | None = None

    @property
    def has_relay(self) -> bool:
        return self.relay is not None and self.relay.is_alive


@dataclass(frozen=True)
class Decision:
    """``ending``: why it ended, or for END why it is to; None where there is nothing to tell."""

    kernel_id: str
    fate: Fate
    record: KernelRecord | None
    remains: Remains
    ending: Ending | None = None
    asked: Asked | None = None


def plan_adoption(
    records: Iterable[KernelRecord], found: Mapping[str, Remains], boot_id: str, now: float
) -> tuple[Decision, ...]:
    """One decision for each kernel: the noted ones in their order by time, then those of which only remains tell."""
    noted = {record.kernel_id: record for record in records}
    ids = [*noted, *(kernel_id for kernel_id in found if kernel_id not in noted)]
    return tuple(_decide(one, noted.get(one), found.get(one, Remains()), boot_id, now) for one in ids)


def _decide(kernel_id: str, record: KernelRecord | None, remains: Remains, boot_id: str, now: float) -> Decision:
    state = None if record is None else record.state
    asked = None if record is None or state is not KernelState.ENDING else _asked(record)
    if remains.has_relay and remains.process is not None:
        fate = Fate.END if asked is not None else Fate.ADOPT
        return Decision(kernel_id, fate, record, remains, asked=asked)
    if asked is None and record is not None and _is_to_begin(record, remains, boot_id):
        keeps_relay = state is KernelState.RESTARTING and remains.has_relay
        return Decision(kernel_id, Fate.START_AGAIN if keeps_relay else Fate.QUEUE_AGAIN, record, remains)
    never_ran = record is None and not remains.had_process
    ending = None if never_ran else _ending(record, remains, asked, boot_id, now)
    return Decision(kernel_id, Fate.ENDED, record, remains, ending)


def _is_to_begin(record: KernelRecord, remains: Remains, boot_id: str) -> bool:
    """Whether nothing that its user has seen is lost when it starts now."""
    if record.state is KernelState.RESTARTING:
        return record.boot_id == boot_id
    return record.state is KernelState.PENDING and not remains.had_process


def _ending(record: KernelRecord | None, remains: Remains, asked: Asked | None, boot_id: str, now: float) -> Ending:
    ran_under = (
        remains.relay.boot_id if remains.relay is not None else record.boot_id if record is not None else boot_id
    )
    if asked is None and ran_under != boot_id:
        return node_lost("its machine was restarted", now)
    if asked is None and remains.end is None and remains.process is not None:
        return Ending(EndingCode.CRASH, "the kernel's relay is gone, and nobody can reach the kernel without it", now)
    return read_ending(remains.end, asked, now)


def _asked(record: KernelRecord) -> Asked:
    """For whose wish it ends, as it was noted; the code of a later version is told as a wish all the same."""
    said = record.ended_for
    try:
        return Asked(EndingCode(said["code"]), said["message"], said.get("by", ""))
    except (KeyError, ValueError):
        return asked_by_rule(EndingCode.USER, "while its gateway was away")

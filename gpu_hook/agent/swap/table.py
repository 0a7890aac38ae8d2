"""The life of a kernel on its devices, as a table: the effect of each event in each state.

This is the one definition; docs/reference/kernel-life.md shows it, and a test compares them. Every
cell is written down: ``_`` is an event that is ignored there. The table decides nothing else, and
does nothing: ``residency`` carries the actions out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class KernelState(Enum):
    PENDING = "pending"
    STARTING = "starting"
    RESIDENT = "resident"
    TRIMMED = "trimmed"
    SWAPPING_OUT = "swapping_out"
    SWAPPED = "swapped"
    SWAPPING_IN = "swapping_in"
    CHECKPOINTING = "checkpointing"
    CHECKPOINTED = "checkpointed"
    RESTORING = "restoring"
    ENDED = "ended"


class Event(Enum):
    GRANTED = "granted"  # its reservation was made
    JOINED = "joined"  # a process of it reached the agent
    JOINED_ASIDE = "joined aside"  # one did while others may have its parts
    OUT = "out"  # another kernel needs its room, or a user asked for it
    IN = "in"  # room was reserved for it
    DONE = "done"  # every process moved, or is gone
    FAILED = "failed"  # a process could not move, and those that had moved are back
    STUCK = "stuck"  # a process could not move, and another cannot come back by itself
    # a process is out though the kernel is not: a late answer, or a report after the agent's
    # restart
    FOUND = "found"
    TRIMMED = "trimmed"  # its frameworks returned their caches
    USED = "used"  # it called its device again
    CHECKPOINT = "checkpoint"  # its contexts leave the devices, too
    EMPTIED = "emptied"  # its last process left
    ENDED = "ended"  # the grant is over


class Action(Enum):
    IGNORE = "ignored"
    NOTE = "note it"
    OPEN = "open its socket"
    TAKE_OUT = "end the lease, copy out"
    BRING_IN = "copy in"
    STAY_OUT = "keep the lease ended"
    LET_ON = "give the lease"
    SAVE = "checkpoint"
    RESTORE = "restore"
    FORGET = "drop the host copies"
    CLOSE = "drop everything"


@dataclass(frozen=True)
class Cell:
    """The effect of one event in one state. ``to`` None: the state stays."""

    action: Action
    to: KernelState | None = None


LEASE_HELD = frozenset({KernelState.STARTING, KernelState.RESIDENT, KernelState.TRIMMED})
MOVING = frozenset(
    {KernelState.SWAPPING_OUT, KernelState.SWAPPING_IN, KernelState.CHECKPOINTING, KernelState.RESTORING}
)

_ = Cell(Action.IGNORE)
_open = Cell(Action.OPEN, KernelState.STARTING)
_run = Cell(Action.NOTE, KernelState.RESIDENT)
_trim = Cell(Action.NOTE, KernelState.TRIMMED)
_out = Cell(Action.TAKE_OUT, KernelState.SWAPPING_OUT)
_in = Cell(Action.BRING_IN, KernelState.SWAPPING_IN)
_stay = Cell(Action.STAY_OUT, KernelState.SWAPPED)
_on = Cell(Action.LET_ON, KernelState.RESIDENT)
_save = Cell(Action.SAVE, KernelState.CHECKPOINTING)
_kept = Cell(Action.NOTE, KernelState.CHECKPOINTED)
_back = Cell(Action.RESTORE, KernelState.RESTORING)
_empty = Cell(Action.FORGET, KernelState.STARTING)
_end = Cell(Action.CLOSE, KernelState.ENDED)

_S = KernelState
# fmt: off
_ROWS = {
    #                 granted joined aside  out   in     done   failed stuck  found  trimmed used  checkp. emptied ended
    _S.PENDING:       (_open, _,     _,     _,    _,     _,     _,     _,     _,     _,     _,     _,     _,      _end),
    _S.STARTING:      (_,     _run,  _stay, _,    _,     _,     _,     _,     _,     _,     _,     _,     _,      _end),
    _S.RESIDENT:      (_,     _,     _,     _out, _,     _,     _,     _,     _in,   _trim, _,     _,     _empty, _end),
    _S.TRIMMED:       (_,     _run,  _,     _out, _,     _,     _,     _,     _in,   _,     _run,  _,     _empty, _end),
    _S.SWAPPING_OUT:  (_,     _,     _,     _,    _,     _stay, _on,   _stay, _,     _,     _,     _,     _,      _end),
    _S.SWAPPED:       (_,     _,     _,     _out, _in,   _,     _,     _,     _,     _,     _,     _save, _empty, _end),
    _S.SWAPPING_IN:   (_,     _,     _,     _,    _,     _on,   _stay, _stay, _,     _,     _,     _,     _,      _end),
    _S.CHECKPOINTING: (_,     _,     _,     _,    _,     _kept, _stay, _stay, _,     _,     _,     _,     _,      _end),
    _S.CHECKPOINTED:  (_,     _,     _,     _,    _back, _,     _,     _,     _,     _,     _,     _,     _empty, _end),
    _S.RESTORING:     (_,     _,     _,     _,    _,     _in,   _kept, _kept, _,     _,     _,     _,     _,      _end),
    _S.ENDED:         (_,     _,     _,     _,    _,     _,     _,     _,     _,     _,     _,     _,     _,      _),
}
# fmt: on

ACTIONS: Mapping[KernelState, Mapping[Event, Cell]] = {
    state: dict(zip(Event, cells, strict=True)) for state, cells in _ROWS.items()
}


def table_markdown() -> str:
    """Return the table as the docs show it.

    It has one line for each state and event that is not ignored, and the ignored ones.
    """
    lines = ["| state | event | what is done | then |", "|---|---|---|---|"]
    for state, cells in ACTIONS.items():
        lines += [
            f"| `{state.value}` | {event.value} | {cell.action.value} | `{(cell.to or state).value}` |"
            for event, cell in cells.items()
            if cell.action is not Action.IGNORE
        ]
        ignored = [event.value for event, cell in cells.items() if cell.action is Action.IGNORE]
        if ignored:
            lines.append(f"| `{state.value}` | {', '.join(ignored)} | ignored | `{state.value}` |")
    return "\n".join(lines) + "\n"

"""Explain why a kernel ended: a code, and one sentence for REST, the panel and the log.

Pure: callers bring what the runtime found (`ProcessEnd`) and the request to end it (`Asked`).
"""

from __future__ import annotations

import re
import shlex
import signal as signals
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from .resources import Bytes

_LAST_LINES = 3
_LAST_CHARACTERS = 300
UNREACHABLE = "unreachable"
UNREACHABLE_TEXT = "the kernel was ended because the files of its sockets had been removed: no cell could reach it"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# The words of a Python that cannot begin to be a kernel.
_WITHOUT_IPYKERNEL = re.compile(r"^(?P<python>/[^\n:]{1,200}): No module named '?ipykernel(_launcher)?\b", re.MULTILINE)
# A shell or an init process reports the signal that ended its child as an exit code above this.
_SIGNAL_AS_EXIT_CODE = 128


class EndingCode(str, Enum):
    """The reason, for programs. `stopped`: the kernel ended with its server, which was stopped."""

    USER = "user"
    CULLED = "culled"
    STOPPED = "stopped"
    OOM = "oom"
    MEMORY_LIMIT = "memory_limit"
    CRASH = "crash"
    EXITED = "exited"
    ORPHANED = "orphaned"
    NODE_LOST = "node_lost"
    INTERCEPTION = "interception"
    UNCONTROLLED = "uncontrolled"
    START_FAILED = "start_failed"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True)
class Ending:
    """How one kernel ended.

    ``at``: seconds since the epoch; ``by``: the user who requested it, empty without a request.
    """

    code: EndingCode
    message: str
    at: float
    exit_code: int | None = None
    signal: int | None = None
    by: str = ""


@dataclass(frozen=True)
class ProcessEnd:
    """A runtime's findings about a process that ended. Without any, it is gone, unobserved.

    ``lost``: how its place on a machine was taken from it, in words.
    """

    exit_code: int | None = None
    signal: int | None = None
    at: float | None = None
    last_words: str = ""
    is_orphaned: bool = False
    is_unreachable: bool = False
    is_out_of_memory: bool = False
    lost: str = ""
    memory_used: Bytes | None = None
    memory_limit: Bytes | None = None


@dataclass(frozen=True)
class Asked:
    """A user's or a rule's request that the kernel end; ``message`` says so as a sentence.

    ``is_for_quota``: its team's policy ends it for the team that is owed its GPU.
    """

    code: EndingCode
    message: str
    by: str = ""
    is_for_quota: bool = False


# ---- the request


def asked_by_user(name: str, owner: str) -> Asked:
    """Return the request of a user: the owner, or else an administrator, for no other user may."""
    who = f"its owner {name}" if name == owner else f"the administrator {name}"
    return Asked(EndingCode.USER, f"the kernel was ended by {who}", name)


def asked_by_rule(code: EndingCode, why: str) -> Asked:
    """Return the request of a rule of the server.

    ``why`` follows "the kernel was ended", such as "after 60 min idle".
    """
    return Asked(code, f"the kernel was ended {why}")


def asked_by_stop() -> Asked:
    """Return the request of a server that was stopped in a way that ends kernels."""
    return Asked(EndingCode.STOPPED, "the kernel was ended with its server, which was stopped")


# ---- the findings


def status_end(status: int, at: float | None = None, last_words: str = "") -> ProcessEnd:
    """Return the end for an exit status of Python's subprocess: below 0, the signal."""
    if status < 0:
        return ProcessEnd(signal=-status, at=at, last_words=last_words)
    return ProcessEnd(exit_code=status, at=at, last_words=last_words)


def relay_end(ended: Mapping[str, Any]) -> ProcessEnd:
    """Return the end that a relay wrote to `ended.json`. A missing field counts as unknown."""
    return ProcessEnd(
        exit_code=ended.get("exit_code"),
        signal=ended.get("signal"),
        at=ended.get("at"),
        last_words=str(ended.get("last_words") or ""),
        is_orphaned=ended.get("reason") == EndingCode.ORPHANED.value,
        is_unreachable=ended.get("reason") == UNREACHABLE,
    )


def container_end(
    state: Mapping[str, Any], used: int | None = None, limit: int | None = None, last_words: str = ""
) -> ProcessEnd:
    """Return the end in the `State` of an engine's answer about a container.

    ``used``, ``limit``: bytes of memory, if known.
    """
    exit_code: int | None = state.get("ExitCode")
    signal = None if exit_code is None else exit_code - _SIGNAL_AS_EXIT_CODE
    if signal in set(signals.Signals):
        exit_code = None
    else:
        signal = None
    return ProcessEnd(
        exit_code=exit_code,
        signal=signal,
        at=_engine_time(str(state.get("FinishedAt") or "")),
        last_words=last_words,
        is_out_of_memory=bool(state.get("OOMKilled")),
        memory_used=None if used is None else Bytes(used),
        memory_limit=None if not limit else Bytes(limit),
    )


def _engine_time(text: str) -> float | None:
    """Return a time as seconds. Engines write nanoseconds, and the year 1 for "not yet"."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)", text)
    if match is None or text.startswith("0001"):
        return None
    zone = "+00:00" if match[3] == "Z" else match[3]
    return datetime.fromisoformat(match[1] + zone).timestamp() + float(match[2] or 0)


# ---- the decision


def read_ending(found: ProcessEnd | None, asked: Asked | None, now: float) -> Ending:
    """Return how a kernel ended. A request to end it counts before how its process then went."""
    end = found or ProcessEnd()
    at = now if end.at is None else end.at
    if asked is not None:
        return Ending(asked.code, asked.message, at, end.exit_code, end.signal, asked.by)
    code, message = _by_itself(end)
    return Ending(code, message + _spoken(end.last_words), at, end.exit_code, end.signal)


def failed_start(reason: str, now: float, is_withdrawn: bool = False) -> Ending:
    """Return the ending of a kernel that never ran."""
    if is_withdrawn:
        return Ending(EndingCode.WITHDRAWN, f"the kernel never started: {reason}", now)
    return Ending(EndingCode.START_FAILED, f"the kernel could not be started: {reason}", now)


def node_lost(why: str, now: float) -> Ending:
    """Return the ending of a kernel whose machine went away.

    ``why`` is such as "its machine was restarted at 12:03".
    """
    return Ending(EndingCode.NODE_LOST, _lost_text(why), now)


def _lost_text(why: str) -> str:
    return f"the kernel is lost: {why}"


def _by_itself(end: ProcessEnd) -> tuple[EndingCode, str]:
    if end.lost:
        return EndingCode.NODE_LOST, _lost_text(end.lost)
    if end.is_out_of_memory:
        return EndingCode.OOM, f"the kernel {_memory(end)}, and was ended for it"
    if end.is_orphaned:
        return EndingCode.ORPHANED, "the kernel was ended because no gateway came back for it in time"
    if end.is_unreachable:
        return EndingCode.CRASH, UNREACHABLE_TEXT
    if end.signal is not None:
        return EndingCode.CRASH, _signal_text(end.signal)
    if end.exit_code == 0:
        return EndingCode.EXITED, "the kernel exited by itself with code 0 (exit() in a cell?)"
    if end.exit_code is not None:
        said = f"the kernel exited by itself with code {end.exit_code}"
        if lacking := _WITHOUT_IPYKERNEL.search(end.last_words):
            python = shlex.quote(lacking["python"])
            said = f"{said}: its environment has no ipykernel. Install it: {python} -m pip install ipykernel"
        return EndingCode.EXITED, said
    return EndingCode.CRASH, "the kernel's process is gone, and no process recorded how it ended"


def _memory(end: ProcessEnd) -> str:
    limit = None if end.memory_limit is None else _plain(end.memory_limit)
    if end.memory_used is None:
        return "used more host memory than it has" if limit is None else f"used more than its {limit} host memory"
    used = _plain(end.memory_used)
    return f"used {used} host memory" if limit is None else f"used {used} of {limit} host memory"


def _plain(memory: Bytes) -> str:
    """Write ``4 GiB``, not ``4.0 GiB``: limits are usually round numbers."""
    return str(memory).replace(".0 ", " ")


# Signals that native code causes itself, in words; another process sent any other signal.
_FAULTS = {
    signals.SIGSEGV: "segmentation fault",
    signals.SIGABRT: "abort",
    signals.SIGBUS: "bus error",
    signals.SIGFPE: "arithmetic fault",
    signals.SIGILL: "illegal instruction",
    signals.SIGSYS: "forbidden system call",
    signals.SIGTRAP: "trap",
}


def _signal_text(number: int) -> str:
    if number in _FAULTS:
        return f"the kernel was ended by signal {number} ({_FAULTS[signals.Signals(number)]}) in native code"
    if number == signals.SIGKILL:
        return f"the kernel was killed by signal {number} from outside: by hand, or because memory ran out"
    name = signals.Signals(number).name if number in set(signals.Signals) else "unknown"
    return f"the kernel was ended by signal {number} ({name}) from outside"


def _spoken(last_words: str) -> str:
    """Return the last lines that the process wrote, short enough for a notification."""
    lines = [line.strip() for line in _ESCAPES.sub("", last_words).splitlines()]
    text = " / ".join([line for line in lines if line][-_LAST_LINES:])
    text = "".join(character if character.isprintable() else "\ufffd" for character in text)
    if len(text) > _LAST_CHARACTERS:
        text = "…" + text[-_LAST_CHARACTERS:]
    return f"; its last words: {text}" if text else ""


# ---- the record


def ending_record(ending: Ending) -> dict[str, Any]:
    """Return the ending as JSON-safe fields."""
    return {
        "code": ending.code.value,
        "message": ending.message,
        "at": ending.at,
        "exit_code": ending.exit_code,
        "signal": ending.signal,
        "by": ending.by,
    }


def read_ending_record(record: Mapping[str, Any]) -> Ending:
    """Return the ending in a record, the inverse of ending_record. Raises ValueError."""
    try:
        return Ending(
            EndingCode(record["code"]),
            str(record["message"]),
            float(record["at"]),
            _number(record.get("exit_code")),
            _number(record.get("signal")),
            str(record.get("by") or ""),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{dict(record)!r} does not describe an ending: {error!r}") from error


def _number(value: Any) -> int | None:
    return None if value is None else int(value)

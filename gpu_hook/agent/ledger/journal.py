"""grant.json: the facts about a kernel that must outlive the agent.

The agent replaces the file as a whole. It reads the file after a restart, and trusts nothing in it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook.agent.base.coalesced import Coalesced
from jupyter_aliquot.gpu_hook.agent.base.processes import Process
from jupyter_aliquot.gpu_hook.base.files import replace_file
from jupyter_aliquot.gpu_hook.paths import KERNEL_ID
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol.codec import MAX_AMOUNT, ResidencyMode

log = logging.getLogger(__name__)

_NAME = "grant.json"
_DEVICES = "devices"
_EARLIER_DEVICES = "devices-before"  # apart: a hook of an earlier release gives its driver all that the other one names
_MOST_EARLIER_DEVICES = 32  # the hook reads 4 KiB
_VERSION = 2
_MAX_PID = 1 << 31
# The attribute of a request that names the kernel's pod, as NAMESPACE/NAME.
POD_ATTRIBUTE = "pod"
RESIDENCY_MODES = tuple(mode.name.lower() for mode in ResidencyMode)


class JournalError(Exception):
    """A grant.json that is not ours, or incomplete."""


@dataclass(frozen=True)
class Reservation:
    """A request and its grant. It does not change while its generation is in force."""

    kernel_id: str
    owner: str
    hundredths: int
    memory_limit: int | None
    workload_class: str
    label: str
    attributes: Mapping[str, str]
    parts: tuple[Part, ...]
    created: float
    generation: int = 1
    residency: str = "vmm"  # how its memory may leave its devices: vmm, managed or off
    uid: int | None = None  # the account whose processes may join; None: any that reaches the socket

    @property
    def pod(self) -> str | None:
        """Return the kernel's pod as NAMESPACE/NAME; None: it is in no pod."""
        return self.attributes.get(POD_ATTRIBUTE)

    @property
    def is_production(self) -> bool:
        return self.workload_class == "production"

    def is_same_request(self, other: Reservation) -> bool:
        """Return whether the request is the same. Placement and label are not part of a request."""
        return (self.owner, self.hundredths, self.memory_limit, self.workload_class) == (
            other.owner,
            other.hundredths,
            other.memory_limit,
            other.workload_class,
        )


@dataclass(frozen=True)
class Tally:
    """The totals of a kernel's ended processes, for one device or host memory."""

    peak_bytes: int = 0
    busy_seconds: float = 0.0
    refusals: int = 0
    needed_bytes: int = 0  # 0: no quota refused a request


@dataclass(frozen=True)
class LentBefore:
    """The bytes lent to a process.

    They are by device, in the order of the kernel's grant; host memory is last.
    """

    pid: int
    start_time_ticks: int
    amounts: tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """The complete contents of a grant.json."""

    reservation: Reservation
    interception: str = "unknown"
    bound: tuple[Process, ...] = ()
    sessions: tuple[Process, ...] = ()
    tallies: tuple[Tally, ...] = field(default=())
    host_tally: Tally = field(default=Tally())
    absolute_paths: str = "unknown"
    libraries: tuple[str, ...] = ()  # the libraries in its grants
    boot_id: str = ""  # of the machine's run in which its processes live
    # bytes that a restore of its contexts takes, by device
    saved_bytes: Mapping[str, int] = field(default_factory=dict)
    is_swapped: bool = False  # its lease was ended: its processes' memory is, or may be, on the host
    lent: tuple[LentBefore, ...] = ()  # loans of processes
    is_evicted: bool = False  # it is to leave its parts, and its memory stays out
    is_aside: bool = False  # its memory was out, and its parts were free for others
    is_ending: bool = False  # it was released, and a process of it keeps memory
    moves_to: Part | None = None  # its contexts are restored there, and not on the device of its part


def write_entry(folder: Path, entry: Entry) -> None:
    """Replace the file.

    Not synced: it is of use only while the processes live, so no power cut needs it.
    """
    # unlike asdict, this makes no copy of it all
    text = json.dumps({"version": _VERSION, **vars(entry)}, default=vars)
    replace_file(folder / _NAME, text, is_durable=False)


def read_entry(folder: Path) -> Entry:
    """Read a grant.json.

    Raises JournalError for anything but a complete entry of this folder's kernel.
    """
    try:
        data = json.loads((folder / _NAME).read_bytes())
        if data["version"] != _VERSION:
            raise JournalError(f"{folder / _NAME} is of version {data['version']}, this agent reads {_VERSION}")
        entry = Entry(
            reservation=_read_reservation(data["reservation"]),
            interception=str(data["interception"]),
            bound=tuple(_read_process(process) for process in data["bound"]),
            sessions=tuple(_read_process(process) for process in data["sessions"]),
            tallies=tuple(_read_tally(tally) for tally in data["tallies"]),
            absolute_paths=str(data["absolute_paths"]),
            libraries=tuple(str(name) for name in data["libraries"]),
            boot_id=str(data["boot_id"]),
            host_tally=_read_tally(data["host_tally"]),
            is_swapped=bool(data["is_swapped"]),
            saved_bytes={str(uuid): int(amount) for uuid, amount in data["saved_bytes"].items()},
            lent=tuple(_read_lent(lent) for lent in data["lent"]),
            is_evicted=data.get("is_evicted") is True,  # an earlier agent does not write these
            is_aside=data.get("is_aside") is True,
            is_ending=data.get("is_ending") is True,
            moves_to=_read_target(data),
        )
    except (OSError, ValueError, OverflowError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise JournalError(f"{folder / _NAME} cannot be read: {error!r}") from error
    if entry.reservation.kernel_id != folder.name or not KERNEL_ID.fullmatch(folder.name):
        raise JournalError(f"{folder / _NAME} is of another kernel")
    if not _is_possible(entry):
        raise JournalError(f"{folder / _NAME} has numbers that cannot be")
    if len(entry.tallies) != len(entry.reservation.parts) or not entry.reservation.parts:
        raise JournalError(f"{folder / _NAME} does not agree with itself about devices")
    return entry


def show_devices(folder: Path, uuids: Sequence[str]) -> None:
    """Leave a link beside the kernel's socket that names its devices: processes that begin CUDA later read it.

    Their environment has the devices of the kernel's start. A second link names those that it had in between.
    """
    shown = _read_link(folder / _DEVICES)
    earlier = [uuid for uuid in _read_link(folder / _EARLIER_DEVICES) if uuid not in shown] + shown
    try:
        if earlier := [uuid for uuid in earlier if uuid not in uuids][-_MOST_EARLIER_DEVICES:]:
            _replace_link(folder / _EARLIER_DEVICES, earlier)
        _replace_link(folder / _DEVICES, uuids)
    except OSError as error:
        log.error("event=devices_not_shown folder=%s error=%r", folder, str(error))


def _read_link(path: Path) -> list[str]:
    """Return the names in a link; none where there is no link."""
    with contextlib.suppress(OSError):
        return [name for name in os.readlink(path).split(",") if name]
    return []


def _replace_link(path: Path, names: Sequence[str]) -> None:
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.symlink_to(",".join(names))
    new.replace(path)


def shows_devices(folder: Path) -> bool:
    """Return whether that link is there: the kernel was moved since its start."""
    return (folder / _DEVICES).is_symlink()


def remove_folder(folder: Path) -> None:
    """Remove a kernel's folder and the plain files and sockets in it.

    Files of other kinds stay.
    """
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                path.unlink()
        folder.rmdir()


def _is_possible(entry: Entry) -> bool:
    """Return whether the entry harms no other kernel.

    A kernel's processes can write to its folder, and so choose its contents.
    """
    asked = entry.reservation
    processes = (*entry.bound, *entry.sessions)
    return (
        all(0 < process.pid < _MAX_PID for process in processes)
        and all(part.hundredths > 0 and 0 <= part.reserved_bytes <= part.quota_bytes for part in asked.parts)
        and all(part.quota_bytes <= MAX_AMOUNT for part in asked.parts)
        and (entry.moves_to is None or _is_place_of(entry.moves_to, asked.parts))
        and 0 < asked.generation <= MAX_AMOUNT
        and math.isfinite(asked.created)
        and all(0 < lent.pid < _MAX_PID and _are_amounts(lent.amounts, asked) for lent in entry.lent)
        and all(math.isfinite(tally.busy_seconds) for tally in (*entry.tallies, entry.host_tally))
    )


def _is_place_of(target: Part, parts: tuple[Part, ...]) -> bool:
    """Return whether a part is the only one of a kernel, on another device."""
    (*others, part) = parts
    is_same = (target.hundredths, target.quota_bytes, target.guarantee_bytes, target.is_kept) == (
        part.hundredths,
        part.quota_bytes,
        part.guarantee_bytes,
        part.is_kept,
    )
    return not others and is_same and target.uuid != part.uuid


def _are_amounts(amounts: tuple[int, ...], asked: Reservation) -> bool:
    return len(amounts) == len(asked.parts) + 1 and all(0 <= amount <= MAX_AMOUNT for amount in amounts)


def _read_reservation(data: Mapping[str, Any]) -> Reservation:
    limit = data["memory_limit"]
    return Reservation(
        kernel_id=str(data["kernel_id"]),
        owner=str(data["owner"]),
        hundredths=int(data["hundredths"]),
        memory_limit=None if limit is None else int(limit),
        workload_class=str(data["workload_class"]),
        label=str(data["label"]),
        attributes={str(key): str(value) for key, value in data["attributes"].items()},
        parts=tuple(_read_part(part, data["residency"]) for part in data["parts"]),
        created=float(data["created"]),
        generation=int(data["generation"]),
        residency=_read_mode(data["residency"]),
        uid=None if data.get("uid") is None else int(data["uid"]),
    )


def _read_target(data: Mapping[str, Any]) -> Part | None:
    """Read the part to which it moves; an earlier agent does not write it."""
    told = data.get("moves_to")
    return None if told is None else _read_part(told, data["reservation"]["residency"])


def _read_part(data: Mapping[str, Any], mode: str) -> Part:
    guarantee = data["guarantee_bytes"]
    return Part(
        str(data["uuid"]),
        int(data["index"]),
        int(data["hundredths"]),
        int(data["quota_bytes"]),
        None if guarantee is None else int(guarantee),
        bool(data.get("is_kept", mode == "off")),  # an earlier agent does not write it
    )


def _read_mode(word: Any) -> str:
    if word not in RESIDENCY_MODES:
        raise ValueError(f"residency {word!r}")
    return str(word)


def _read_tally(data: Mapping[str, Any]) -> Tally:
    numbers = int(data["peak_bytes"]), float(data["busy_seconds"]), int(data["refusals"])
    return Tally(*numbers, needed_bytes=int(data["needed_bytes"]))


def _read_process(data: Mapping[str, Any]) -> Process:
    return Process(int(data["pid"]), int(data["start_time_ticks"]))


def _read_lent(data: Mapping[str, Any]) -> LentBefore:
    return LentBefore(int(data["pid"]), int(data["start_time_ticks"]), tuple(int(one) for one in data["amounts"]))


Tallies = tuple[tuple[Tally, ...], Tally]


class Record:
    """The file of one kernel, and the times when it is written.

    ``snapshot`` returns the entry to write. ``tallies`` are those of the existing file.
    """

    def __init__(self, folder: Path, snapshot: Callable[[], Entry], tallies: Tallies) -> None:
        self._folder = folder
        self._snapshot = snapshot
        self._tallies = tallies
        self._writing = Coalesced(self.write)

    def write(self) -> None:
        """Replace the file now: a later agent must know what the next answer says.

        A full file system costs the restart, not the kernel.
        """
        self._writing.withdraw()
        entry = self._snapshot()
        self._tallies = (entry.tallies, entry.host_tally)
        try:
            write_entry(self._folder, entry)
        except OSError as error:
            log.error("event=journal_failed kernel=%s error=%r", entry.reservation.kernel_id, str(error))

    def write_soon(self) -> None:
        """Replace the file once for all that changes in this turn of the event loop."""
        self._writing.soon()

    def keep(self, tallies: Tallies) -> None:
        """Write if the file has other tallies, or its last write failed."""
        if self._writing.is_due or self._tallies != tallies:
            self.write()

    def close(self) -> None:
        """Write no more. Idempotent."""
        self._writing.close()

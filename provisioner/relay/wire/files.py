"""Requests to relays, and the files in their folders, as values and as JSON.

Used by relays and by their clients: it imports little.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook.paths import RuntimeDir

from .ports import FRONT_PORTS
from .proc import is_process, read_boot_id

RECORD_VERSION = 1
RELAY_VERSION = 1
# Several of the largest messages of pages (c.Limits.message_bytes).
UNREAD_BYTES = 64 << 20
# Bounds of waiting output: of a kernel, of a user's kernels, of all kernels.
UNSENT_BYTES, USER_UNSENT_BYTES, ALL_UNSENT_BYTES = 1 << 30, 4 << 30, 16 << 30

# The names that clients of a kernel manager connect to: links to the front sockets.
CLIENT_LINKS = "c"
_RECORD = "relay.json"
_ENDED = "ended.json"
_SPARE_BYTES = 8192
_LONGEST_FILE = 16 << 20  # a kernel's account may write to its folder
_LONGEST_WORDS = 1 << 16  # of how a kernel ended
_LATEST_END = 1e11  # seconds since the epoch; dates end with the year 9999
_LARGEST_NUMBER = 1 << 63


@dataclass(frozen=True)
class UnsentBytes:
    """The most output that may wait for clients. 0: no bound.

    The bounds are those of a kernel, of its user's kernels, and of all kernels.
    """

    kernel: int = UNSENT_BYTES
    user: int = USER_UNSENT_BYTES
    all: int = ALL_UNSENT_BYTES


UNSENT = UnsentBytes()


class UnreadableRecordError(Exception):
    """A record has other fields than this version knows how to read."""


@dataclass(frozen=True)
class RelayRequest:
    """A request to start a relay. Client, kernel and relay sign messages with the same ``key``.

    Args: gateway: The gateway that will come back for the kernel. The relay keeps the kernel's
    output for it, and the kernel ends ``orphan_seconds`` after the last link to a gateway was lost
    and the last cell ended. owner_pid: A process with which the kernel ends. tells_agent: The relay
    tells the node agent when work begins. waiting_notice: Cells show when they wait for GPU memory.
    trim: The relay may ask an idle kernel to return its frameworks' caches.

    Bytes bound what the relay keeps: in memory, and in all; by the room on disk that all kernels of
    ``user``, and all kernels, share. ``unread_bytes`` bounds what waits for the kernel to read it.
    0: no bound. Curve keys (Z85, empty: none) are the front's: clients that have them speak
    CurveZMQ. ``account``: the system account as which relay and kernel run; empty: that of the host,
    or of the gateway that a host of root serves. ``group_memory`` (bytes), ``group_cpus`` and
    ``group_pids``: the limits of the control group that a host of root makes for them; 0: none.
    ``has_sidecar``: the kernel is a pod, whose sidecar leads to it. ``prefix``: begins what tells the
    kernel's answers to gateways from others; empty: a new one.
    """

    kernel_id: str
    key: str
    signature_scheme: str = "hmac-sha256"
    kernel_name: str = ""
    gateway: str | None = None
    owner_pid: int | None = None
    owner_start_time_ticks: int | None = None
    orphan_seconds: float = 3600.0
    tells_agent: bool = False
    waiting_notice: bool = True
    trim: bool = True
    memory_bytes: int = 4 << 20
    store_bytes: int = UNSENT_BYTES
    user: str = ""
    user_store_bytes: int = USER_UNSENT_BYTES
    all_store_bytes: int = ALL_UNSENT_BYTES
    unread_bytes: int = UNREAD_BYTES
    log_bytes: int = 1 << 20
    facts: Mapping[str, Any] = field(default_factory=dict)
    curve_publickey: str = ""
    curve_secretkey: str = ""
    account: str = ""
    group_memory: int = 0
    group_cpus: float = 0.0
    group_pids: int = 0
    has_sidecar: bool = False
    prefix: str = ""


@dataclass(frozen=True)
class KernelLaunch:
    """A kernel process for its relay to start.

    ``env`` is all of its environment but JPY_PARENT_PID. ``rlimits`` (by resource number: soft,
    hard) and ``umask`` None: those of the process that asks, or of the relay's account if that is
    another. ``program`` is the kernel's own, where argv begins with another.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    rlimits: Mapping[int, tuple[int, int]] | None = None
    umask: int | None = None
    program: str = ""


@dataclass(frozen=True)
class Ended:
    """How a kernel's process ended: ``ended.json``.

    ``reason``: empty, or why the relay ended it: ``orphaned``, ``owner_ended``, ``stopped``,
    ``unreachable``. Both codes None: unobserved. ``at``: seconds since the epoch.
    """

    pid: int | None
    start_time_ticks: int | None
    exit_code: int | None
    signal: int | None
    at: float
    last_words: str = ""
    reason: str = ""


@dataclass(frozen=True)
class ProcessId:
    """A process of this machine; a pid comes back after its end, so the start time is part of it."""

    pid: int
    start_time_ticks: int


@dataclass(frozen=True)
class RelayRecord:
    """A relay's ``relay.json``.

    ``front`` is what clients connect to, as in a connection file; ``facts`` are its starter's own.
    ``kernel`` is the process that the relay started last, None for a kernel in a container.
    ``reason`` is why the relay ends it, usually empty. ``is_alive`` was found when the record was
    read.
    """

    kernel_id: str
    folder: Path
    front: Mapping[str, Any]
    pid: int
    start_time_ticks: int
    boot_id: str
    version: int
    facts: Mapping[str, Any]
    gateway: str | None = None
    kernel: ProcessId | None = None
    reason: str = ""
    is_alive: bool = True

    @property
    def link_socket(self) -> Path:
        return self.folder / "link.sock"

    @property
    def kernel_folder(self) -> Path:
        """The part of the folder that a container sees."""
        return self.folder / "k"

    @property
    def kernel_connection_file(self) -> Path:
        """The kernel's connection file; the relay writes it again before each start."""
        return self.kernel_folder / "connection.json"

    @property
    def kernel_log(self) -> Path:
        return self.folder / "kernel.log"

    @property
    def has_living_kernel(self) -> bool:
        """Tell whether the process that the relay started last lives, by /proc."""
        return self.kernel is not None and is_process(self.kernel.pid, self.kernel.start_time_ticks)


def connection_info(prefix: Path, request: RelayRequest) -> dict[str, Any]:
    """Return a connection file's content for the sockets ``<prefix>-1`` to ``-5``."""
    return {
        **FRONT_PORTS,
        "transport": "ipc",
        "ip": os.fspath(prefix),
        "key": request.key,
        "signature_scheme": request.signature_scheme,
        "kernel_name": request.kernel_name,
    }


def expected_record(folder: Path, request: RelayRequest) -> RelayRecord:
    """Return the record that the relay of a request will have, as far as that is known: it has no process yet."""
    keys = {"curve_publickey": request.curve_publickey, "curve_secretkey": request.curve_secretkey}
    front = {**connection_info(folder / "f", request), **(keys if request.curve_secretkey else {})}
    return RelayRecord(
        request.kernel_id, folder, front, 0, 0, "", RELAY_VERSION, request.facts, request.gateway, is_alive=False
    )


def read_relay_records(runtime: RuntimeDir) -> tuple[RelayRecord, ...]:
    """Return all relay records in this runtime folder.

    ``is_alive`` is true for relays that run now.
    """
    records = []
    with contextlib.suppress(FileNotFoundError):
        for folder in sorted(runtime.relays.iterdir()):
            with contextlib.suppress(OSError, UnreadableRecordError):  # one relay's files keep none from the others
                records.append(read_relay_record(folder))
    return tuple(records)


def read_relay_record(folder: Path) -> RelayRecord:
    """Return the record in a relay's folder. Raises FileNotFoundError and UnreadableRecordError."""
    record = parse_relay_record(folder, _read_object(folder / _RECORD))
    if record.kernel_id != folder.name:  # its writer may be another account than its reader
        raise UnreadableRecordError(f"{folder / _RECORD} is of kernel {record.kernel_id!r:.60}")
    is_alive = record.boot_id == read_boot_id() and is_process(record.pid, record.start_time_ticks)
    return replace(record, is_alive=is_alive)


def parse_relay_record(folder: Path, fields: Mapping[str, Any]) -> RelayRecord:
    """Return a record from its JSON. Raises UnreadableRecordError."""
    try:
        kernel = fields.get("kernel")
        return RelayRecord(
            kernel_id=str(fields["kernel_id"]),
            folder=folder,
            front=dict(fields["front"]),
            pid=int(fields["pid"]),
            start_time_ticks=int(fields["start_time_ticks"]),
            boot_id=str(fields["boot_id"]),
            version=int(fields["version"]),
            facts=dict(fields["facts"]),
            gateway=fields.get("gateway"),
            kernel=None if kernel is None else ProcessId(int(kernel["pid"]), int(kernel["start_time_ticks"])),
            reason=str(fields.get("reason", "")),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UnreadableRecordError(f"{folder / _RECORD} is no record of a relay: {error!r}") from error


def read_ended(record: RelayRecord) -> Ended | None:
    """Return how the kernel's last process ended.

    None while it runs, and if its end was not recorded.
    """
    return read_ended_in(record.folder)


def read_ended_in(folder: Path) -> Ended | None:
    """Return how the last kernel of a relay's folder ended, as `read_ended` does."""
    try:
        return parse_ended(_read_object(folder / _ENDED))
    except (FileNotFoundError, UnreadableRecordError):
        return None


def parse_ended(fields: Mapping[str, Any]) -> Ended:
    """Return an end from its JSON, which a kernel's owner can write. Raises UnreadableRecordError."""
    try:
        return Ended(
            pid=_number(fields["pid"]),
            start_time_ticks=_number(fields["start_time_ticks"]),
            exit_code=_number(fields["exit_code"]),
            signal=_number(fields["signal"]),
            at=_moment(fields["at"]),
            last_words=str(fields.get("last_words", ""))[-_LONGEST_WORDS:],
            reason=str(fields.get("reason", ""))[:_LONGEST_WORDS],
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UnreadableRecordError(f"what was said of a kernel's end cannot be read: {error!r}") from error


def _number(value: object) -> int | None:
    """Return a whole number, or None. Raises ValueError."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= _LARGEST_NUMBER:
        raise ValueError(f"{value!r:.60} is no whole number of 64 bits")
    return value


def _moment(value: object) -> float:
    """Return seconds since the epoch that can be a date. Raises ValueError."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _LATEST_END:
        raise ValueError(f"{value!r:.60} is no time")
    return float(value)


def write_ended(folder: Path, ended: Ended) -> None:
    """Replace ended.json. Raises OSError."""
    write_whole(folder / _ENDED, vars(ended))


def forget_ended(folder: Path) -> None:
    """Remove ended.json before a start."""
    (folder / _ENDED).unlink(missing_ok=True)


def write_relay_fields(folder: Path, fields: Mapping[str, Any]) -> None:
    """Replace relay.json. Raises OSError."""
    write_whole(folder / _RECORD, fields)


def read_relay_fields(folder: Path) -> dict[str, Any]:
    """Return all fields of relay.json. Raises FileNotFoundError and UnreadableRecordError."""
    return _read_object(folder / _RECORD)


def write_whole(path: Path, content: Mapping[str, Any], mode: int | None = None) -> None:
    """Replace a file whole, then take as much of the disk in advance.

    So a full disk stops the first write, and no later one. There is no fsync: after the next boot
    none of the content is true. ``mode`` None: private, or readable for the gateway of a relay that
    runs as another account.
    """
    new = path.with_name(path.name + ".new")
    data = json.dumps(content).encode() + b"\n"
    descriptor = _open_new(new)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, (0o640 if is_for_gateway(path.parent) else 0o600) if mode is None else mode)
        file.write(data)
        file.truncate()
    os.replace(new, path)
    take_in_advance(path, 2 * len(data))


def take_in_advance(path: Path, size: int = _SPARE_BYTES) -> None:
    """Reserve room on the disk for the next `write_whole` to this path, if there is some now."""
    with contextlib.suppress(OSError):
        descriptor = _open_new(path.with_name(path.name + ".new"))
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)


def is_for_gateway(folder: Path) -> bool:
    """Tell whether a relay's folder is of its owner's account, and open to the gateway's group.

    The relay host gives such a folder the group that files in it inherit.
    """
    with contextlib.suppress(OSError):
        return bool(os.stat(folder).st_mode & stat.S_ISGID)
    return False


def socket_mode(folder: Path) -> int:
    """Return the mode of the sockets for clients in a relay's folder."""
    return 0o660 if is_for_gateway(folder) else 0o600


def is_anothers(folder: Path) -> bool:
    """Tell whether a relay's folder, and so its relay and kernel, are another account's.

    A folder that is gone counts as the account's that makes such folders: the relay host's.
    """
    for found in (folder, folder.parent):
        with contextlib.suppress(OSError):
            return os.stat(found).st_uid != os.geteuid()
    return False


def keep_links(folder: Path) -> None:
    """Put links to the client sockets where they are missing. Raises OSError.

    Jupyter's manager removes its ipc files at each restart, and the relay's own must stay.
    """
    for number in FRONT_PORTS.values():
        with contextlib.suppress(FileExistsError):
            os.symlink(f"f-{number}", folder / f"{CLIENT_LINKS}-{number}")


def has_links(folder: Path) -> bool:
    """Tell whether `keep_links` was called for this folder, and some of the links are there."""
    return any(os.path.lexists(folder / f"{CLIENT_LINKS}-{number}") for number in FRONT_PORTS.values())


def _open_new(path: Path) -> int:
    """Return the file that was taken in advance, or a new one.

    Never return a file that another program put there.
    """
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with contextlib.suppress(OSError):
        descriptor = os.open(path, flags)
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return descriptor
        os.close(descriptor)
    path.unlink(missing_ok=True)
    return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_read_plain(path))
    except (ValueError, RecursionError) as error:
        raise UnreadableRecordError(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UnreadableRecordError(f"{path} holds {type(found).__name__}, not an object")
    return found


def _read_plain(path: Path) -> bytes:
    """Return a plain file's content. Raises FileNotFoundError and UnreadableRecordError.

    The folder may be a user's, and the reader the gateway or root: neither waits at a pipe, nor
    follows a link.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise UnreadableRecordError(f"{path} cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnreadableRecordError(f"{path} is no plain file")
        return file.read(_LONGEST_FILE)

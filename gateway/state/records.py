"""Records of kernels for a later gateway: one file a kernel, replaced whole, checked when read.

A record holds what cannot be found out: that a kernel waits, the arguments of its start, and a
pending restart or end.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from jupyter_aliquot.gateway.sharing.shares import UNSHARED, Shares, read_shares
from jupyter_aliquot.gpu_hook.base.files import replace_file
from jupyter_aliquot.gpu_hook.paths import KERNEL_ID
from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.terminations import Ending, ending_record, read_ending_record

_VERSION = 1
_SUFFIX = ".json"
_SET_ASIDE = "unreadable"


class KernelState(str, Enum):
    """The state of a kernel, as far as the gateway had decided."""

    # Queued, or being started: nothing of it needs to exist yet.
    PENDING = "pending"
    RUNNING = "running"
    # Its process was asked to end, and a new one is to follow.
    RESTARTING = "restarting"
    # It was asked to end.
    ENDING = "ending"


@dataclass(frozen=True)
class KernelRecord:
    """The record of one kernel.

    ``arguments`` are those of its start, ``queued_at`` is in seconds since the epoch.

    ``ended_for`` is the reason of a kernel that was asked to end (code, message, by).
    """

    kernel_id: str
    owner: str
    kernelspec: str
    state: KernelState
    queued_at: float
    boot_id: str
    label: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    ended_for: Mapping[str, str] = field(default_factory=dict)
    # The size that it waits for while it runs; empty for none.
    pending_resize: Mapping[str, Any] = field(default_factory=dict)
    # The owner's teams when the kernel was requested.
    teams: tuple[str, ...] = ()
    shares: Shares = UNSHARED
    # Why it was last restarted without a request.
    last_crash: Ending | None = None
    # Its grant, None while it has none, and its kernelspec at its start, None in a record of an earlier
    # version. The relay's metadata has both, too, but a kernel that runs as its owner can change those.
    grant: Mapping[str, Any] | None = None
    spec: Mapping[str, Any] | None = None
    # The number of the account that root gave its relay's folder to; None for this gateway's own.
    uid: int | None = None


class RecordError(Exception):
    """A file that is no whole record of this gateway."""


class KernelRecords:
    """The records in one folder. Without a *folder*, nothing is written.

    Each call waits for the disk. A gateway that serves requests writes by a RecordQueue.
    """

    def __init__(self, folder: Path | None, log: logging.Logger) -> None:
        self._folder = folder
        self._log = log
        # The reason why the last record could not be written; empty when all is well.
        self.problem = ""

    def write(self, record: KernelRecord) -> None:
        """Replace a kernel's record. A failure is reported, and keeps no kernel from running."""
        if self._folder is None:
            return
        # Not durable: kernels do not outlive a power cut, so their records need not.
        try:
            replace_file(self._path(record.kernel_id), written(record), is_durable=False)
        except OSError as error:
            self.report(f"the record of kernel {record.kernel_id} cannot be written: {error}")
        else:
            self.problem = ""

    def remove(self, kernel_id: str) -> None:
        """Forget a kernel. Idempotent."""
        if self._folder is None:
            return
        try:
            self._path(kernel_id).unlink(missing_ok=True)
        except OSError as error:
            self.report(f"the record of kernel {kernel_id} cannot be removed: {error}")

    def read(self) -> tuple[KernelRecord, ...]:
        """Return all records, the longest waiting first.

        A file that cannot be read is set aside.
        """
        if self._folder is None:
            return ()
        records = []
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            try:
                records.append(_read(path))
            except RecordError as error:
                self._set_aside(path, error)
        return tuple(sorted(records, key=lambda record: record.queued_at))

    def _path(self, kernel_id: str) -> Path:
        assert self._folder is not None  # checked by the callers
        return self._folder / f"{kernel_id}{_SUFFIX}"

    def _set_aside(self, path: Path, error: RecordError) -> None:
        aside = path.parent / _SET_ASIDE
        try:
            aside.mkdir(mode=0o700, exist_ok=True)
            os.replace(path, aside / path.name)
        except OSError as failure:
            self._log.error("record=%s unreadable reason=%s; it cannot be set aside: %s", path, error, failure)
        else:
            self._log.error("record=%s unreadable reason=%s; set aside in %s", path.name, error, aside)

    def report(self, problem: str) -> None:
        """Log a problem once; it is told until a record is written."""
        if problem != self.problem:
            self._log.error("records=failed reason=%s; that kernel may not be found after a restart", problem)
        self.problem = problem


def written(record: KernelRecord) -> str:
    """Return a record as text."""
    crash = record.last_crash
    told = {"shares": record.shares.report(), "last_crash": None if crash is None else ending_record(crash)}
    return json.dumps({"version": _VERSION, **asdict(record), **told})


def _read(path: Path) -> KernelRecord:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{error!r}") from error
    return read_record(text, path.name.removesuffix(_SUFFIX))


def read_record(text: bytes | str, kernel_id: str) -> KernelRecord:
    """Return the record of a kernel, the inverse of ``written``. Raises RecordError."""
    try:
        data = json.loads(text)
        if data["version"] != _VERSION:
            raise RecordError(f"it is of version {data['version']}, this gateway reads {_VERSION}")
        record = KernelRecord(
            kernel_id=str(data["kernel_id"]),
            owner=str(data["owner"]),
            kernelspec=str(data["kernelspec"]),
            state=KernelState(data["state"]),
            queued_at=float(data["queued_at"]),
            boot_id=str(data["boot_id"]),
            label=str(data["label"]),
            arguments=dict(data["arguments"]),
            ended_for={str(key): str(value) for key, value in data["ended_for"].items()},
            pending_resize=dict(data.get("pending_resize", {})),
            teams=tuple(str(team) for team in data.get("teams", ())),
            shares=read_shares(data.get("shares", ())),
            last_crash=None if data.get("last_crash") is None else read_ending_record(data["last_crash"]),
            grant=None if data.get("grant") is None else dict(data["grant"]),
            spec=None if data.get("spec") is None else dict(data["spec"]),
            uid=None if data.get("uid") is None else int(data["uid"]),
        )
    except (
        ValueError,
        OverflowError,
        RecursionError,
        KeyError,
        TypeError,
        AttributeError,
        RequestError,
    ) as error:
        raise RecordError(f"{error!r}") from error
    if record.kernel_id != kernel_id or not KERNEL_ID.fullmatch(record.kernel_id):
        raise RecordError(f"it is of another kernel, {record.kernel_id!r}")
    if not math.isfinite(record.queued_at):
        raise RecordError(f"it has a time that cannot be, {record.queued_at!r}")
    return record

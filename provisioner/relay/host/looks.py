"""Look at the folders of relays, and do in them what the host decided.

All of it runs as the folders' account: in a child of a host of root, or in a host of that account.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.relay.server.own_record import OwnRecord, read_request
from jupyter_aliquot.provisioner.relay.wire.files import (
    Ended,
    RelayRecord,
    UnreadableRecordError,
    read_relay_fields,
    read_relay_record,
    write_ended,
)
from jupyter_aliquot.provisioner.relay.wire.log import log
from jupyter_aliquot.provisioner.relay.wire.peer import Refusal
from jupyter_aliquot.provisioner.relay.wire.proc import is_process
from jupyter_aliquot.provisioner.relay.wire.rmtree import remove_folder
from jupyter_aliquot.provisioner.relay.wire.spare_names import is_listened_at

from .left_kernels import kernels_of
from .room import end_overfull

_KEEP_SECONDS = 7 * 24 * 3600.0  # a folder whose relay ended, for readers of how the kernel ended
# What was found of a relay's folder. EMPTY: without record and relay, and its kernels were ended.
# ORPHANED: another relay can take its kernel over. REMOVED: nothing is in it any more.
# OVERFULL: it had more than its bound, and its kernel was ended.
ALIVE, EMPTY, ORPHANED, OVER, REMOVED, UNREADABLE = "alive", "empty", "orphaned", "over", "removed", "unreadable"
OVERFULL = "overfull"
SET_ASIDE = ".left-"  # begins the name of a folder that is no kernel's any more


def lives(folder: Path) -> bool:
    """Return whether a relay or its kernel is alive."""
    try:
        record = read_relay_record(folder)
    except (OSError, UnreadableRecordError):
        return False
    return record.is_alive or record.has_living_kernel


def look_at(
    folders: Sequence[Path], ours: Collection[str], host: int, spared: Collection[int], *, is_tight: bool
) -> dict[str, str]:
    """Look at relays; return what was found, by the folders' names.

    Those of the host's *ours* are well, unless their folders have too much where room *is tight*.
    """
    found = {}
    for folder in folders:
        if folder.name.startswith(SET_ASIDE):
            remove_folder(folder)
            found[folder.name] = REMOVED
        elif is_tight and end_overfull(folder):
            found[folder.name] = OVERFULL
        elif folder.name not in ours:
            found[folder.name] = _look_at(folder, host, spared)
    return found


def _look_at(folder: Path, host: int, spared: Collection[int]) -> str:
    try:
        record = read_relay_record(folder)
    except (OSError, UnreadableRecordError):
        if os.path.lexists(folder / "relay.json") or is_listened_at(folder / "link.sock"):
            return UNREADABLE
        end_unreachable(folder, host, spared)
        return EMPTY
    if record.is_alive:
        return ALIVE
    if record.has_living_kernel or _has_answering_kernel(record):
        return look_at_killed(folder, host, spared)
    if _is_long_over(record) or _has_lost_owner(record):
        log("removed", kernel=record.kernel_id, folder=record.folder)
        remove_folder(folder)
        return REMOVED
    return OVER


def look_at_killed(folder: Path, host: int, spared: Collection[int]) -> str:
    """Return whether another relay can take over the kernel of one that was killed."""
    try:
        if read_relay_record(folder).is_alive:
            return ALIVE
        own = OwnRecord.found(folder)
    except (OSError, UnreadableRecordError, Refusal) as error:
        log("not_taken_over", kernel=folder.name, reason=error)
        end_unreachable(folder, host, spared)
        return UNREADABLE
    if own.kernel is not None and not is_process(own.kernel.pid, own.kernel.start_time_ticks):
        log("not_taken_over", kernel=folder.name, reason="its kernel ended")
        return OVER
    return ORPHANED


def end_unreachable(folder: Path, host: int, spared: Collection[int]) -> None:
    """End the kernel of a relay that left no record: no gateway could find it, or end it."""
    for pid in kernels_of(folder, host) - set(spared):
        log("unreachable", kernel=folder.name, pid=pid, reason="its relay was killed and left no record")
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)


def note_ends(folders: Sequence[Path], codes: Mapping[int, int], at: float) -> None:
    """Note the ends of processes that the host inherited, where one was a killed relay's kernel."""
    for folder in folders:
        with contextlib.suppress(OSError, UnreadableRecordError):
            record = read_relay_record(folder)
            if record.kernel is not None and record.kernel.pid in codes:
                _note_end(record, record.kernel.pid, codes[record.kernel.pid], at)


def _note_end(record: RelayRecord, pid: int, code: int, at: float) -> None:
    assert record.kernel is not None
    failed, signalled = (code, None) if code >= 0 else (None, -code)
    with contextlib.suppress(OSError):
        write_ended(
            record.folder, Ended(pid, record.kernel.start_time_ticks, failed, signalled, at, reason=record.reason)
        )
    log("kernel_ended", kernel=record.kernel_id, pid=pid, code=code)


def relays_that_live(runtime: RuntimeDir, names: Sequence[str]) -> list[str]:
    """Return the names of the folders whose relays run."""
    alive = []
    for name in names:
        with contextlib.suppress(OSError, UnreadableRecordError):
            if read_relay_record(runtime.relay(name)).is_alive:
                alive.append(name)
    return alive


def _has_answering_kernel(record: RelayRecord) -> bool:
    """Tell whether a kernel answers. One in a container is no child of the host: its socket tells."""
    if record.kernel is not None:
        return False
    return any(map(is_listened_at, (record.kernel_folder / "s-1", record.folder / "b-1")))


def _is_long_over(record: RelayRecord) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - (record.folder / "relay.json").stat().st_mtime > _KEEP_SECONDS
    return False


def _has_lost_owner(record: RelayRecord) -> bool:
    """Tell whether the process that owned the kernel has ended: no gateway asks for this kernel."""
    with contextlib.suppress(OSError, UnreadableRecordError, Refusal):
        request = read_request(read_relay_fields(record.folder).get("request"))
        return request.owner_pid is not None and not is_process(request.owner_pid, request.owner_start_time_ticks or 0)
    return False


def as_json(ended: Ended | None) -> dict[str, Any] | None:
    """Return an end for a record on the wire."""
    return None if ended is None else vars(ended)

"""Signal and remove kernels for a gateway of another account, with the rights of the kernel's account.

What a relay's files say is its account's word: a signal reaches that account's processes alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from jupyter_aliquot.provisioner.relay.wire.files import (
    Ended,
    RelayRecord,
    UnreadableRecordError,
    read_ended,
    read_relay_record,
)
from jupyter_aliquot.provisioner.relay.wire.peer import Refusal
from jupyter_aliquot.provisioner.relay.wire.proc import account_of, is_process
from jupyter_aliquot.provisioner.relay.wire.rmtree import remove_folder

from .tenants import acting_as


def signal_kernel(folder: Path, number: object) -> None:
    """Signal the process group of a relay's kernel; do nothing once it ended. Raises Refusal."""
    if not isinstance(number, int) or number not in set(signal.Signals):
        raise Refusal("bad_request", f"{number!r:.20} is no signal")
    with contextlib.suppress(OSError, UnreadableRecordError):
        _signal_group(read_relay_record(folder), number)


def remove_by_force(folder: Path) -> Ended | None:
    """End the kernel of a relay that does not answer, then the relay, and remove its folder.

    The folder goes before the relay: a scan finds nothing then to put another relay in front of.
    """
    try:
        record = read_relay_record(folder)
    except (OSError, UnreadableRecordError):
        remove_folder(folder)
        return None
    owner = folder.stat().st_uid
    _signal_group(record, signal.SIGKILL)
    ended = None
    with contextlib.suppress(OSError, UnreadableRecordError):
        ended = read_ended(record)
    remove_folder(folder)
    if is_process(record.pid, record.start_time_ticks) and account_of(record.pid) == owner:
        with contextlib.suppress(OSError), acting_as(owner):
            os.kill(record.pid, signal.SIGKILL)
    return ended


def _signal_group(record: RelayRecord, number: int) -> None:
    owner = record.folder.stat().st_uid
    if record.kernel is not None and record.has_living_kernel and account_of(record.kernel.pid) == owner:
        with contextlib.suppress(OSError), acting_as(owner):
            os.killpg(record.kernel.pid, number)

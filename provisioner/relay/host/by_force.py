"""Signal and remove kernels for a gateway of another account, with the rights of the kernel's account.

It runs as that account. What a relay's files say is its word, and a signal reaches its processes alone.
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
from jupyter_aliquot.provisioner.relay.wire.proc import is_process
from jupyter_aliquot.provisioner.relay.wire.rmtree import remove_folder

from .left_kernels import all_kernels_of


def signal_kernel(folder: Path, number: int) -> None:
    """Signal the process group of a relay's kernel; do nothing once it ended."""
    with contextlib.suppress(OSError, UnreadableRecordError):
        _signal_group(read_relay_record(folder), number)


def remove_by_force(folder: Path) -> Ended | None:
    """End the kernel of a relay that does not answer, then the relay, and remove its folder.

    The folder goes before the relay: a scan finds nothing then to put another relay in front of.
    """
    for pid in all_kernels_of(folder):
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    try:
        record = read_relay_record(folder)
    except (OSError, UnreadableRecordError):
        remove_folder(folder)
        return None
    _signal_group(record, signal.SIGKILL)
    ended = None
    with contextlib.suppress(OSError, UnreadableRecordError):
        ended = read_ended(record)
    remove_folder(folder)
    if is_process(record.pid, record.start_time_ticks):
        with contextlib.suppress(OSError):
            os.kill(record.pid, signal.SIGKILL)
    return ended


def _signal_group(record: RelayRecord, number: int) -> None:
    if record.kernel is not None and record.has_living_kernel:
        with contextlib.suppress(OSError):
            os.killpg(record.kernel.pid, number)

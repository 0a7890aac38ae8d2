"""The room that users take in their relays' folders: the file system below /run is the machine's memory.

A relay and its kernel need a few MB there. Where the file system is more than half full, a kernel
whose folder has more than its bound ends, and the folder is emptied.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from jupyter_aliquot.provisioner.relay.wire.files import Ended, UnreadableRecordError, read_relay_record, write_ended
from jupyter_aliquot.provisioner.relay.wire.log import log
from jupyter_aliquot.provisioner.relay.wire.rmtree import empty_folder

from .left_kernels import all_kernels_of

MOST_BYTES = 32 << 20
MOST_ENTRIES = 2000
_BLOCK = 512  # the unit of st_blocks


def is_tight(place: Path) -> bool:
    """Return whether the file system of a folder has less than half of its bytes, or of its files, left."""
    try:
        found = os.statvfs(place)
    except OSError:
        return False
    return 2 * found.f_bavail < found.f_blocks or 2 * found.f_favail < found.f_files


def end_overfull(folder: Path) -> bool:
    """End the kernel of a folder that has more than its bound, and say why; return whether it did.

    Runs as the folder's account.
    """
    size, entries = _measure(folder)
    if size <= MOST_BYTES and entries <= MOST_ENTRIES:
        return False
    why = (
        f"The kernel's folder {folder} has {size / 1e6:.0f} MB in {entries} files or more, in the machine's memory; at "
        f"most {MOST_BYTES / 1e6:.0f} MB and {MOST_ENTRIES} files are kept while that is short. Write data to your home"
    )
    log("folder_too_large", kernel=folder.name, bytes=size, entries=entries)
    ended = _end(folder, why)
    empty_folder(folder)
    if ended is not None:
        with contextlib.suppress(OSError):
            write_ended(folder, ended)
    return True


def _end(folder: Path, why: str) -> Ended | None:
    """End kernel and relay of a folder; return what its gateway is told."""
    for pid in all_kernels_of(folder):
        _kill(os.killpg, pid)
    with contextlib.suppress(OSError, UnreadableRecordError):
        record = read_relay_record(folder)
        if record.is_alive:
            _kill(os.kill, record.pid)
        if (kernel := record.kernel) is not None and record.has_living_kernel:
            _kill(os.killpg, kernel.pid)
            return Ended(kernel.pid, kernel.start_time_ticks, None, int(signal.SIGKILL), time.time(), last_words=why)
    return None


def _kill(send: Callable[[int, int], None], pid: int) -> None:
    with contextlib.suppress(OSError):
        send(pid, signal.SIGKILL)


def _measure(folder: Path) -> tuple[int, int]:
    """Return the bytes and the number of what is in a folder, as far as its bounds go."""
    size = entries = 0
    folders = [os.fspath(folder)]
    while folders and size <= MOST_BYTES and entries <= MOST_ENTRIES:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as found:
            for entry in found:
                entries += 1
                if entries > MOST_ENTRIES:
                    break
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                with contextlib.suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
    return size, entries

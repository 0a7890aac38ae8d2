"""Watch processes that are not our children: by a pidfd where Linux has them, or else by polling.

A process is named by its pid and its start time, so that a reused pid is not taken for it.
"""

from __future__ import annotations

import asyncio
import functools
import os
import select
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .process_facts import read_facts

_POLL_SECONDS = 0.25  # only where pidfd_open is missing (Linux before 5.3, some sandboxes)


@dataclass(frozen=True)
class Process:
    """A process by pid and start time, so that a reused pid is another process."""

    pid: int
    start_time_ticks: int


@functools.cache  # it stays as long as this process
def read_boot_id() -> str:
    """Return the id of this start of the machine.

    Pids and start times of another start mean nothing.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_time_ticks(pid: int) -> int | None:
    """Return field 22 of /proc/PID/stat, or None when there is no such process.

    A process that is ending counts as none.
    """
    facts = read_facts(pid)
    return None if facts is None else facts.start_time_ticks


class ProcessWatch:
    """A watch that calls ``ended`` once, on the loop, when the process ends.

    Its maker owns it, and calls ``close``.
    """

    def __init__(self, pid: int, ended: Callable[[], None]) -> None:
        """Watch a process. Raises ProcessLookupError when there is no such process now."""
        self.pid = pid
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._descriptor: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_ended = False
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            raise
        except (OSError, AttributeError):
            pass  # no pidfd here: poll
        ticks = start_time_ticks(pid)
        if ticks is None:
            self.close()
            raise ProcessLookupError(f"no process {pid}")
        self.start_time_ticks = ticks
        if self._descriptor is None:
            self._timer = self._loop.call_later(_POLL_SECONDS, self._poll)
        else:
            self._loop.add_reader(self._descriptor, self._tell)

    @property
    def is_alive(self) -> bool:
        """Return whether the process lives.

        The answer comes from the operating system, not from events that the loop has handled.
        """
        if self._has_ended:
            return False
        if self._descriptor is None:
            return start_time_ticks(self.pid) == self.start_time_ticks
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Stop watching. Idempotent."""
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
            self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._has_ended = True

    def _poll(self) -> None:
        if start_time_ticks(self.pid) != self.start_time_ticks:
            self._tell()
        else:
            self._timer = self._loop.call_later(_POLL_SECONDS, self._poll)

    def _tell(self) -> None:
        self.close()
        self._has_ended = True
        self._ended()


class WatchedProcesses:
    """Some processes, each of which leaves the set when it ends.

    ``ended`` is then called with its pid.
    """

    def __init__(self, ended: Callable[[int], None]) -> None:
        self._ended = ended
        self._watches: dict[int, ProcessWatch] = {}

    def __bool__(self) -> bool:
        return bool(self._watches)

    @property
    def all(self) -> tuple[Process, ...]:
        return tuple(Process(watch.pid, watch.start_time_ticks) for watch in self._watches.values())

    def add(self, process: Process) -> bool:
        """Watch a process; return whether it is there, and is that one."""
        known = self._watches.get(process.pid)
        if known is not None and known.start_time_ticks == process.start_time_ticks:
            return True
        try:
            watch = ProcessWatch(process.pid, lambda: self._leave(process.pid))
        except ProcessLookupError:
            return False
        if watch.start_time_ticks != process.start_time_ticks:
            watch.close()
            return False
        self.discard(process.pid)
        self._watches[process.pid] = watch
        return True

    def discard(self, pid: int) -> bool:
        """Stop watching a process; return whether it was watched."""
        watch = self._watches.pop(pid, None)
        if watch is not None:
            watch.close()
        return watch is not None

    def clear(self) -> None:
        for pid in tuple(self._watches):
            self.discard(pid)

    def _leave(self, pid: int) -> None:
        self._watches.pop(pid, None)
        self._ended(pid)

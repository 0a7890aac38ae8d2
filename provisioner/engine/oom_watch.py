"""Detect containers that run out of memory.

Engines do not all report it, and exit code 137 is no proof. One thread watches the containers'
control groups, version 1 or 2; a group is gone when its container has ended.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from jupyter_aliquot.provisioner.resources import Bytes
from jupyter_aliquot.provisioner.terminations import ProcessEnd

_GROUPS = Path("/sys/fs/cgroup")
_IN_MODIFY = 0x2
_NO_LIMIT = 1 << 60  # version 1 writes "no limit" as a number near the largest
# A kill for memory longer than this before the container's end did not cause it.
_KILL_SECONDS = 2.0
_SIGKILL = 9

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MemoryFacts:
    """The memory of one container.

    ``killed_at``: the last time it ran out, seconds since the epoch.
    """

    killed_at: float | None = None
    peak: Bytes | None = None
    limit: Bytes | None = None


@dataclass
class _Watched:
    group: Path
    is_version_2: bool
    descriptor: int
    facts: MemoryFacts
    kills: int = 0


def judge_memory(end: ProcessEnd, memory: MemoryFacts | None) -> ProcessEnd:
    """Decide whether a container was ended for its memory.

    ``end`` carries the engine's report, which may concern a child of long ago, or be missing:
    Podman 4 does not report it.
    """
    facts = memory or MemoryFacts()
    is_recent = facts.killed_at is not None and (end.at is None or end.at - facts.killed_at < _KILL_SECONDS)
    is_out = end.signal == _SIGKILL and (is_recent or (end.is_out_of_memory and facts.killed_at is None))
    limit = end.memory_limit if end.memory_limit is not None else facts.limit
    # Without a measurement of that moment: the container had reached its limit.
    used = facts.peak if facts.peak is not None else limit
    return replace(end, is_out_of_memory=is_out, memory_used=used if is_out else None, memory_limit=limit)


class MemoryWatch:
    """One thread for all containers; it starts with the first.

    ``groups`` is the folder in which control groups are mounted.
    """

    def __init__(
        self, groups: Path = _GROUPS, proc: Path = Path("/proc"), clock: Callable[[], float] = time.time
    ) -> None:
        self._groups, self._proc, self._clock = groups, proc, clock
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}  # Guarded by the lock, like the fields below.
        self._unwatchable: set[str] = set()  # containers are tried once, however often they are requested
        self._by_descriptor: dict[int, str] = {}
        self._poller: select.epoll | None = None
        self._thread: threading.Thread | None = None
        self._wake = -1

    def start(self, container: str, pid: int) -> bool:
        """Watch the container that ``pid`` is in; tell whether that is possible here."""
        with self._lock:
            if container in self._watched or container in self._unwatchable:
                return container in self._watched
            try:
                watched = self._look(pid)
            except OSError as error:
                self._unwatchable.add(container)
                log.info("container=%s memory=unwatched reason=%s", container[:12], error)
                return False
            self._watched[container] = watched
            self._by_descriptor[watched.descriptor] = container
            self._start_thread().register(watched.descriptor, select.EPOLLIN)
        return True

    def facts(self, container: str) -> MemoryFacts | None:
        """Return the memory facts of a container; None if it is not watched."""
        with self._lock:
            watched = self._watched.get(container)
            return None if watched is None else watched.facts

    def stop(self, container: str) -> None:
        with self._lock:
            self._unwatchable.discard(container)
            watched = self._watched.pop(container, None)
            if watched is not None:
                self._let_go(watched)

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            for watched in self._watched.values():
                self._let_go(watched)
            self._watched.clear()
            thread = self._thread
            if thread is not None:
                os.eventfd_write(self._wake, 1)
        if thread is not None:
            thread.join()

    def _look(self, pid: int) -> _Watched:
        """Find the control group of a process.

        Raises OSError if the group is not visible: it is another machine's, or hidden from us.
        """
        version_1, version_2 = None, None
        for line in (self._proc / str(pid) / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                version_1 = self._groups / "memory" / path.lstrip("/")
            elif not controllers:
                version_2 = self._groups / path.lstrip("/")
        if version_1 is not None:
            return _Watched(version_1, False, _listen_version_1(version_1), _read_facts(version_1, False))
        if version_2 is None:
            raise FileNotFoundError("the process has no memory control group")
        group = _limited_group(version_2, self._groups)
        watched = _Watched(group, True, _listen_version_2(group), _read_facts(group, True))
        watched.kills = _read_kills(group)
        return watched

    def _start_thread(self) -> select.epoll:
        if self._poller is None:
            self._poller, self._wake = select.epoll(), os.eventfd(0, os.EFD_CLOEXEC)
            self._poller.register(self._wake, select.EPOLLIN)
            self._thread = threading.Thread(target=self._run, name="aliquot-memory", daemon=True)
            self._thread.start()
        return self._poller

    def _let_go(self, watched: _Watched) -> None:
        del self._by_descriptor[watched.descriptor]
        os.close(watched.descriptor)  # this removes it from the poller, too

    def _run(self) -> None:
        """Run the thread; close its descriptors at the end."""
        poller, wake = self._poller, self._wake
        assert poller is not None
        try:
            while True:
                for descriptor, _ in poller.poll():
                    if descriptor == wake:
                        return
                    with self._lock:
                        self._take(descriptor)
        finally:
            poller.close()
            os.close(wake)

    def _take(self, descriptor: int) -> None:
        container = self._by_descriptor.get(descriptor)
        if container is None:
            return
        watched = self._watched[container]
        count = _drain(descriptor, watched.is_version_2)
        is_gone = False
        try:
            facts, kills = _read_facts(watched.group, watched.is_version_2), watched.kills + 1
            if watched.is_version_2:
                kills = _read_kills(watched.group)
        except OSError:
            # Version 1 signals the end of the group, too: one event more than it ran out of memory.
            is_gone = True
            facts, kills = watched.facts, watched.kills + (0 if watched.is_version_2 else count - 1)
        killed_at = self._clock() if kills > watched.kills else watched.facts.killed_at
        watched.kills, watched.facts = kills, replace(facts, killed_at=killed_at)
        if is_gone and self._poller is not None:
            with suppress(OSError):
                self._poller.unregister(descriptor)


def _limited_group(group: Path, top: Path) -> Path:
    """Return the nearest control group that has a limit.

    Some engines put the processes into a group below the container's own.
    """
    for folder in (group, *group.parents):
        if folder == top or not folder.is_relative_to(top):
            break
        if (folder / "memory.max").read_text().strip() != "max":
            return folder
    return group


def _listen_version_1(group: Path) -> int:
    """Return an eventfd that Linux writes to when the group is out of memory, and when it goes."""
    event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        control = os.open(group / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
        try:
            (group / "cgroup.event_control").write_text(f"{event} {control}")
        finally:
            os.close(control)
    except OSError:
        os.close(event)
        raise
    return event


def _listen_version_2(group: Path) -> int:
    """Return an inotify descriptor of memory.events, which version 2 modifies."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1")
    if libc.inotify_add_watch(descriptor, os.fsencode(group / "memory.events"), _IN_MODIFY) < 0:
        number = ctypes.get_errno()
        os.close(descriptor)
        raise OSError(number, os.strerror(number), str(group / "memory.events"))
    return descriptor


def _drain(descriptor: int, is_version_2: bool) -> int:
    """Read the events that made the descriptor ready; for version 1, return their number."""
    try:
        return len(os.read(descriptor, 4096)) if is_version_2 else os.eventfd_read(descriptor)
    except BlockingIOError:
        return 0


def _read_facts(group: Path, is_version_2: bool) -> MemoryFacts:
    """Read peak and limit of a group. Raises OSError when the group is gone."""
    if not is_version_2:
        limit = int((group / "memory.limit_in_bytes").read_text())
        return MemoryFacts(
            peak=Bytes((group / "memory.max_usage_in_bytes").read_text()),
            limit=None if limit >= _NO_LIMIT else Bytes(limit),
        )
    text = (group / "memory.max").read_text().strip()
    peak = group / ("memory.peak" if (group / "memory.peak").exists() else "memory.current")
    return MemoryFacts(peak=Bytes(peak.read_text()), limit=None if text == "max" else Bytes(text))


def _read_kills(group: Path) -> int:
    """Return version 2's own count of kills. Raises OSError when the group is gone."""
    for line in (group / "memory.events").read_text().splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count)
    return 0

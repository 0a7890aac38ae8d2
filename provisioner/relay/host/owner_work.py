"""Work in the folders of users, each as the account of its user and in a child of the host of root.

A folder may be huge, slow or hostile: it holds up other work of its own account alone, for so many
seconds at most. What a child returns is its account's word.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pwd
import resource
import selectors
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from jupyter_aliquot.provisioner.relay.wire.log import log

NO_GROUP = 65534
_SECONDS = 10.0
_MOST_MEMORY = 1 << 30  # beyond what the host has itself
_LONGEST_ANSWER = 4 << 20
_PIECE = 1 << 16

Work = Callable[[], Any]
# Called when the child is about to be forked; returns what it does.
MakeWork = Callable[[], Work]
# Called with what the work returned; None if it failed or took too long.
Then = Callable[[Any], None]


@dataclass
class _Job:
    make: MakeWork
    then: Then


@dataclass
class _Running:
    uid: int
    pid: int
    reader: int
    until: float
    then: Then
    said: bytearray = field(default_factory=bytearray)


class InlineWork:
    """The work of a host whose folders are its own account's: done at once, by the host itself."""

    def do(self, uid: int, make: MakeWork, then: Then) -> None:
        """Do it."""
        then(make()())

    def has_reaped(self, pid: int) -> bool:
        """Tell whether a process that ended was a child of this object's: there are none."""
        return False

    def kill_late(self, now: float) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class OwnerWork:
    """The children that work as other accounts; one at a time for each account."""

    def __init__(self, selector: selectors.BaseSelector, seconds: float = _SECONDS) -> None:
        self._selector = selector
        self._seconds = seconds
        self._waiting: dict[int, deque[_Job]] = {}  # of each account that has a child
        self._running: dict[int, _Running] = {}  # by account
        self._pids: set[int] = set()

    def do(self, uid: int, make: MakeWork, then: Then) -> None:
        """Do a work as the account once it has no other. Its result is JSON."""
        if uid in self._running:
            self._waiting.setdefault(uid, deque()).append(_Job(make, then))
        else:
            self._begin(uid, _Job(make, then))

    def has_reaped(self, pid: int) -> bool:
        """Tell whether a process that ended was a child of this object's."""
        is_ours = pid in self._pids
        self._pids.discard(pid)
        return is_ours

    def kill_late(self, now: float) -> None:
        """End the children that take too long."""
        for running in tuple(self._running.values()):
            if now >= running.until:
                log("given_up", account=running.uid, reason=f"its folder took more than {self._seconds:g} s")
                if running.pid in self._pids:
                    os.kill(running.pid, signal.SIGKILL)
                running.said.clear()
                self._end(running)

    def close(self) -> None:
        """Forget all of it; children end by themselves."""
        self._waiting.clear()
        for running in self._running.values():
            os.close(running.reader)
        self._running.clear()

    def _begin(self, uid: int, job: _Job) -> None:
        work = job.make()
        try:
            pid, end = fork_with_pipe()
        except OSError as error:
            log("not_done", account=uid, reason=error)
            job.then(None)
            return
        if pid == 0:
            _work_as(uid, work, end, self._seconds)
        reader = end
        self._pids.add(pid)
        running = _Running(uid, pid, reader, time.monotonic() + self._seconds, job.then)
        self._running[uid] = running
        self._selector.register(reader, selectors.EVENT_READ, lambda _: self._heard(running))

    def _heard(self, running: _Running) -> None:
        try:
            piece = os.read(running.reader, _PIECE)
        except BlockingIOError:
            return
        running.said += piece
        if not piece or len(running.said) > _LONGEST_ANSWER:
            self._end(running)

    def _end(self, running: _Running) -> None:
        self._selector.unregister(running.reader)
        os.close(running.reader)
        del self._running[running.uid]
        found = None
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(bytes(running.said))
        try:
            running.then(found)
        finally:
            self._go_on(running.uid)

    def _go_on(self, uid: int) -> None:
        """Begin the work of an account that waits, until one could be forked."""
        while uid not in self._running and (waiting := self._waiting.get(uid)):
            try:
                self._begin(uid, waiting.popleft())
            except Exception:  # what follows one work must not hold up the others
                traceback.print_exc()
        if not self._waiting.get(uid):
            self._waiting.pop(uid, None)


def _group_of(uid: int) -> int:
    """Return the account's group; that of an account which was removed is not known."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return NO_GROUP


def fork_with_pipe() -> tuple[int, int]:
    """Fork. Return 0 and the writing end of a pipe in the child, its number and the reading end here.

    The reading end does not block. Raises OSError where no process or descriptor is left.
    """
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if pid == 0:
        return 0, writer
    os.close(writer)
    os.set_blocking(reader, False)
    return pid, reader


def begin_child(kept: Collection[int]) -> None:
    """Drop, in a forked child, the host's signals and all its descriptors but these and the standard ones.

    The host's garbage stays: an object that goes closes its descriptor's number, which may be another's by then.
    """
    gc.freeze()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for descriptor in {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2, *kept}:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _own_data() -> int:
    """Return the bytes of this process that RLIMIT_DATA counts."""
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[5]) * resource.getpagesize()


def _work_as(uid: int, work: Work, writer: int, seconds: float) -> None:
    """Work, in the child, which is the account's and cannot be root again. Never returns."""
    try:
        begin_child({writer})
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
        most = _own_data() + _MOST_MEMORY
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        os.setgroups([])
        os.setgid(_group_of(uid))  # with another one it could not read the environment of its own processes
        os.setuid(uid)
        said = json.dumps(work()).encode()
        while said:
            said = said[os.write(writer, said) :]
    except BaseException:
        # Of sys.stderr only the standard descriptor is left for certain.
        os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(0)

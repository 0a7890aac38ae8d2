"""The facts in /proc about a process that did not register: its name, and its kernel.

A process that cleared its environment is found by its parents; by its session or process group,
which outlive a parent; by its cgroup or pid namespace, where that is one kernel's own (a
container's); and last, since a process can choose it, by the environment that it was started with.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_LONGEST_ANCESTRY = 64


_EXITING = 0x4  # PF_EXITING of linux/sched.h, a bit of field 9


@dataclass(frozen=True)
class ProcessFacts:
    """Fields of /proc/PID/stat."""

    name: str
    parent: int
    group: int
    session: int
    start_time_ticks: int


def read_facts(pid: int, proc: Path = _PROC) -> ProcessFacts | None:
    """Return the facts of a process.

    Return None when there is no such process, or it has ended and only its parent's wait is
    missing.
    """
    folder = proc / str(pid)
    try:
        name, words = _read_stat(folder)
        facts = ProcessFacts(name, int(words[1]), int(words[2]), int(words[3]), int(words[19]))
        return facts if not _is_ending(words) or _has_other_threads(folder) else None
    except (OSError, ValueError, IndexError):
        return None


def read_cgroup(pid: int, proc: Path = _PROC) -> str:
    """Return the lines of /proc/PID/cgroup, as one name for all of its cgroups.

    Return an empty text when it cannot be read.
    """
    try:
        return os.fsdecode((proc / str(pid) / "cgroup").read_bytes())
    except OSError:
        return ""


def read_pid_namespace(pid: int, proc: Path = _PROC) -> str:
    """Return a name for the process's pid namespace; empty when it cannot be read."""
    try:
        return os.readlink(proc / str(pid) / "ns" / "pid")
    except OSError:
        return ""


def _read_stat(folder: Path) -> tuple[str, list[str]]:
    """Return the name, which the process can choose freely, and the fields from the third on."""
    text = (folder / "stat").read_bytes().decode(errors="replace")
    start, end = text.index("("), text.rindex(")")
    name = "".join(letter if letter.isprintable() else "?" for letter in text[start + 1 : end])
    return name, text[end + 1 :].split()


def _is_ending(words: Sequence[str]) -> bool:
    return words[0] in ("Z", "X") or bool(int(words[6]) & _EXITING)


def _has_other_threads(folder: Path) -> bool:
    """Return whether threads besides the first one live.

    The first thread may end before the others: the process lives, and keeps its memory.
    """
    for task in (folder / "task").iterdir():
        # that thread ended in the meantime
        with contextlib.suppress(OSError, ValueError, IndexError):
            if task.name != folder.name and not _is_ending(_read_stat(task)[1]):
                return True
    return False


class Families:
    """The known processes of all kernels at one moment, and the way to their descendants."""

    def __init__(self, members: Mapping[int, str], folders: Mapping[str, str], proc: Path = _PROC) -> None:
        """Take the known processes.

        ``members`` maps pids to kernel ids, ``folders`` maps ALIQUOT_KERNEL_DIR to kernel ids.
        """
        self._members = members
        self._folders = folders
        self._proc = proc
        self._kinds: dict[Callable[[int, Path], str], dict[str, str | None]] = {read_cgroup: {}, read_pid_namespace: {}}
        self._facts: dict[int, ProcessFacts | None] = {}
        self._kernels: dict[int, str | None] = {}

    def facts(self, pid: int) -> ProcessFacts | None:
        """Return the facts as ``read_facts`` does, reading each process at most once."""
        if pid not in self._facts:
            self._facts[pid] = read_facts(pid, self._proc)
        return self._facts[pid]

    def kernel_of(self, pid: int) -> str | None:
        """Return the kernel that a process belongs to; None: it belongs to none."""
        if pid not in self._kernels:
            self._kernels[pid] = self.kernel_by_descent(pid) or self._by_surroundings(pid) or self._by_environment(pid)
        return self._kernels[pid]

    def kernel_by_descent(self, pid: int) -> str | None:
        """Return its kernel by its parents, its session and its process group alone."""
        ancestor = pid
        for _ in range(_LONGEST_ANCESTRY):
            if ancestor in self._members:
                return self._members[ancestor]
            facts = self.facts(ancestor)
            if facts is None or facts.parent <= 1:
                break
            ancestor = facts.parent
        first = self.facts(pid)
        leaders = (first.session, first.group) if first else ()
        return next((self._members[leader] for leader in leaders if leader in self._members), None)

    def _by_environment(self, pid: int) -> str | None:
        try:
            words = (self._proc / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            return None
        prefix = b"ALIQUOT_KERNEL_DIR="
        found = next((os.fsdecode(word[len(prefix) :]) for word in words if word.startswith(prefix)), "")
        return self._folders.get(found)

    def _by_surroundings(self, pid: int) -> str | None:
        """Return its kernel by cgroup or pid namespace, where each kernel has its own."""
        for read, known in self._kinds.items():
            if not known:
                known.update(self._owners(read))
            if kernel_id := known.get(read(pid, self._proc)):
                return kernel_id
        return None

    def _owners(self, read: Callable[[int, Path], str]) -> dict[str, str | None]:
        """Map the names that ``read`` gives for the members to their kernels.

        A name maps to None if it is our own, or kernels share it.
        """
        owners: dict[str, str | None] = {"": None, read(os.getpid(), self._proc): None}
        for member, kernel_id in self._members.items():
            found = read(member, self._proc)
            owners[found] = kernel_id if owners.setdefault(found, kernel_id) == kernel_id else None
        return owners

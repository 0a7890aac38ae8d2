"""What /proc tells of a process that did not introduce itself: its name, and whose kernel it came from.

A process that cleared its environment is found by its parents, by its session or process group (which outlive a
parent), by its cgroup where that is one kernel's own, and by the environment that it was started with.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_LONGEST_ANCESTRY = 64


@dataclass(frozen=True)
class ProcessFacts:
    """Fields of /proc/PID/stat."""

    name: str
    parent: int
    group: int
    session: int


def read_facts(pid: int, proc: Path = _PROC) -> ProcessFacts | None:
    """None when there is no such process, or it has ended and is only still to be waited for."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
        name = text[text.index("(") + 1 : text.rindex(")")]
        name = "".join(letter if letter.isprintable() else "?" for letter in name)
        state, parent, group, session = text[text.rindex(")") + 2 :].split()[:4]
        facts = ProcessFacts(name, int(parent), int(group), int(session))
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else facts


def read_cgroup(pid: int, proc: Path = _PROC) -> str:
    """The lines of /proc/PID/cgroup, as one name for all of its cgroups; empty when it is not to be had."""
    try:
        return (proc / str(pid) / "cgroup").read_text()
    except OSError:
        return ""


class Families:
    """The known processes of all kernels at one moment, and who else belongs to them."""

    def __init__(self, members: Mapping[int, str], folders: Mapping[str, str], proc: Path = _PROC) -> None:
        """``members``: pid to kernel id. ``folders``: ALIQUOT_KERNEL_DIR to kernel id."""
        self._members = members
        self._folders = folders
        self._proc = proc
        self._own_cgroup = read_cgroup(os.getpid(), proc)
        self._cgroups: dict[str, str | None] | None = None

    def kernel_of(self, pid: int) -> str | None:
        """The kernel that a process belongs to; None: to nobody's."""
        return self.kernel_by_descent(pid) or self._by_environment(pid) or self._by_cgroup(pid)

    def kernel_by_descent(self, pid: int) -> str | None:
        """By its parents, its session and its process group alone."""
        ancestor, facts = pid, read_facts(pid, self._proc)
        first = facts
        for _ in range(_LONGEST_ANCESTRY):
            if ancestor in self._members:
                return self._members[ancestor]
            if facts is None or facts.parent <= 1:
                break
            ancestor, facts = facts.parent, read_facts(facts.parent, self._proc)
        for leader in (first.session, first.group) if first else ():
            if leader in self._members:
                return self._members[leader]
        return None

    def _by_environment(self, pid: int) -> str | None:
        try:
            words = (self._proc / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            return None
        prefix = b"ALIQUOT_KERNEL_DIR="
        found = next((os.fsdecode(word[len(prefix) :]) for word in words if word.startswith(prefix)), "")
        return self._folders.get(found)

    def _by_cgroup(self, pid: int) -> str | None:
        """Where each kernel has a cgroup of its own. Ours, and one that kernels share, says nothing."""
        if self._cgroups is None:
            self._cgroups = {"": None, self._own_cgroup: None}
            for member, kernel_id in self._members.items():
                cgroup = read_cgroup(member, self._proc)
                known = self._cgroups.setdefault(cgroup, kernel_id)
                self._cgroups[cgroup] = kernel_id if known == kernel_id else None
        return self._cgroups.get(read_cgroup(pid, self._proc))

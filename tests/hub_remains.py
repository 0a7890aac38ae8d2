"""The processes below one that a test started, identified by pid and start time.

The module ends those that are left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_END_SECONDS = 20.0


@dataclass(frozen=True)
class RunningProcesses:
    """Pid to start time: by now another process may have the pid."""

    started: dict[int, int]

    @classmethod
    def below(cls, root: int, home: Path) -> RunningProcesses:
        """Return descendants of ``root``, and other processes that work in ``home``'s folders.

        The last are relays and the node agent, which left ``root``.
        """
        parents = {pid: found for pid in _pids() if (found := _parent_and_start(pid))}
        family = {root}
        while more := {pid for pid, (parent, _) in parents.items() if parent in family} - family:
            family |= more
        family |= {pid for pid in parents if _has_folder(pid, home)}
        return cls({pid: parents[pid][1] for pid in family if pid in parents and pid not in (root, os.getpid())})

    def end(self) -> None:
        """End the processes that still run after the Hub's end.

        Node agent and relay host would wait half a minute for other users.
        """
        for pid in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _END_SECONDS
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _left(self) -> list[int]:
        return [
            pid
            for pid, start in self.started.items()
            if (found := _parent_and_start(pid)) is not None and found[1] == start
        ]


def server_environment(home: Path, user: str) -> dict[str, str]:
    """Return the environment of the process of a user's server, of the Hub with this folder."""
    for pid in _pids():
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/environ").read_text(errors="replace")
            environment = {name: value for name, _, value in (word.partition("=") for word in text.split("\0"))}
            is_hubs = environment.get("HOME", "").startswith(str(home))
            if is_hubs and environment.get("JUPYTERHUB_USER") == user and "JUPYTERHUB_API_TOKEN" in environment:
                return environment
    raise AssertionError(f"no process of {user}'s server")


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _parent_and_start(pid: int) -> tuple[int, int] | None:
    """Return parent and start time; None for a process that is gone or dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else (int(fields[1]), int(fields[19]))


def _has_folder(pid: int, home: Path) -> bool:
    """Return whether the process's environment names the folder: the Hub passes it to each program."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{home}/".encode() in environment

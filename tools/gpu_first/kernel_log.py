"""Read the driver's errors from the kernel's log, while the phases run (NVRM: Xid)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

XID = "NVRM: Xid"
_SECONDS = 5.0
_COMMAND = ("dmesg", "--time-format", "iso")


def read_log(command: Sequence[str] = _COMMAND) -> list[str]:
    """Return the lines of the log. Raises OSError with the reason if it cannot be read."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, errors="replace")
    except subprocess.TimeoutExpired:
        raise OSError(f"{command[0]} did not end within {_SECONDS:g} s") from None
    if done.returncode != 0:
        raise OSError((done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1])
    return done.stdout.splitlines()


class XidWatch:
    """Finds the errors that the driver logged since the object was made."""

    def __init__(self, read: Callable[[], list[str]] = read_log) -> None:
        self._read = read
        self._before = set(self._lines()[0])

    def report(self) -> list[str]:
        """Return lines for the summary: the errors, "none", or why the log was not readable."""
        found, problem = self._lines()
        if problem:
            return [f"Xids: the kernel's log cannot be read: {problem}"]
        new = [line for line in found if line not in self._before]
        return [f"Xids in the kernel's log: {len(new) or 'none'}", *(f"  {line.strip()}" for line in new)]

    def _lines(self) -> tuple[list[str], str]:
        try:
            return [line for line in self._read() if XID in line], ""
        except OSError as error:
            return [], str(error)

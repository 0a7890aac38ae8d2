"""Turn a caller's Popen arguments into the descriptors of a kernel that a relay starts.

This module opens pipes and /dev/null, and passes on the caller's descriptors. It refuses arguments
that cannot travel to another process.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any, cast

from jupyter_aliquot.provisioner.errors import LaunchError

_NAMES = ("stdin", "stdout", "stderr")
# These hold for every kernel, or have no effect on a process that is no child of the caller.
_WITHOUT_EFFECT = frozenset({"independent", "start_new_session", "close_fds", "restore_signals", "bufsize", "shell"})


@dataclass(frozen=True)
class PipeEnds:
    """Our ends of the pipes that a caller asked for, named as Popen names them."""

    pid: int
    stdin: IO[bytes] | None = None
    stdout: IO[bytes] | None = None
    stderr: IO[bytes] | None = None


class Streams:
    """The descriptors for one kernel, open until ``given``.

    ``ours`` are the caller's ends of the pipes that it asked for.
    """

    def __init__(self, popen_arguments: Mapping[str, Any], inherits: bool) -> None:
        """Open the descriptors that the arguments name. Raises LaunchError.

        ``inherits``: as with Popen, an output without an argument goes to our own.
        """
        self.umask: int | None = None
        self.ours: dict[str, IO[bytes]] = {}
        self.descriptors: dict[int, int] = {}
        self._theirs = ExitStack()
        try:
            arguments = self._checked(popen_arguments)
            for number, name in enumerate(_NAMES):
                self._open(number, name, arguments.get(name), inherits)
        except BaseException:
            self.given()
            self.close()
            raise

    def given(self) -> None:
        """Close what was opened only for the kernel, which has its copies or never will."""
        self._theirs.close()

    def close(self) -> None:
        """Close the caller's ends. Called when the kernel has ended."""
        for stream in self.ours.values():
            stream.close()

    def _checked(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        umask = arguments.get("umask", -1)
        self.umask = None if umask is None or umask < 0 else umask
        for name, value in arguments.items():
            if name not in _NAMES and name not in _WITHOUT_EFFECT and name != "umask" and value:
                raise LaunchError(
                    f"Requested to start a kernel with {name}={value!r}, but its relay starts it, in another "
                    "process, where that has no effect. Leave it out, or set c.AliquotProvisioner.relay = "
                    "False"
                )
        return arguments

    def _open(self, number: int, name: str, wanted: Any, inherits: bool) -> None:
        if wanted is None:
            if number and inherits and _is_open(number):
                self.descriptors[number] = number
        elif wanted == subprocess.PIPE:
            self.descriptors[number] = self._pipe(number, name)
        elif wanted == subprocess.STDOUT and name == "stderr":
            if 1 in self.descriptors:
                self.descriptors[2] = self.descriptors[1]
        elif wanted == subprocess.DEVNULL:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            self._theirs.callback(os.close, null)
            self.descriptors[number] = null
        else:
            self.descriptors[number] = wanted if isinstance(wanted, int) else wanted.fileno()

    def _pipe(self, number: int, name: str) -> int:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        theirs, ours = (reading, writing) if number == 0 else (writing, reading)
        self._theirs.callback(os.close, theirs)
        self.ours[name] = cast("IO[bytes]", os.fdopen(ours, "wb" if number == 0 else "rb", buffering=0))
        return theirs


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True

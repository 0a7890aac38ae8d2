"""The programs of the system that an installation runs: useradd, systemctl, systemd-tmpfiles.

Each is told before it runs. The paths of those programs come from the PATH.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable

from jupyter_aliquot.gateway.base.errors import CommandError

from .refusals import SYSTEM_PATH

Say = Callable[[str], None]
_PATIENCE_SECONDS = 120.0


class System:
    """Runs programs as root. With ``is_dry`` it only tells them."""

    def __init__(self, say: Say, is_dry: bool = False) -> None:
        self.say = say
        self.is_dry = is_dry
        self._environment = {**os.environ, "PATH": os.pathsep.join((os.environ.get("PATH", ""), SYSTEM_PATH))}

    def run(self, *command: str) -> None:
        """Run a program. Raises CommandError with its words where it fails."""
        done = self._run(command)
        if done is not None and done.returncode != 0:
            words = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
            raise CommandError(f"{shlex.join(command)} failed: {words}. Mend that, and run install-service again")

    def attempt(self, *command: str) -> None:
        """Run a program that may have nothing to do."""
        self._run(command)

    def _run(self, command: tuple[str, ...]) -> subprocess.CompletedProcess[str] | None:
        self.say(f"{'would run' if self.is_dry else 'run'}: {shlex.join(command)}")
        if self.is_dry:
            return None
        try:
            return subprocess.run(
                command, env=self._environment, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CommandError(f"{shlex.join(command)} could not be run: {error}") from error

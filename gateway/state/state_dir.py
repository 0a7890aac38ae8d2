"""A gateway's name, and the folder of the state that outlives its process.

It reads and writes no record itself.

A lock keeps the name. The operating system releases the lock however the process ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import platform
import re
import time
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gpu_hook.base.files import lock_while, open_lock, read_holder, write_holder
from jupyter_aliquot.provisioner.errors import StateError

_STOPPING = "stopping"
# A new server waits this long for one that is stopping, as when a service is restarted by hand.
_SUCCESSION_SECONDS = 10.0
_LOOK_SECONDS = 0.05
_MOST_SERVERS = 99


class NameTakenError(StateError):
    """Another running server has this name."""


@dataclass(frozen=True)
class GatewayFolder:
    """A state folder that belongs to this server as long as ``lock`` is open."""

    name: str
    path: Path
    lock: io.FileIO

    @property
    def kernels(self) -> Path:
        return self.path / "kernels"

    @property
    def sessions(self) -> Path:
        return self.path / "sessions.sqlite"

    @property
    def endings(self) -> Path:
        return self.path / "endings.json"

    @property
    def identity(self) -> str:
        """The identity that relays and containers carry.

        The same name in another state folder is another gateway.
        """
        return f"{self.name}@{_digest(str(self.path))}"

    def tell_stopping(self) -> None:
        """Write that this server stops.

        So the next one waits for the name instead of taking another.
        """
        if not self.lock.closed:
            _write_holder(self.lock, _STOPPING)

    def close(self) -> None:
        """Give the name up. Idempotent."""
        self.lock.close()


def default_name(server_folder: str, node: str | None = None) -> str:
    """Return the name of a server without a configured one. Each folder and machine has its own.

    The machine counts because machines may share home folders, and its kernels cannot be recovered
    on another one.
    """
    folder = os.path.realpath(server_folder)
    word = re.sub(r"[^A-Za-z0-9]+", "-", os.path.basename(folder)).strip("-")[:24] or "server"
    return f"{word}-{_digest(f'{platform.node() if node is None else node}:{folder}')}"


def claim_folder(root: Path, name: str, *, is_chosen: bool) -> GatewayFolder:
    """Take the name, or the next free one if it was not configured.

    Raises StateError and NameTakenError.
    """
    names = [name] if is_chosen else [name, *(f"{name}-{number}" for number in range(2, _MOST_SERVERS + 1))]
    holder = ""
    for candidate in names:
        path = root / candidate
        lock, holder = _lock(path)
        if lock is not None:
            return GatewayFolder(candidate, path, lock)
    raise NameTakenError(
        f"The gateway name {name!r} is in use by process {holder}. "
        "Stop that server, or give this one another c.Aliquot.gateway_name"
    )


def boot_id() -> str:
    """Return the id of this start of the machine. No process of an earlier start runs any more."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _lock(path: Path) -> tuple[io.FileIO | None, str]:
    """Return the open lock; or None, and the process that holds it. Raises StateError."""
    try:
        (path / "kernels").mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        if not os.access(path / "kernels", os.W_OK | os.X_OK):
            raise PermissionError(None, "it is not writable", str(path / "kernels"))
        lock = io.FileIO(open_lock(path / "lock"), "r+")
    except OSError as error:
        raise StateError(
            f"The state folder {path} cannot be used: {error.strerror}: {error.filename}. "
            "Make it writable, or set c.Aliquot.state_dir"
        ) from error
    deadline = time.monotonic() + _SUCCESSION_SECONDS

    def is_stopping() -> bool:
        return _STOPPING in read_holder(lock.fileno()) and time.monotonic() < deadline

    if not lock_while(lock.fileno(), is_stopping, _LOOK_SECONDS):
        holder = read_holder(lock.fileno())
        lock.close()
        return None, holder
    _write_holder(lock)
    return lock, ""


def _write_holder(lock: io.FileIO, word: str = "") -> None:
    with contextlib.suppress(OSError):  # a full disk must not keep a server from starting
        write_holder(lock.fileno(), word)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:8]

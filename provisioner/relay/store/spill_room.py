"""Room on disk for waiting output, shared by all relays of an account.

It is bounded by kernel, by user and in all. Each relay has a folder `<spill
folder>/<user>/<kernel>`, which it holds by a lock. The operating system opens the lock however the
relay ends, so any relay and the relay host can remove the files of a killed relay. Sizes of files
are the account: no counter can be wrong after a kill.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from jupyter_aliquot.gpu_hook.base.files import LockHeldError, locked, try_lock
from jupyter_aliquot.provisioner.relay.wire.rmtree import remove_folder

SPILL_VARIABLE = "ALIQUOT_SPILL_DIR"
ROOTS_SPILL_DIR = Path("/var/spool/aliquot")
_LOCK = "lock"
# Other programs need some of the disk: a tenth, and at most this.
_MOST_SPARED_BYTES = 1 << 30
_SPARED_PART = 10
# A stopped relay may hold the account; the others do not wait for it.
_LOCK_SECONDS = 0.2
_LOOK_AGAIN_SECONDS = 0.002


# A user's kernels may fill one in so many parts of what the disk has for all, and leave others the
# rest.
_USER_PART = 2


class SpillFullError(OSError):
    """A bound was met. The message is for the kernel's owner: the bound, and its setting.

    ``missing_bytes``: the relay's own files have so many, and giving them back helps; None: giving
    back its files does not help.
    """

    def __init__(self, why: str, missing_bytes: int | None = None) -> None:
        super().__init__(errno.ENOSPC, why)
        self.why = why
        self.missing_bytes = missing_bytes


class RoomBounds(NamedTuple):
    """Bytes on disk; 0: no bound."""

    kernel_bytes: int
    user_bytes: int = 0
    all_bytes: int = 0


def choose_spill_dir(
    chosen: Path | None = None, environ: Mapping[str, str] | None = None, *, is_for_accounts: bool = False
) -> Path:
    """Return the folder for waiting output.

    It is the chosen one, or ALIQUOT_SPILL_DIR, or one in /var/tmp. That of a host of root, *for*
    other *accounts*, is where root alone makes folders: in /var/tmp a user could take its name.
    """
    env = os.environ if environ is None else environ
    if chosen is not None or env.get(SPILL_VARIABLE):
        return Path(os.path.abspath(chosen or env[SPILL_VARIABLE]))
    if is_for_accounts:
        return ROOTS_SPILL_DIR
    place = "/var/tmp" if os.access("/var/tmp", os.W_OK | os.X_OK) else "/tmp"
    return Path(place) / f"aliquot-{os.geteuid()}-output"


class SpillRoom:
    """One relay's part of the room. It takes no space before the first `claim`."""

    def __init__(self, top: Path, user: str, kernel_id: str, bounds: RoomBounds) -> None:
        self._top = top
        self._bounds = bounds
        named = hashlib.sha256(user.encode(errors="surrogatepass")).hexdigest()[:16]
        self.folder = top / named / f"{kernel_id}.{os.getpid()}"
        self._held: int | None = None
        self._lock_seconds = _LOCK_SECONDS

    @contextlib.contextmanager
    def claim(self, least: int, wanted: int) -> Iterator[int]:
        """Hold the account while the caller makes its files larger by the yielded bytes.

        These are wanted, or least. Raises SpillFullError if a bound does not allow ``least``, and
        OSError.
        """
        patience, self._lock_seconds = self._lock_seconds, 0.0  # waits once, and not for each message
        with _account(self._top, patience):
            self._lock_seconds = _LOCK_SECONDS
            self._hold()
            used = _used(self._top)
            room, why = self._room(used)
            if room < least:
                can_help = used.get(self.folder, 0) + room >= least
                raise SpillFullError(why, least - room if can_help else None)
            yield max(least, min(wanted, room))

    def close(self) -> None:
        """Remove the folder. Idempotent."""
        if self._held is not None:
            remove_folder(self.folder)
            with contextlib.suppress(OSError):
                self.folder.parent.rmdir()  # the last of this user
            os.close(self._held)
            self._held = None

    def _hold(self) -> None:
        """Make and lock this relay's folder, again if it was removed."""
        if self._held is not None and self.folder.exists():
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        held, self._held = self._held, None
        if held is not None:
            os.close(held)
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not try_lock(descriptor):
                raise BlockingIOError(None, f"another relay holds {self.folder}")
        except OSError:  # another relay's lock, or a file system without locks
            os.close(descriptor)
            raise
        self._held = descriptor

    def _room(self, used: Mapping[Path, int]) -> tuple[int, str]:
        """Return the bytes that the narrowest bound leaves, and the error for a claim beyond them."""
        own, user = used.get(self.folder, 0), self.folder.parent
        bounds, free, of_all = self._bounds, _free_bytes(self._top), sum(used.values())
        of_user = sum(count for folder, count in used.items() if folder.parent == user)
        users_part = (of_all + max(0, free)) // _USER_PART if bounds.user_bytes else 0
        found = [
            (bound - count, f"{text} ({bound / 1e6:.0f} MB, {setting})")
            for bound, count, text, setting in (
                (bounds.kernel_bytes, own, "This kernel's output fills its room", "c.Limits.unsent_output_bytes"),
                (
                    bounds.user_bytes,
                    of_user,
                    "The output of this user's kernels fills their room",
                    "c.Limits.unsent_output_bytes_per_user",
                ),
                (
                    users_part,
                    of_user,
                    f"The output of this user's kernels fills their part of the disk of {self._top}",
                    SPILL_VARIABLE,
                ),
                (
                    bounds.all_bytes,
                    of_all,
                    "The output of all users' kernels fills the server's room",
                    "c.Limits.unsent_output_bytes_total",
                ),
            )
            if bound
        ]
        return min([*found, (free, f"The disk of {self._top} is full ({SPILL_VARIABLE})")])


def sweep(top: Path) -> None:
    """Remove the files of killed relays. Never raises OSError."""
    with contextlib.suppress(OSError):
        if any(_folders(top)):
            with _account(top, _LOCK_SECONDS):
                _used(top)


@contextlib.contextmanager
def _account(top: Path, lock_seconds: float) -> Iterator[None]:
    """Lock the account, so that one relay at a time looks and claims. Raises OSError."""
    top.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = top.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise SpillFullError(f"{top} is not a folder of this account; set {SPILL_VARIABLE} to one")
    try:
        with locked(top / _LOCK, lock_seconds, _LOOK_AGAIN_SECONDS):
            yield
    except LockHeldError:
        raise SpillFullError(f"Another process holds {top / _LOCK}") from None


def _used(top: Path) -> dict[Path, int]:
    """Return the bytes of each living relay, and remove the folders of the others.

    The caller holds the account's lock.
    """
    used = {}
    for folder in _folders(top):
        if _is_left(folder):
            remove_folder(folder)
            with contextlib.suppress(OSError):
                folder.parent.rmdir()
        else:
            used[folder] = _bytes_in(folder)
    return used


def _folders(top: Path) -> Iterator[Path]:
    for user in _folders_in(top):
        yield from _folders_in(user)


def _folders_in(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        return [Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False)]
    return []


def _is_left(folder: Path) -> bool:
    """Tell whether no relay holds this folder."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return try_lock(descriptor)
        finally:
            os.close(descriptor)
    return False


def _bytes_in(folder: Path) -> int:
    total = 0
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            with contextlib.suppress(OSError):  # its relay removes it just now
                total += entry.stat(follow_symlinks=False).st_size
    return total


def _free_bytes(top: Path) -> int:
    disk = os.statvfs(top)
    spared = min(disk.f_blocks * disk.f_frsize // _SPARED_PART, _MOST_SPARED_BYTES)
    return disk.f_bavail * disk.f_frsize - spared

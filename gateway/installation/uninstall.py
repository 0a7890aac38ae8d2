"""Remove an installation: services, files, account and its folders, and nothing of an administrator's."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
from pathlib import Path

from jupyter_aliquot.gateway.base.errors import CommandError

from .commands import System
from .files import GATEWAY_UNIT, HUB_UNIT, NODE_UNITS, Installation, PlannedFile, is_ours, possible_files
from .install import HOME

_RUNTIME = Path("/run/aliquot")
_FIRST_PERSON = 1000


def uninstall(wanted: Installation, system: System) -> None:
    """Remove what install-service wrote and made. Raises CommandError.

    Kernels end with the relay host: what they are of goes, too.
    """
    is_live = wanted.root == Path("/")
    if is_live:
        _stop_services(wanted, system)
        _check_processes(wanted.user, system)
    for file in possible_files(wanted):
        _remove(file, wanted, system)
    if is_live:
        system.run("systemctl", "daemon-reload")
        _remove_account(wanted.user, system)


def _stop_services(wanted: Installation, system: System) -> None:
    own_hub = Path("/etc/systemd/system") / HUB_UNIT
    units = [unit for unit in (GATEWAY_UNIT, *reversed(NODE_UNITS)) if (own_hub.parent / unit).exists()]
    if own_hub.exists() and is_ours(own_hub):
        units.insert(0, HUB_UNIT)
    for unit in units:
        if unit in NODE_UNITS:
            # A stop leaves kernels and relays, which are in the unit's control group. This ends all of it.
            system.attempt("systemctl", "kill", "--signal=SIGKILL", unit)
        system.run("systemctl", "disable", "--now", unit)


def _check_processes(user: str, system: System) -> None:
    """Refuse to take the account from under processes of another service. Raises CommandError."""
    if system.is_dry or (found := _account(user)) is None:
        return
    if left := _processes_of(found.pw_uid):
        raise CommandError(
            f"processes of the account {user} still run: {', '.join(left)}. End what started them, such as a Hub with "
            "configure(…) in its configuration (systemctl stop jupyterhub), and run this again"
        )


def _processes_of(uid: int) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid != uid:
                continue
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            if rest.split()[0] != "Z":  # one that has ended, and whose parent has not looked yet
                found.append(f"{folder.name} ({name})")
    return found


def _remove(file: PlannedFile, wanted: Installation, system: System) -> None:
    path = wanted.below_root(file.path)
    if not path.exists():
        return
    is_own = path.read_text(encoding="utf-8") == file.text if file.belongs_to_admin else is_ours(path)
    if not is_own:
        system.say(f"kept: {path}, which is yours")
        return
    system.say(f"{'would remove' if system.is_dry else 'removed'}: {path}")
    if system.is_dry:
        return
    path.unlink()
    # Of the machine's own folders these alone can be ours. Below another root all of them are.
    is_own_folder = file.belongs_to_admin or path.parent.name.endswith(".service.d")
    with contextlib.suppress(OSError):  # something else is in it
        for folder in path.parents if wanted.root != Path("/") else [path.parent] if is_own_folder else []:
            if folder == wanted.root:
                break
            folder.rmdir()


def _remove_account(user: str, system: System) -> None:
    found = _account(user)
    if found is None:
        return
    own = [_RUNTIME, HOME, Path(f"/tmp/aliquot-{found.pw_uid}"), Path(f"/var/tmp/aliquot-{found.pw_uid}-output")]
    for folder in (*own, *Path("/dev/shm").glob(f"aliquot-{found.pw_uid}-*")):
        if os.path.lexists(folder) and folder.lstat().st_uid in (found.pw_uid, 0):
            system.say(f"{'would remove' if system.is_dry else 'removed'}: {folder}")
            if not system.is_dry:
                shutil.rmtree(folder, ignore_errors=True)
    if 0 < found.pw_uid < _FIRST_PERSON and Path(found.pw_dir) == HOME:
        system.run("userdel", user)
    else:
        system.say(f"kept: account {user}, which install-service did not make")


def _account(user: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        return None

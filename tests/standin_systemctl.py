"""A stand-in for systemctl on a machine without systemd: it starts a unit's program as the unit says.

It knows User, Environment, WorkingDirectory, StateDirectory, ExecStart and KillMode, of files and
drop-ins, and no dependencies. A unit that is stopped gets SIGTERM at its first process.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "build" / "editable"))
from jupyter_aliquot.gateway.doctor.units import last, unit_settings, variables

STATE = Path("/run/standin")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def whole(unit: str) -> str:
    return unit if "." in unit else f"{unit}.service"


def pid_of(unit: str) -> int:
    """Return the first process of a unit that runs; 0 for none."""
    try:
        pid = int((STATE / f"{unit}.pid").read_text())
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return 0
    return 0 if state == "Z" else pid


def stop(unit: str) -> None:
    settings = unit_settings(unit) or {}
    assert last(settings, "KillMode", "control-group") == "process", "control groups are not played"
    if not (pid := pid_of(unit)):
        return
    watched = os.pidfd_open(pid)
    signal.pidfd_send_signal(watched, signal.SIGTERM)
    import select

    ended, _, _ = select.select([watched], [], [], 60)
    if not ended:
        signal.pidfd_send_signal(watched, signal.SIGKILL)
        select.select([watched], [], [])


def start(unit: str) -> None:
    settings = unit_settings(unit)
    if settings is None:
        sys.exit(f"Failed to start {unit}: Unit {unit} not found.")
    account = pwd.getpwnam(last(settings, "User", "root"))
    for name in last(settings, "StateDirectory").split():
        folder = Path("/var/lib") / name
        folder.mkdir(mode=int(last(settings, "StateDirectoryMode", "0755"), 8), exist_ok=True)
        os.chown(folder, account.pw_uid, account.pw_gid)
    environment = {"PATH": _DEFAULT_PATH, "HOME": account.pw_dir, "USER": account.pw_name, "LANG": "C.UTF-8"}
    where = last(settings, "WorkingDirectory", "/").replace("~", account.pw_dir)
    STATE.mkdir(exist_ok=True)
    with (STATE / f"{unit}.log").open("ab") as log:
        process = subprocess.Popen(
            last(settings, "ExecStart").split(),
            env=environment | variables(settings),
            cwd=where,
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (STATE / f"{unit}.pid").write_text(str(process.pid))


def main(words: list[str]) -> None:
    verb, units = words[0], [whole(word) for word in words[1:] if not word.startswith("-")]
    for unit in units:
        if verb == "is-active":
            print("active" if pid_of(unit) else "inactive")
        if verb in ("stop", "restart") or (verb == "disable" and "--now" in words):
            stop(unit)
        if verb in ("start", "restart") or (verb == "enable" and "--now" in words):
            start(unit)
        if verb == "kill" and (pid := pid_of(unit)):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Install Aliquot as a service, step by step. Each step can be done again, and ends no kernel."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from .commands import System
from .files import GATEWAY_UNIT, HUB_UNIT, Installation, PlannedFile, planned_files

HOME = Path("/var/lib/aliquot")
TMPFILES = Path("/etc/tmpfiles.d/aliquot.conf")
_SHELL = "/usr/sbin/nologin"


def install(wanted: Installation, system: System) -> None:
    """Make the account, write the files, and start the services. Raises CommandError."""
    is_live = wanted.root == Path("/")
    if is_live:
        make_account(wanted.user, system)
    changed = [file.path for file in planned_files(wanted) if write(file, wanted, system)]
    if not is_live:
        return
    system.run("systemd-tmpfiles", "--create", str(TMPFILES))
    system.run("systemctl", "daemon-reload")
    # KillMode of the unit on disk is in force now: a restart ends no kernel, even of an older unit's.
    for unit in wanted.units:
        system.run("systemctl", "enable", unit)
        system.run("systemctl", "restart", unit)
    if wanted.with_hub and any(path.name == HUB_UNIT for path in changed):
        system.run("systemctl", "enable", HUB_UNIT)


def make_account(name: str, system: System) -> None:
    """Make the system account; its home is made by systemd-tmpfiles. Raises CommandError."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        options = ("--system", "--user-group", "--no-create-home", "--home-dir", str(HOME), "--shell", _SHELL)
        system.run("useradd", *options, name)
    else:
        system.say(f"kept: account {name} (uid {found.pw_uid})")


def write(file: PlannedFile, wanted: Installation, system: System) -> bool:
    """Write a file that is missing or has another content. Returns whether it did."""
    path = wanted.below_root(file.path)
    found = path.read_text(encoding="utf-8") if path.exists() else None
    if found is not None and (file.belongs_to_admin or found == file.text):
        system.say(f"kept: {path}")
        return False
    system.say(f"{'would write' if system.is_dry else 'wrote'}: {path}")
    if not system.is_dry:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.touch(mode=file.mode)
        new.write_text(file.text, encoding="utf-8")
        new.chmod(file.mode)
        os.replace(new, path)
    return True


def remaining_steps(wanted: Installation) -> list[str]:
    """Return what the administrator does next, one line each."""
    if wanted.root != Path("/"):
        return ["make the account on the machine: systemd-sysusers, then systemd-tmpfiles --create"]
    if not wanted.with_hub:
        return [
            "write /etc/aliquot/gateway.py: docs/how-to/run-as-a-service.md",
            f"then: systemctl restart {GATEWAY_UNIT}",
        ]
    return [
        "look at /etc/jupyterhub/jupyterhub_config.py: who may log in, who administers it, and the limits in "
        "configure(…). A Hub with a configuration of its own needs that call at the file's end",
        "this sets up the gateway of this machine alone. For more GPU servers run install-service on each, and name "
        "them all in configure(gateways=[…]): docs/how-to/jupyterhub.md#several-gpu-servers",
        f"start the Hub: systemctl restart {HUB_UNIT.removesuffix('.service')}",
        f"look at it again: {wanted.programs}/aliquot doctor --hub",
    ]

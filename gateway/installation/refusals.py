"""The reasons for which a machine cannot have Aliquot as a service, each found before anything is written."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from jupyter_aliquot.gateway.base.errors import CommandError, UsageError

from .files import Installation, is_ours, planned_files

_BOOTED = Path("/run/systemd/system")  # systemd's own sign that it is process 1
_FIRST_PERSON = 1000
_ACCOUNT_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
# Without --clear, venv keeps the links to the Python that others cannot run.
NEW_ENVIRONMENT = (
    "sudo /usr/bin/python3 -m venv --clear /opt/aliquot, and in a checkout "
    "sudo /opt/aliquot/bin/pip install '.[hub,lab]'"
)
# Where a unit's programs are found, beside those of this environment.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def check_machine(wanted: Installation, is_live: bool, warn: Callable[[str], None] | None = None) -> None:
    """Raise CommandError for the first reason.

    ``is_live``: this machine gets the account and runs the services. ``warn``: of a dry run, which
    needs no rights, and says the software that is missing here instead of ending with it.
    """
    check_account_name(wanted.user)
    if is_live:
        if warn is None:
            check_rights()
        check_account(wanted.user)
        try:
            check_environment(Path(sys.prefix), Path(sys.executable))
            if wanted.with_hub:
                check_programs(wanted.programs)
        except CommandError as error:
            if warn is None:
                raise
            warn(str(error))
    check_files(wanted)


def check_rights() -> None:
    """Refuse an account that may not write units, and a machine without systemd. Raises CommandError."""
    if os.geteuid() != 0:
        raise CommandError(
            f"install-service writes into /etc and makes an account, which user {os.geteuid()} may not. Run it as "
            "root, or use --root FOLDER to write the files below a folder"
        )
    if not _BOOTED.is_dir():
        raise CommandError(
            f"systemd does not run here: there is no {_BOOTED}. Use --root FOLDER to write the files for another "
            "machine, or start aliquot agent and aliquot relay by this machine's own service manager"
        )


def check_account_name(name: str) -> None:
    """Refuse a name that no account can have. Raises UsageError."""
    if not _ACCOUNT_NAME.fullmatch(name):
        raise UsageError(f"--user {name!r} is no name of an account. Use lower-case letters, digits, '_' and '-'")


def check_account(name: str) -> None:
    """Refuse root, and the account of a person, whose files all kernels would read.

    Raises CommandError.
    """
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return
    if found.pw_uid == 0:
        raise CommandError("--user root: the gateway and the agent do not run as root. Use an account of their own")
    if _FIRST_PERSON <= found.pw_uid < 65534:
        raise CommandError(
            f"--user {name}: the account exists and is a person's (uid {found.pw_uid}). Use a system account, which "
            "has a number below 1000, or a name that is free"
        )


def check_environment(prefix: Path, python: Path) -> None:
    """Refuse a Python that other accounts cannot run, such as one below a private home.

    Raises CommandError.
    """
    if found := closed_environment(prefix, python):
        raise CommandError(
            f"other accounts cannot run the Python of this installation, {found}. "
            f"Install Aliquot where they may: {NEW_ENVIRONMENT}"
        )


def closed_environment(prefix: Path, python: Path) -> str:
    """Return a Python that other accounts cannot run, with the reason; empty where they can."""
    target = python.resolve()
    for path in (prefix, python.parent, target):
        for closed in closed_to_others(path):
            link = f", a link to {target}" if path == target != python else ""
            return f"{python}{link}: they may not enter {closed}"
    return ""


def closed_to_others(path: Path) -> Iterator[Path]:
    """Yield the folders above a path, and the path, that other accounts may not pass."""
    for one in (*reversed(path.absolute().parents), path.absolute()):
        try:
            is_open = stat.S_IMODE(one.stat().st_mode) & stat.S_IXOTH
        except OSError:
            is_open = 0
        if not is_open:
            yield one


def check_programs(programs: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse a Hub without its proxy. Raises CommandError."""
    path = os.pathsep.join((str(programs), environ.get("PATH", ""), SYSTEM_PATH))
    for name, remedy in (
        ("jupyterhub", "/opt/aliquot/bin/pip install '.[hub,lab]' in a checkout"),
        ("node", "install Node.js: apt-get install nodejs npm"),
        ("configurable-http-proxy", "npm install --global configurable-http-proxy"),
    ):
        if shutil.which(name, path=path) is None:
            raise CommandError(f"a JupyterHub needs {name}, which is not on the PATH. Get it: {remedy}")


def check_files(wanted: Installation) -> None:
    """Refuse to replace a file that an administrator wrote. Raises CommandError."""
    for file in planned_files(wanted):
        path = wanted.below_root(file.path)
        if path.exists() and not file.belongs_to_admin and not is_ours(path):
            raise CommandError(
                f"{path} exists and was not written by install-service. Move it away, and put what is special in it "
                f"into a drop-in: systemctl edit {path.name}"
            )

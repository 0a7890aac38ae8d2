"""A bare server to install on: a namespace with accounts, folders, network and processes of its own.

`run_on_bare_server` runs commands in it as root. The machine's accounts and folders stay as they
are, and with the namespace all that was started ends. Stand-ins play what fetches packages (apt-get,
npm, git, pip: the tests' own environment is lent), sudo, and systemd, whose stand-in starts a unit's
program as the unit says.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PROXY = REPOSITORY / "build" / "hub-proxy" / "node_modules" / ".bin" / "configurable-http-proxy"
PATIENCE_SECONDS = 840.0
_STAND_IN = REPOSITORY / "tests" / "standin_systemctl.py"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


@dataclass(frozen=True)
class Done:
    """One command's end. ``said`` is what it printed."""

    command: str
    code: int
    said: str


def run_on_bare_server(commands: list[str], folder: Path) -> list[Done]:
    """Run shell commands one after another; skip the test where no namespace can be made."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a server of namespaces")
    if not PROXY.exists():
        pytest.skip("configurable-http-proxy is not installed in build/hub-proxy: it needs Node (tools/setup.py test)")
    (folder / "commands.json").write_text(json.dumps(commands))
    own = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    told = subprocess.run(
        [*own, sys.executable, __file__, str(folder)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    return [Done(**one) for one in json.loads((folder / "done.json").read_text())]


def _make_server(folder: Path) -> dict[str, str]:
    """Put folders of the server in the place of the machine's. Returns the environment of root there."""
    _mount("--make-rprivate", "/")
    _open_to_all(REPOSITORY, folder)
    _open_to_all(Path(sys.executable).resolve(), folder)
    shutil.copytree("/etc", folder / "etc", symlinks=True)
    for name in ("opt", "home"):  # with what is there: it may have this Python
        for kept in (one for one in Path("/", name).iterdir() if one.is_dir()):
            (folder / name / kept.name).mkdir(parents=True)
            _mount("--rbind", str(kept), str(folder / name / kept.name))
    for name in ("etc", "opt", "home", "run", "var/lib"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        _mount("--rbind", str(folder / name), f"/{name}")
    for empty in ("/dev/shm", "/var/tmp"):  # another server's account has the same number there
        _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", empty)
    Path("/run/systemd/system").mkdir(parents=True)
    _switch_loopback_on()
    programs = folder / "bin"
    programs.mkdir()
    _program(programs / "sudo", 'exec "$@"')
    _program(programs / "apt-get", "true")
    _program(programs / "git", "mkdir -p aliquot")
    _program(programs / "npm", f"mkdir -p /opt/aliquot/bin && ln -sf {shlex.quote(str(PROXY))} /opt/aliquot/bin/")
    _program(programs / "python3", shlex.join([sys.executable, __file__, "--environment"]) + ' "$3"')
    _program(programs / "systemctl", shlex.join([sys.executable, str(_STAND_IN)]) + ' "$@"')
    return {"PATH": f"{programs}:{_SYSTEM_PATH}", "HOME": "/root", "USER": "root", "LANG": "C.UTF-8"}


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def _open_to_all(path: Path, folder: Path) -> None:
    """Have every account pass the folders above a path, as on a server: the tests' may be closed."""
    for closed in reversed(path.parents):
        if closed.stat().st_mode & 0o005 == 0o005:
            continue
        behind = folder / "behind" / closed.relative_to("/")  # leads into the folder that is about to be covered
        behind.mkdir(parents=True)
        _mount("--rbind", str(closed), str(behind))
        entries = [(entry, entry.is_dir()) for entry in behind.iterdir() if not entry.is_symlink()]
        _mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(closed))
        for entry, is_folder in entries:
            shown = closed / entry.name
            shown.mkdir() if is_folder else shown.touch()
            _mount("--rbind", str(entry), str(shown))


def _switch_loopback_on() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name = struct.pack("16sh14x", b"lo", 0)
        _, flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, name))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def main(folder: Path) -> None:
    """Make the server, and run its commands. Called in the namespace."""
    environment = _make_server(folder)
    ends = []
    for command in json.loads((folder / "commands.json").read_text()):
        with (folder / "said").open("w+") as said:  # a file: what a command starts may keep it open
            code = subprocess.call(["bash", "-c", command], env=environment, cwd=folder, stdout=said, stderr=said)
        ends.append({"command": command, "code": code, "said": (folder / "said").read_text()})
    (folder / "done.json").write_text(json.dumps(ends))


def end_as(worker: int) -> int:
    """Be the first process of the namespace, which waits for orphans. Returns the worker's status."""
    while True:
        pid, status = os.wait()
        if pid == worker:
            return os.waitstatus_to_exitcode(status)


def make_environment_of_root(path: Path) -> None:
    """Play `python3 -m venv` and `pip install`: the tests' packages, at the path of the page."""
    sys.path.insert(0, str(REPOSITORY / "tests" / "documents"))
    from reader_environment import make_environment

    make_environment(path)
    _program(path / "bin" / "pip", "true")


if __name__ == "__main__":
    if sys.argv[1] == "--environment":
        make_environment_of_root(Path(sys.argv[2]))
    elif (worker := os.fork()) == 0:
        main(Path(sys.argv[1]))
    else:
        sys.exit(end_as(worker))

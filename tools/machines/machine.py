"""A clean machine: a system's root in namespaces of its own, writable, and gone at the end.

Commands run in it as root, with this machine's network and its certificates of the package index:
a mirror of the index may have an authority of its own. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
IN_THE_MACHINE = "/etc/ssl/machine.crt"
PATIENCE_SECONDS = 1800.0
_ENTER = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "bash", "-c"]
# The machine's own /proc; the rest of what programs expect of a system without an init.
_PREPARE = """set -e
mount --make-rprivate /
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
mount -t tmpfs -o mode=1777 tmpfs "$0/dev/shm"
exec chroot "$0" "$@"
"""


@dataclass(frozen=True)
class Ended:
    """One command's end, with what it printed and the seconds that it took."""

    code: int
    said: str
    seconds: float


@dataclass(frozen=True)
class Machine:
    """A running machine. ``root`` is the folder of its files."""

    root: Path

    def run(self, command: str, **variables: str) -> Ended:
        """Run a shell command as root, in the root's home folder."""
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
            "PIP_CERT": IN_THE_MACHINE,
            "SSL_CERT_FILE": IN_THE_MACHINE,
            **_index_variables(),
            **variables,
        }
        begin = time.monotonic()
        words = [*_ENTER, _PREPARE, str(self.root), "bash", "-c", f"cd && {command}"]
        done = subprocess.run(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return Ended(done.returncode, done.stdout, time.monotonic() - begin)

    def install(self, packages: Sequence[str]) -> Ended:
        """Install packages of the system as its user would, with what they recommend."""
        return self.run(f"apt-get -q update && apt-get -q -y install {' '.join(packages)}")


def _index_variables() -> dict[str, str]:
    """Return what tells pip which index to ask, where this machine is told so."""
    names = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    return {name: os.environ[name] for name in names if name in os.environ}


@contextlib.contextmanager
def machine(archive: Path) -> Iterator[Machine]:
    """Yield a machine with a fresh copy of this root."""
    folder = Path(tempfile.mkdtemp(prefix="aqm-", dir="/tmp"))
    try:
        folder.chmod(0o755)
        subprocess.run(["tar", "-C", str(folder), "--exclude=./dev/*", "-xf", str(archive)], check=True)
        (folder / IN_THE_MACHINE.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CERTIFICATES, folder / IN_THE_MACHINE.lstrip("/"))
        shutil.copy("/etc/resolv.conf", folder / "etc" / "resolv.conf")
        yield Machine(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

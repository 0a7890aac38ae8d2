"""The clean systems on which releases and the README are tried: minimal roots of Debian and Ubuntu.

mmdebstrap makes a root from the distribution's own archive, whose signatures it checks: no registry
of images is asked. A root is made once, and kept below ``build/machines``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "machines"
UBUNTU_KEYRING = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
# The Debian release whose package has Ubuntu's keys, and that package.
KEYS_FROM = ("trixie", "ubuntu-keyring")


class NotToBeHad(Exception):
    """A system's root cannot be made here; the text says why."""


@dataclass(frozen=True)
class System:
    """One release of a distribution. ``python`` is the version that it has itself."""

    name: str
    suite: str
    python: str
    is_ubuntu: bool = False

    @property
    def archive(self) -> Path:
        """Return the root as a tar file, with nothing but what every installation has."""
        return HOME / f"{self.suite}.tar"


SYSTEMS = (
    System("Ubuntu 22.04", "jammy", "3.10", is_ubuntu=True),
    System("Debian 12", "bookworm", "3.11"),
    System("Ubuntu 24.04", "noble", "3.12", is_ubuntu=True),
    System("Debian 13", "trixie", "3.13"),
    System("Ubuntu 26.04", "resolute", "3.14", is_ubuntu=True),
)


def system(suite: str) -> System:
    return next(one for one in SYSTEMS if one.suite == suite)


def make(wanted: System) -> Path:
    """Return the system's root as a tar file; make it if it is not there. Raises NotToBeHad."""
    if wanted.archive.exists():
        return wanted.archive
    if shutil.which("mmdebstrap") is None:
        raise NotToBeHad("mmdebstrap is not installed (Debian: apt-get install mmdebstrap)")
    HOME.mkdir(parents=True, exist_ok=True)
    components = "main,universe" if wanted.is_ubuntu else "main"
    command = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=apt", f"--components={components}"]
    if wanted.is_ubuntu:
        command.append(f"--keyring={_ubuntu_keyring()}")
    new = wanted.archive.with_suffix(".new")
    done = subprocess.run(
        [*command, "--format=tar", wanted.suite, str(new)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        new.unlink(missing_ok=True)
        raise NotToBeHad(f"mmdebstrap made no root of {wanted.name}: {done.stderr.strip()[-400:]}")
    new.rename(wanted.archive)
    return wanted.archive


def _ubuntu_keyring() -> Path:
    """Return a file with Ubuntu's keys, from Debian's package of them. Raises NotToBeHad."""
    kept = HOME / "ubuntu-keys.gpg"
    for file in (UBUNTU_KEYRING, kept):
        if file.exists():
            return file
    sys.path.insert(0, str(ROOT / "tools"))
    import debian_archive

    try:
        with tempfile.TemporaryDirectory() as folder:
            files = debian_archive.unpack(Path(folder), KEYS_FROM[0], "main", [KEYS_FROM[1]])
            shutil.copy(files / str(UBUNTU_KEYRING).lstrip(os.sep), kept)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotToBeHad(f"Debian's package of Ubuntu's keys cannot be had: {error}") from error
    return kept

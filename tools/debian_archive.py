"""Unpack packages of a Debian release into a folder.

Nothing is installed, and the system's package lists stay as they are. Needs apt-get and dpkg, but
not root.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def has_package_tools() -> bool:
    return shutil.which("apt-get") is not None and shutil.which("dpkg") is not None


def find_mirror() -> str:
    """Return the Debian archive that this system takes its packages from. Raises OSError."""
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for file in files:
        if file.is_file() and (found := re.search(r"\bhttps?://\S+/debian/?(?=\s)", file.read_text(errors="replace"))):
            return found[0]
    raise OSError("no Debian archive among this system's package sources")


def unpack(folder: Path, release: str, component: str, packages: Iterable[str]) -> Path:
    """Unpack the packages below ``folder``; return the folder of their files.

    Raises OSError, CalledProcessError.
    """
    for part in ("lists/partial", "cache/archives/partial", "files"):
        (folder / part).mkdir(parents=True)
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    (folder / "sources.list").write_text(f"deb {signed}{find_mirror()} {release} {component}\n")
    _apt(folder, "update")
    _apt(folder, "download", *packages)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(folder / "files")], check=True)
    return folder / "files"


def _apt(folder: Path, *words: str) -> None:
    """Run apt-get with lists, cache and sources of its own. Raises CalledProcessError."""
    options = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "",
        "APT::Get::List-Cleanup": "0",
        "Acquire::Retries": "0",
        "Acquire::http::Timeout": "10",
    }
    command = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in options.items()), *words]
    subprocess.run(command, cwd=folder, check=True)

"""Make a base image from this machine alone, without a registry.

It has the machine's Python, pip, a shell and the libraries that they need. It stands in for the
`python` image that deploy/Dockerfile names as its base.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pip

PROGRAMS = ("sh", "env", "cat", "chmod", "id", "ln", "ls", "mkdir", "rm", "sleep", "test")
# Loaded by wheels, and by no other copied file.
MORE_LIBRARIES = ("libstdc++.so.6", "libgcc_s.so.1", "libz.so.1", "librt.so.1", "libpthread.so.0", "libdl.so.2")
SKIPPED = frozenset(("test", "tests", "site-packages", "dist-packages", "idlelib", "ensurepip", "tkinter"))
FOLDERS = ("usr", "etc", "proc", "sys", "dev", "run", "home", "opt", "var", "var/tmp", "tmp", "root")
LINKS = ("bin", "lib", "lib64", "sbin")
_LDD = re.compile(r"(?:=> )?(/\S+) \(0x")


def write_base(archive: Path) -> str:
    """Write the image's files; returns the PATH that its programs are on."""
    python = Path(os.path.realpath(sys.executable))
    with tarfile.open(archive, "w") as tar:
        image = _Image(tar)
        image.skeleton()
        for program in (*map(_program, PROGRAMS), python):
            image.add(program)
        image.link(f"{python.parent}/python3", python.name)
        stdlib = Path(sysconfig.get_path("stdlib"))
        image.add_all(_files(stdlib))
        image.add_all(_files(Path(pip.__file__).parent), _packages(python) / "pip")
        libraries = [path for path in stdlib.glob("lib-dynload/*.so") if not path.name.startswith("_tkinter")]
        image.add_all(_needed([*map(_program, PROGRAMS), python, *libraries]))
    return os.pathsep.join(dict.fromkeys([str(python.parent), "/usr/local/bin", "/usr/bin"]))


class _Image:
    """A tar that has each file once, below folders that are no links."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._seen: set[str] = set()

    def skeleton(self) -> None:
        for name in FOLDERS:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
            self._tar.addfile(entry)
        for name in LINKS:
            self.link(f"/{name}", f"usr/{name}")
        for path in ("passwd", "group", "nsswitch.conf", "ld.so.cache"):
            if Path("/etc", path).exists():
                self.add(Path("/etc", path))

    def link(self, path: str, target: str) -> None:
        if path not in self._seen:
            self._seen.add(path)
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            self._tar.addfile(entry)

    def add(self, path: Path, at: Path | None = None) -> None:
        """Add the file of `path` at that path; only links of its folder are resolved."""
        place = at or Path(os.path.realpath(path.parent), path.name)
        if str(place) in self._seen:
            return
        self._seen.add(str(place))
        data = path.read_bytes()
        entry = tarfile.TarInfo(str(place).lstrip("/"))
        # With the time that it has here, so that Python's compiled files stay valid.
        entry.mtime = int(path.stat().st_mtime)
        entry.size, entry.mode = len(data), 0o755 if os.access(path, os.X_OK) or ".so" in path.name else 0o644
        self._tar.addfile(entry, io.BytesIO(data))

    def add_all(self, paths: Iterable[Path], at: Path | None = None) -> None:
        paths = list(paths)
        top = Path(os.path.commonpath(paths)) if at is not None else None
        for path in paths:
            self.add(path, None if at is None or top is None else at / path.relative_to(top))


def _program(name: str) -> Path:
    found = shutil.which(name, path="/usr/bin:/bin")
    assert found is not None, name
    return Path(found)


def _packages(python: Path) -> Path:
    command = [str(python), "-I", "-c", "import site; print(site.getsitepackages()[0])"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith("config-")]
        yield from (Path(place, name) for name in names if not name.startswith("_tkinter"))


def _needed(programs: list[Path]) -> list[Path]:
    """Return the libraries that these programs load, and those that wheels load."""
    output = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    found = {Path(path) for path in _LDD.findall(output)}
    system = Path(os.path.realpath(next(path for path in found if path.name.startswith("libc.so")).parent))
    return sorted(found | {system / name for name in MORE_LIBRARIES if (system / name).exists()})

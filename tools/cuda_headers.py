"""Fetch CUDA's headers, release by release, from NVIDIA's packages, and read what they declare.

The module keeps them in build/headers; the repository contains none of them. It judges nothing:
entry_point_checks.py does.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

# Release: the package that carries its headers and its runtime library.
RELEASES = {
    "12.4": "nvidia-cuda-runtime-cu12==12.4.*",
    "12.8": "nvidia-cuda-runtime-cu12==12.8.*",
    "13.0": "nvidia-cuda-runtime==13.0.*",
    "newest": "nvidia-cuda-runtime",
}
NEWEST_SECONDS = 7 * 24 * 3600  # the cache refreshes the newest release after this time

_HEADERS = ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h")
_PROTOTYPE = re.compile(r"\bCUresult\s+(?:\w+\s+)?(cu[A-Z]\w*)\s*\(([^;{}]*)\)\s*;")
_POINTER = re.compile(r"\bCUresult\s*\(\s*\*\s*PFN_(cuProfiler\w+)_v\d+\)\s*\(([^;{}]*)\)\s*;")
_QUALIFIERS = {"const", "struct", "enum", "union"}
_BUILTINS = {"unsigned", "signed", "int", "long", "short", "char", "float", "double", "void"}
_NAME_IN_LIBRARY = re.compile(rb"\0(cu[A-Z][A-Za-z0-9_]{3,60})(?=\0)")
# Functions that the driver exports and that are inline functions in the headers.
_INLINE = {"cuGetProcAddress_v2_ptsz": "cuGetProcAddress_v2"}
# Stand-ins for declarations in other vendors' headers: only the names of the types matter.
_STAND_INS = {
    "GL/gl.h": "typedef unsigned int GLuint, GLenum;",
    "EGL/egl.h": "typedef void *EGLImageKHR, *EGLStreamKHR, *EGLSyncKHR; typedef int EGLint;",
    "EGL/eglext.h": "",
    "vdpau/vdpau.h": "typedef unsigned int VdpDevice, VdpVideoSurface, VdpOutputSurface;"
    " typedef int VdpGetProcAddress;",
}


class FetchError(Exception):
    """The headers of a release are not in the cache and cannot be fetched."""


@dataclass(frozen=True)
class Release:
    """One release: its version, its functions' parameter types, its runtime library's requests."""

    version: str
    functions: dict[str, tuple[str, ...]]
    asked_by_runtime: frozenset[str] = field(default_factory=frozenset)
    include: Path = Path()


def fetch(cache: Path, name: str, requirement: str) -> Path:
    """Return the folder with ``include/`` and ``asked.txt`` of a release. Raises FetchError."""
    folder = cache / name
    stamp = folder / "version.txt"
    is_old = name == "newest" and stamp.exists() and time.time() - stamp.stat().st_mtime > NEWEST_SECONDS
    if stamp.exists() and not is_old:
        return folder
    with tempfile.TemporaryDirectory() as download:
        command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "download", "--no-deps"]
        command += ["--only-binary", ":all:", "-d", download, requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(download).glob("*.whl"))
        if done.returncode == 0 and wheels:
            _unpack(wheels[0], folder)
        elif not is_old:
            reason = (done.stderr.strip().splitlines() or ["pip downloaded no wheel"])[-1]
            raise FetchError(f"{requirement}: {reason}")
    return folder


def _unpack(wheel: Path, folder: Path) -> None:
    asked: set[str] = set()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if "/include/" in name and name.endswith(".h"):
                target = folder / "include" / name.split("/include/", 1)[1]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))
            elif "/lib/libcudart.so" in name:
                asked |= {found.decode() for found in _NAME_IN_LIBRARY.findall(archive.read(name))}
    (folder / "asked.txt").write_text("\n".join(sorted(asked)))
    (folder / "version.txt").write_text(wheel.name.split("-")[1])


def read(folder: Path, compiler: str = "cc") -> Release:
    """Return what the headers of a fetched release declare."""
    include = folder / "include"
    functions = read_functions(include, compiler)
    asked = frozenset((folder / "asked.txt").read_text().split())
    return Release((folder / "version.txt").read_text(), functions, asked, include)


def read_functions(include: Path, compiler: str = "cc") -> dict[str, tuple[str, ...]]:
    """Return the parameter types of every function, by each name that a driver exports for it."""
    headers = [name for name in _HEADERS if (include / name).exists()]
    with tempfile.TemporaryDirectory() as stand_ins:
        for name, text in _STAND_INS.items():
            path = Path(stand_ins, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        source = "#define __CUDA_API_VERSION_INTERNAL\n" + "".join(f"#include <{name}>\n" for name in headers)
        command = [compiler, "-E", "-P", "-x", "c", f"-I{include}", f"-I{stand_ins}", "-"]
        text = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    found = dict(_PROTOTYPE.findall(text))
    profiler = include / "cudaProfilerTypedefs.h"
    if profiler.exists():  # cudaProfiler.h itself is in no package
        found |= dict(_POINTER.findall(re.sub(r"\bCUDAAPI\b", "", profiler.read_text())))
    types = {name: _types(parameters) for name, parameters in found.items()}
    return types | {name: types[twin] for name, twin in _INLINE.items() if twin in types}


def _types(parameters: str) -> tuple[str, ...]:
    """Return the types of parameters, without names and spaces.

    ``const char *name, int n`` gives ``const char*``, ``int``.
    """
    text = " ".join(parameters.split())
    return () if text in ("", "void") else tuple(_type(one.strip()) for one in text.split(","))


def _type(parameter: str) -> str:
    tokens = re.findall(r"\w+|\*|\[[^]]*\]", parameter)
    names = [token for token in tokens if re.match(r"[A-Za-z_]", token) and token not in _QUALIFIERS | _BUILTINS]
    if len(names) > (0 if _BUILTINS & set(tokens) else 1):
        tokens.remove(names[-1])
    if "unsigned" in tokens and not _BUILTINS & set(tokens) - {"unsigned"}:
        tokens.insert(tokens.index("unsigned") + 1, "int")
    return re.sub(r" ?([*\[])", r"\1", " ".join(tokens))
